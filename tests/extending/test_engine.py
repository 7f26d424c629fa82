"""A new engine: one class with `add_up`, the same whole numbers as every other engine."""

from __future__ import annotations

import numpy as np

from apportion import PrivateRatingRecommender, UserMean
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine
from apportion.privacy import SeededNoise
from extending.engine.two_processes import ProcessesEngine


def test_a_fit_on_an_engine_of_ones_own_is_the_fit_of_the_library_s_engine():
    data, _ = long_tailed_ratings(60, 20, 500, rank=2, rng=np.random.default_rng(0))

    def fitted(engine):
        noise = SeededNoise(0, exact=True)
        return PrivateRatingRecommender(dimension=2, rounds=1, noise=noise, engine=engine).fit(data).model_

    here, there = fitted(LocalEngine(np.float64, exact=True)), fitted(ProcessesEngine())
    np.testing.assert_array_equal(here.vectors, there.vectors)
    np.testing.assert_array_equal(here.popularity, there.popularity)


def test_a_mean_on_it_is_the_same_too():
    values, users = np.random.default_rng(0).uniform(0, 1, 90), np.arange(90) % 30

    def mean(engine):
        noise = SeededNoise(0, exact=True)
        return UserMean(1.0, value_range=(0, 1), noise=noise, engine=engine).fit(values, users=users).mean_

    assert mean(ProcessesEngine()) == mean(LocalEngine(np.float64, exact=True))
