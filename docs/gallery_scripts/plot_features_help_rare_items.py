"""Public features help where ratings are few.

The same ratings, fitted with and without what is publicly known of the items. The gain is largest for rare items and
at a small ε.
"""

import numpy as np

from apportion import PrivateRatingRecommender
from apportion.data.synthetic_features import ratings_with_features
from apportion.evaluation import popularity_slices, rmse
from papers.public_features.drawing import Line, Panel, figure

data, features, _ = ratings_with_features(3000, 300, 60_000, rng=np.random.default_rng(0))
train, test = data.split_by_value(np.random.default_rng(1), (0.9, 0.1))
slices = popularity_slices(train.by_task.counts)
panels = []
for epsilon in (1, 8):
    fifths, lines = [1, 2, 3, 4, 5], {}
    for name, known in (("without features", None), ("with features", features)):
        model = PrivateRatingRecommender(epsilon, features=known, items=list(range(300))).fit(train).model_
        lines[name] = Line(fifths, rmse(model.predict(train, test), test, slices=slices).by_slice)
    panels.append(Panel(f"test RMSE, ε = {epsilon}", lines, "rarest to most popular", ticks=dict.fromkeys(fifths, "")))

picture = figure("Public features", panels, width=300, same_y=True)
