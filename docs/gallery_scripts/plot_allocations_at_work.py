"""Allocations at work.

One user has items of very different popularity and one unit of sensitivity. An allocation divides the unit: equally,
or by popularity to the power −exponent.
"""

import numpy as np

from papers.public_features.drawing import Line, Panel, figure

popularity = np.array([5000, 2000, 800, 300, 100, 40, 15, 5])
items = list(range(1, 9))
lines = {}
for exponent in (0.0, 0.25, 0.5, 1.0):
    weights = popularity ** -float(exponent)
    weights /= np.linalg.norm(weights)  # the squares of one user's weights sum to 1
    lines[f"exponent {exponent}"] = Line(items, weights.tolist())

names = {item: str(users) for item, users in zip(items, popularity, strict=True)}
picture = figure("Weights of one user", [Panel("weight", lines, "users of the item", ticks=names)], width=440)
