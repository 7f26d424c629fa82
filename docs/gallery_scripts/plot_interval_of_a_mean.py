"""The interval of a mean.

3,000 users, a few with very many rows. The interval knows the noise that was added and what bounding may do. It holds
for the mean over all rows, at every ε.
"""

import numpy as np

from apportion import UserMean
from papers.public_features.drawing import Line, Panel, figure

rng = np.random.default_rng(0)
users = np.repeat(np.arange(3000), np.minimum(rng.zipf(1.7, 3000), 50))
values = np.clip(100 + 40 * rng.standard_normal(len(users)), 0, 500)
epsilons, centres, halves = [0.25, 0.5, 1, 2, 4, 8], [], []
for epsilon in epsilons:
    mean = UserMean(epsilon=epsilon, value_range=(0, 500)).fit(values, users=users)
    low, high = mean.interval_
    centres.append((low + high) / 2)
    halves.append((high - low) / 2)

lines = {
    "interval of 95 %": Line(epsilons, centres, halves),
    "true mean": Line(epsilons, [values.mean()] * 6, dashed=True, plain=True),
}
panel = Panel("mean", lines, "ε, pure", log_x=True, ticks={each: f"{each:g}" for each in epsilons})
picture = figure("A private mean", [panel], width=440)
