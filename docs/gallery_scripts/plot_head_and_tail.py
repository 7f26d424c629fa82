"""From the rarest items to the most popular.

Noise is the same for every item, data are not. The error is shown by fifths of the items, from the rarest to the most
popular; compare the distance to the model without privacy.
"""

import numpy as np

from apportion import PrivateRatingRecommender
from apportion.data.synthetic import long_tailed_ratings
from apportion.evaluation import popularity_slices, rmse
from apportion.recommend.als import RatingRecommender
from papers.public_features.drawing import Line, Panel, figure

data, _ = long_tailed_ratings(4000, 300, 120_000, rank=3, rng=np.random.default_rng(0), skew=1.2)
train, test = data.split_by_value(np.random.default_rng(1), (0.9, 0.1))
slices = popularity_slices(train.by_task.counts)
models = {
    f"ε = {each}": PrivateRatingRecommender(each, items=list(range(300))).fit(train).model_ for each in (1, 5, 20)
}
models["without privacy"] = RatingRecommender(dimension=3).fit(train).model_
fifths = [1, 2, 3, 4, 5]
lines = {
    name: Line(fifths, rmse(model.predict(train, test), test, slices=slices).by_slice) for name, model in models.items()
}
names = {1: "rarest", 2: "", 3: "", 4: "", 5: "most popular"}
picture = figure("Head and tail", [Panel("test RMSE", lines, "fifths of the items", ticks=names)], width=440)
