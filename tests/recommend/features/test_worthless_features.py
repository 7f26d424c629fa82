"""Features of ratings count as far as users' held-out rows support them: worthless ones cost next to nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.data.synthetic import long_tailed_ratings
from apportion.privacy import Purpose, SeededNoise
from apportion.recommend import PrivateRatingRecommender, RatingSettings


def random_features(ids, rng):
    """A word and a number that have nothing to do with the items."""
    words = [f"word {k}" for k in rng.integers(0, 20, len(ids))]
    return ItemFeatures.from_frame(pa.table({"item": ids, "kind": words, "price": rng.lognormal(size=len(ids))}))


def fitted(train, features, seed, epsilon=1.0, **more):
    return PrivateRatingRecommender(epsilon, 1e-5, features=features, noise=SeededNoise(seed), **more).fit(train).model_


def error(train, test, features, seed):
    apart = fitted(train, features, seed).predict(train, test) - test.values
    return float(np.sqrt(np.mean(np.square(apart))))


def test_random_features_do_not_raise_the_error_of_light_users():
    rng = np.random.default_rng(0)
    data, _ = long_tailed_ratings(6000, 300, 12_000, rank=2, activity_spread=0.7, rng=rng)
    train, test = data.split_by_value(np.random.default_rng(0), (0.8, 0.2))
    worthless = random_features(data.task_ids.ids, rng)
    alone, ours = (np.mean([error(train, test, known, seed) for seed in range(3)]) for known in (None, worthless))
    assert ours < 1.005 * alone  # it was 1.03: vectors of 8 coordinates, whatever the noise


def opposite_tastes(n_users=2000, n_items=1000, rows=12):
    """Half of the users like items of one word and dislike those of another; the other half the reverse."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2, n_items)
    users = np.repeat(np.arange(n_users), rows)
    items = np.concatenate([rng.choice(n_items, rows, replace=False) for _ in range(n_users)])
    values = np.clip(3 + 1.2 * (2 * words[items] - 1) * (2 * (users % 2) - 1) + rng.normal(size=len(users)), 1, 5)
    frame = pa.table({"item": np.arange(n_items), "word": [f"word {k}" for k in words]})
    data = Interactions.from_arrays(users, items, values, task_ids=np.arange(n_items))
    return data, ItemFeatures.from_frame(frame)


def share_of_tastes(data, features):
    """How long the directions of features are in the model, relative to what they are without votes."""
    models = (fitted(data, features, 0, settings=RatingSettings(votes_share=share)) for share in (0.01, 0.0))
    voted, taken = (np.abs(model.vectors[:, -1]).max() for model in models)
    return float(voted / taken)


def test_tastes_for_features_grow_where_votes_support_them():
    data, features = opposite_tastes()
    assert share_of_tastes(data, features) == pytest.approx(1.0, rel=1e-5)
    worthless = random_features(data.task_ids.ids, np.random.default_rng(2))
    assert share_of_tastes(data, worthless) == pytest.approx(np.sqrt(0.1), rel=1e-5)


def test_the_votes_on_features_are_charged_and_named():
    data, features = opposite_tastes(n_users=100)
    purposes = [[r.purpose for r in fitted(data, known, 0).statement.releases] for known in (features, None)]
    assert [found.count(Purpose.FEATURE_VOTES) for found in purposes] == [1, 0]
