"""Intervals for errors of which the standard deviation is in doubt."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.postprocessing.intervals import half_width
from apportion.postprocessing.mixtures import Mixture


@pytest.mark.parametrize("laplace", [(0.0,), (0.3, 0.5)], ids=["normal noise", "laplace noise"])
def test_as_many_errors_lie_within_a_width_as_its_level_says(laplace):
    """A share of 0.95 of 200,000 draws has a standard deviation of 0.0005; five of them come once in 2 million runs."""
    rng, n = np.random.default_rng(0), 200_000
    weights, stddevs = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.01, 0.1, 1.0, 5.0])
    width = Mixture.of(weights, stddevs).half_width(0.95, 0.2, np.array(laplace))
    noise = rng.normal(scale=0.2, size=n) + sum(rng.laplace(scale=each, size=n) for each in laplace if each)
    errors = rng.choice(stddevs, size=n, p=weights) * rng.normal(size=n) + noise
    assert (np.abs(errors) <= width).mean() == pytest.approx(0.95, abs=0.0025)
    of_the_same_variance = half_width(0.95, float(np.hypot(0.2, Mixture.of(weights, stddevs).stddev)), laplace)
    assert abs((np.abs(errors) <= of_the_same_variance).mean() - 0.95) > 0.005  # which the test would notice


def test_parts_that_are_put_together_keep_the_variance():
    rng = np.random.default_rng(1)
    weights, stddevs = rng.random(500), rng.gamma(1.0, size=500)
    found = Mixture.of(weights, stddevs)
    assert len(found.weights) <= 8
    assert found.weights.sum() == pytest.approx(1)
    assert found.stddev**2 == pytest.approx(weights @ np.square(stddevs) / weights.sum())
    assert found.times(2.0).stddev == pytest.approx(2 * found.stddev)
    assert found.and_normal(3.0).stddev == pytest.approx(np.hypot(3.0, found.stddev))
