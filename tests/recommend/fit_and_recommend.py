"""Fit recommenders on generated data and store what they recommend: one process of `test_same_everywhere.py`."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from apportion.data.synthetic import long_tailed_clicks, long_tailed_ratings
from apportion.linalg import instruction_sets
from apportion.privacy.noise import SeededNoise
from apportion.recommend import ClickRecommender, PrivateClickRecommender, PrivateRatingRecommender, RatingRecommender

K, ASKED = 21, 30  # the last of K only says how far the one before is from it


def fitted():
    """Yield a name, a model and the data it was fitted to."""
    clicks, _ = long_tailed_clicks(1500, 400, 40_000, rank=5, rng=np.random.default_rng(0))
    ratings, _ = long_tailed_ratings(1500, 400, 40_000, rank=5, rng=np.random.default_rng(0))
    budget = {"epsilon": 5.0, "dimension": 6}
    yield "private clicks", PrivateClickRecommender(**budget, noise=SeededNoise(1)).fit(clicks).model_, clicks
    yield "private ratings", PrivateRatingRecommender(**budget, noise=SeededNoise(1)).fit(ratings).model_, ratings
    plain = ClickRecommender(dimension=6).fit(clicks).model_
    yield "clicks", plain, clicks
    yield "ratings", RatingRecommender(dimension=6).fit(ratings).model_, ratings
    yield "ties", with_twins(plain), clicks


def with_twins(model):
    """The model with every item but the first ten given the vector of one of those ten."""
    twin = np.arange(model.n_tasks) % 10
    fold_in = replace(model.fold_in, features=model.fold_in.features[twin])
    return type(model)(
        fold_in=fold_in,
        vectors=model.vectors[twin],
        popularity=model.popularity,
        reliability=model.reliability[twin],
        task_ids=model.task_ids,
        statement=None,
    )


def answers():
    """Recommended and similar items of every model, with their scores, by name."""
    found = {"instructions": np.array((instruction_sets() or ("none",))[-1])}
    for name, model, data in fitted():
        best = model.recommend(data, K)
        known = np.flatnonzero(model.vectors.any(axis=1))[:ASKED]  # one without a vector is as near to all others
        near = [model.similar(model.task_ids.id_of(int(task)), K) for task in known]
        found[f"{name} recommended"], found[f"{name} recommended scores"] = best.tasks, best.scores
        found[f"{name} similar"] = np.array([[one.task for one in row] for row in near])
        found[f"{name} similar scores"] = np.array([[one.similarity for one in row] for row in near])
    return found


if __name__ == "__main__":
    np.savez(sys.argv[1], **answers())
