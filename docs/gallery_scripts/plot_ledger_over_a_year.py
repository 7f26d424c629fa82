"""A ledger over a year.

An account has ε = 2 for the year. Every month a model is fitted at ε = 0.5. The ledger adds up what the same people
lose, and refuses before the budget is exceeded.
"""

import tempfile
from pathlib import Path

from apportion import Budget, Ledger
from apportion.errors import BudgetError
from apportion.privacy.ledger import GaussianRelease
from papers.public_features.drawing import Line, Panel, figure

spent = []
with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{Path(folder) / 'year.db'}") as ledger:
    account = ledger.create_account("members", Budget(2.0, 1e-6))
    for month in range(1, 25):
        try:
            account.charge(f"model of month {month}", GaussianRelease(Budget(0.5, 1e-6).mu))
        except BudgetError as refused:
            print(refused)
            break
        spent.append(account.status().spent_epsilon)

months = list(range(1, len(spent) + 1))
lines = {
    "spent, by the ledger": Line(months, spent),
    "if ε were added up": Line(months, [0.5 * month for month in months]),
    "budget": Line(months, [2.0] * len(months), dashed=True, plain=True),
}
picture = figure("Two years of models at ε = 0.5", [Panel("ε", lines, "month")], width=440)
