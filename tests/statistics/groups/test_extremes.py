"""Counts by group where there are many more groups than can be seen."""

from __future__ import annotations

import numpy as np

from apportion.privacy import SeededNoise
from apportion.statistics import UserGroupBy


def fits(users, groups, keys, *, runs=10, epsilon=1.0):
    return [
        UserGroupBy("count", epsilon, keys=keys, noise=SeededNoise(run)).fit(users=users, by=groups)
        for run in range(runs)
    ]


def test_groups_that_noise_hides_do_not_make_the_cap_hurt_large_ones():
    """Five groups of 2,000 rows among 20,000 of one row: intervals of the five were from 860 to 3,060."""
    users = np.concatenate([np.arange(10_000), np.arange(20_000) // 2])
    groups = np.concatenate([np.arange(10_000) % 5, 5 + np.random.default_rng(0).permutation(20_000)])
    keys = [str(k) for k in range(20_005)]
    for found in fits(users, groups, keys, runs=3):
        low, high = found.intervals_["count"][:5].T
        assert ((low <= 2000) & (high >= 2000)).all()
        assert (high - low).max() < 1500


def test_users_without_groups_are_counted_with_the_noise_of_one():
    """A user counts 1. Where two users were lost in noise, the cap was 10,000 and more, and so was the noise."""
    two, whole = np.arange(2), np.zeros(2, int).astype(str)
    for law in ("gaussian", "laplace"):
        fits = [
            UserGroupBy("users", 1.0, keys=["0"], law=law, noise=SeededNoise(run)).fit(users=two, by=whole)
            for run in range(8)
        ]
        assert max(found.noise_stddev_["users"][0] for found in fits) < 5
        assert (
            np.mean([found.intervals_["users"][0, 0] <= 2 <= found.intervals_["users"][0, 1] for found in fits]) > 0.8
        )
