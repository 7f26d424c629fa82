"""How much should rare tasks get?

Regressions with 50 tasks of skewed popularity, at ε = 1. Equal weights (exponent 0) waste budget on popular tasks.
From an exponent of a half on, little is gained.
"""

import numpy as np

from apportion.allocation import Adaptive
from apportion.privacy import SeededNoise
from apportion.regression import MultiTaskRidge
from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
chance = 1 / np.arange(1, 51)
users = np.repeat(np.arange(6000), 4)
tasks = np.concatenate([rng.choice(50, 4, replace=False, p=chance / chance.sum()) for _ in range(6000)])
x = rng.uniform(-0.5, 0.5, (24_000, 3))
truth = rng.uniform(-0.5, 0.5, (50, 3))
y = (x * truth[tasks]).sum(axis=1)
exponents = [0.0, 0.125, 0.25, 0.5, 0.75, 1.0]


def error(exponent, seed):
    ridge = MultiTaskRidge(1.0, label_bound=0.5, allocation=Adaptive(exponent), noise=SeededNoise(seed))
    return np.mean((ridge.fit(x, y, tasks=tasks, users=users, task_ids=np.arange(50)).coef_ - truth) ** 2)


found = [[error(exponent, seed) for seed in range(3)] for exponent in exponents]
line = Line(exponents, [float(np.mean(each)) for each in found], [float(np.std(each)) for each in found])
panel = Panel("squared error of coefficients", {"adaptive weights, three draws of the noise": line}, "exponent")
picture = figure("50 tasks, ε = 1 (seeded noise, not for release)", [panel], width=440)
