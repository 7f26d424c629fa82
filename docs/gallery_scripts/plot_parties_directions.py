"""Directions that stand out of the noise.

Eigenvalues of what 150 parties release together, at three ε. Two directions were put in. At a small ε they drown, and
parties are told so.
"""

import numpy as np

from apportion import ProtectedMultiTask
from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
common = rng.standard_normal((2, 8))
x = [rng.standard_normal((12, 8)) for _ in range(150)]
y = [rows @ (rng.standard_normal(2) @ common) + rng.standard_normal(12) for rows in x]
ranks, lines = list(range(1, 9)), {}
for epsilon in (0.3, 1, 10):
    released = ProtectedMultiTask(epsilon=epsilon).fit(x, y).released_[-1]
    values = np.sort(np.linalg.eigvalsh(released.matrix))[::-1]
    lines[f"ε = {epsilon}: {released.kept} kept"] = Line(ranks, values.tolist())

picture = figure("Released covariance of models", [Panel("eigenvalue", lines, "rank")], width=440)
