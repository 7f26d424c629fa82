"""What released counts by size class say: no more than they can."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.postprocessing.class_counts import _shapes, class_counts, likely_counts
from apportion.postprocessing.size_dependence import SizeClasses

EDGES = 2.0 ** np.arange(11)
SIZES = EDGES * math.sqrt(2)
COUNTS = np.array([7.0, 9, 18, 27, 37, 48, 2, 0, 0, 0, 0])  # primary schools


@pytest.mark.parametrize("kind", ["sizes", "rough sizes"])
def test_shapes_average_to_the_counts_and_agree_where_there_is_no_noise(kind):
    noisy = COUNTS + np.array([4.0, -12, 6, 3, -9, 15, 2, 5, -8, 11, -3])
    found = likely_counts(noisy, 13.0, kind)
    assert found.weights.sum() == pytest.approx(1)
    assert (found.each >= 0).all()
    assert found.weights @ found.each == pytest.approx(found.mean, abs=1.0)
    assert (class_counts(noisy, 13.0, kind) == found.mean).all()
    exact = likely_counts(COUNTS, 1e-6, kind)
    assert exact.each == pytest.approx(np.broadcast_to(COUNTS, exact.each.shape), abs=1e-3)


def test_less_of_the_tail_of_a_power_law_is_lost_in_the_noise(monkeypatch):
    counts = 1000 * 0.435 ** np.arange(11)  # as many as users with Pareto sizes of exponent 1.2 have in each octave
    found = class_counts(counts, 15.0, "sizes")[6:].sum()
    monkeypatch.setattr("apportion.postprocessing.class_counts._RARE", 1e6)  # without shapes of a power law
    _shapes.cache_clear()
    lost = class_counts(counts, 15.0, "sizes")[6:].sum()
    _shapes.cache_clear()
    assert found > 4 * lost


@pytest.mark.parametrize("stddev", [5.0, 10.0])
def test_a_shape_that_is_a_little_wrong_for_many_users_makes_no_tail(stddev):
    """Movies of MovieLens 100K by numbers of ratings: beyond 512 there is one. Shapes alone had 18 and 5 more."""
    counts = np.array([141.0, 128, 198, 205, 227, 264, 266, 191, 61, 1, 0])
    noise = np.random.default_rng(0).normal(size=(20, 11)) * stddev
    found = np.array([class_counts(counts + each, stddev, "rough sizes") for each in noise])
    assert found[:, 9:].sum(axis=1).mean() < 12
    assert np.abs(found[:, :8] - counts[:8]).mean() < stddev


def test_the_noise_of_a_large_cap_is_not_taken_from_the_average_shape_alone():
    shapes = likely_counts(COUNTS + np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 30.0, 0]), 13.0, "sizes")
    classes = SizeClasses(shapes.mean, SIZES, 13.0, shapes)
    weights, totals, _ = classes.likely(1023.0)
    assert weights @ totals**-2 > 1.2 * classes.total(1023.0) ** -2
