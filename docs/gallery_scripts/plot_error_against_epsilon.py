"""Error against ε.

Ratings of 4,000 generated users. As ε grows the private model comes to its twin without privacy, and at a large ε
past it: it estimates how far to trust each item, where the twin has fixed penalties.
"""

import numpy as np

from apportion import PrivateRatingRecommender
from apportion.data.synthetic import long_tailed_ratings
from apportion.evaluation import GlobalMean, rmse
from apportion.recommend.als import RatingRecommender
from papers.public_features.drawing import Line, Panel, figure

data, _ = long_tailed_ratings(4000, 300, 120_000, rank=3, rng=np.random.default_rng(0))
train, test = data.split_by_value(np.random.default_rng(1), (0.9, 0.1))


def error(model):
    return rmse(model.predict(train, test), test).overall


epsilons = [0.5, 1, 2, 5, 20]
ours = [error(PrivateRatingRecommender(each, items=list(range(300))).fit(train).model_) for each in epsilons]
twin, mean = error(RatingRecommender(dimension=3).fit(train).model_), error(GlobalMean().fit(train))
lines = {
    "private": Line(epsilons, ours),
    "without privacy": Line(epsilons, [twin] * 5, dashed=True, plain=True),
    "one mean for all": Line(epsilons, [mean] * 5, dashed=True, plain=True),
}
panel = Panel("test RMSE", lines, "ε (δ = 1e-6)", log_x=True, ticks={each: f"{each:g}" for each in epsilons})
picture = figure("What privacy costs", [panel], width=440)
