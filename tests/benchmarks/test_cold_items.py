"""Held-out items of the claim on cold items: none that was looked at before, and none twice."""

from __future__ import annotations

import numpy as np

from apportion.data.synthetic_features import clicks_with_features
from benchmarks import features_cold


def test_fresh_items_are_a_tenth_and_overlap_with_nothing():
    data, features, _ = clicks_with_features(200, 300, 4000, rng=np.random.default_rng(0))
    earlier = np.any([features_cold._earlier(data, features, seed) for seed in features_cold.EARLIER], axis=0)
    fresh = [features_cold._fresh(data, features, number) for number in features_cold.FRESH]
    assert [mask.sum() for mask in fresh] == [30] * 5
    assert np.sum(fresh, axis=0).max() == 1
    assert not (np.any(fresh, axis=0) & earlier).any()


def test_training_never_sees_a_held_out_item():
    data, features, _ = clicks_with_features(200, 300, 4000, rng=np.random.default_rng(0))
    held_out = features_cold._fresh(data, features, 0)
    parts = features_cold._without(data, features, held_out)
    assert parts.train.n_observations + parts.cold.n_observations == data.n_observations
    assert not set(parts.train.task_ids.ids) & set(parts.cold.task_ids.ids)
    assert set(parts.cold.task_ids.ids) == set(data.task_ids.ids[held_out])
