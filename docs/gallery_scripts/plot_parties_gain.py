"""Parties that learn together.

150 parties with 12 rows each. Their models lie near two common directions. From some ε on, the released covariance
shows them, and each party gains; below, nothing is lost.
"""

import numpy as np

from apportion import ProtectedMultiTask
from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
common = rng.standard_normal((2, 8))
x = [rng.standard_normal((12, 8)) for _ in range(150)]
truth = [rng.standard_normal(2) @ common for _ in range(150)]
y = [rows @ model + rng.standard_normal(12) for rows, model in zip(x, truth, strict=True)]


def error(models):
    return float(np.mean([np.sum((model - true) ** 2) for model, true in zip(models, truth, strict=True)]))


alone = error([np.linalg.solve(rows.T @ rows + np.eye(8), rows.T @ labels) for rows, labels in zip(x, y, strict=True)])
epsilons = [0.1, 0.3, 1, 3, 10]
fits = [ProtectedMultiTask(epsilon=each).fit(x, y) for each in epsilons]
together = [error([fit.party(k).model for k in range(150)]) for fit in fits]
lines = {
    "together": Line(epsilons, together),
    "alone, ridge": Line(epsilons, [alone] * 5, dashed=True, plain=True),
}
panel = Panel("squared error of a model", lines, "ε", log_x=True, ticks={each: f"{each:g}" for each in epsilons})
picture = figure("150 parties", [panel], width=440)
