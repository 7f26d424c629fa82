"""A mechanism that is not private.

Wishart noise with d + 1 degrees of freedom was published as ε-DP. But what is left after one model's part is taken
away must be positive semidefinite if the model took part. Where it is not, the attacker is certain that it did not.
That happens with probability 1 − exp(−ε).
"""

import math

import numpy as np

from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
epsilons, draws = [0.1, 0.3, 1, 2, 3], 2000
lines = {"1 − exp(−ε)": Line(epsilons, [1 - math.exp(-each) for each in epsilons], dashed=True, plain=True)}
for dimension in (1, 5, 20):
    model = np.zeros(dimension)
    model[0] = 1.0
    certain = []
    for epsilon in epsilons:
        normal = rng.standard_normal((draws, dimension, dimension + 1)) / math.sqrt(2 * epsilon)
        noise = normal @ normal.transpose(0, 2, 1)
        left = noise - np.outer(model, model)  # the model was absent, and is taken away
        certain.append(float(np.mean(np.linalg.eigvalsh(left)[:, 0] < 0)))
    lines[f"simulated, d = {dimension}"] = Line(epsilons, certain)

picture = figure("Wishart noise", [Panel("how often the attacker is certain", lines, "ε")], width=440)
