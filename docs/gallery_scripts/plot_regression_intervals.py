"""Coefficients of a regression.

Labels are private, features are public. Each coefficient has an interval that shrinks with ε.
"""

import numpy as np

from apportion import LabelPrivateRegression
from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
users = np.repeat(np.arange(800), rng.integers(1, 6, 800))
x = rng.uniform(-1, 1, (len(users), 2))
y = np.clip(5 + 2 * x[:, 0] - x[:, 1] + 0.5 * rng.standard_normal(len(users)), 0, 10)
epsilons = [1, 2, 4, 8]
fits = [LabelPrivateRegression(each, label_range=(0, 10)).fit(x, y, users=users) for each in epsilons]
lines = {}
for k, true in enumerate((2.0, -1.0)):
    ends = np.array([fit.coef_intervals_[k] for fit in fits])
    lines[f"coefficient {k + 1}"] = Line(epsilons, ends.mean(axis=1).tolist(), ((ends[:, 1] - ends[:, 0]) / 2).tolist())
    lines[f"truth {k + 1}"] = Line(epsilons, [true] * 4, dashed=True, plain=True)

panel = Panel("coefficient", lines, "ε, pure", log_x=True, ticks={each: str(each) for each in epsilons})
picture = figure("Label-private regression", [panel], width=440)
