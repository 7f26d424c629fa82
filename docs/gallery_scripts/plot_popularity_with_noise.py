"""Popularity, as it is and as it is released.

Each user gives 1/√n to each of n items, so that one user moves all counts together by at most 1. The released
popularity is clear for the head and fades into noise in the tail.
"""

import numpy as np

from apportion import PrivateClickRecommender
from apportion.data.synthetic import long_tailed_clicks
from papers.public_features.drawing import Line, Panel, figure

data, _ = long_tailed_clicks(3000, 400, 60_000, rank=4, rng=np.random.default_rng(0))
true = np.sort(data.by_task.counts)[::-1]
order = np.argsort(data.by_task.counts)[::-1]
ranks = list(range(1, 401))
lines = {"true number of users": Line(ranks, np.maximum(true, 1).tolist(), plain=True)}
for epsilon in (1, 8):
    model = PrivateClickRecommender(epsilon, items=list(range(400)), dimension=4, rounds=1).fit(data).model_
    scaled = model.popularity[order] * true.sum() / model.popularity.sum()
    lines[f"released at ε = {epsilon}"] = Line(ranks, np.maximum(scaled, 1).tolist(), plain=True)

panel = Panel("users", lines, "rank of the item", log_x=True, log_y=True)
picture = figure("Popularity of 400 items", [panel], width=440)
