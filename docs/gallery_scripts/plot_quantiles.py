"""Quantiles by a random choice.

Nine quantiles in one fit at ε = 1, by halving the ranks. Where there are many values the choice is sharp.
"""

import numpy as np

from apportion import UserQuantile
from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
users = np.repeat(np.arange(4000), rng.integers(1, 6, 4000))
values = np.minimum(rng.gamma(2.0, 40.0, len(users)), 400)
at = [0.1 * k for k in range(1, 10)]
lines = {"true": Line(at, np.quantile(values, at).tolist(), dashed=True, plain=True)}
for epsilon in (0.3, 3):
    found = UserQuantile(at, epsilon=epsilon, value_range=(0, 400)).fit(values, users=users).quantiles_
    lines[f"ε = {epsilon}"] = Line(at, list(found))

picture = figure("Deciles", [Panel("value", lines, "quantile")], width=440)
