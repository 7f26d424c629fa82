"""What released counts and sums by size class say: no more than they can."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.postprocessing.class_counts import class_counts, likely_counts
from apportion.postprocessing.size_dependence import SizeClasses, fitted_line

EDGES = 2.0 ** np.arange(11)
SIZES = EDGES * math.sqrt(2)
COUNTS = np.array([7.0, 9, 18, 27, 37, 48, 2, 0, 0, 0, 0])  # primary schools


def test_sums_that_are_all_noise_do_not_make_a_slope_steeper_than_means_can_have():
    classes = SizeClasses(COUNTS, SIZES, 13.0)
    line = fitted_line(60.0 * np.linspace(-1, 1, 11), 100.0, classes)
    assert 0 < line.slope < 0.3


def test_a_slope_within_its_noise_is_hardly_believed_and_a_clear_one_is():
    classes = SizeClasses(50 * COUNTS, SIZES, 1.0)
    sums = 50 * COUNTS * 0.02 * classes.octaves
    assert fitted_line(sums, 1.0, classes).slope == pytest.approx(0.02, rel=0.1)
    assert abs(fitted_line(sums, 1e8, classes).slope) < 0.001


def test_shapes_average_to_the_counts_and_agree_where_there_is_no_noise():
    noisy = COUNTS + np.array([4.0, -12, 6, 3, -9, 15, 2, 5, -8, 11, -3])
    found = likely_counts(noisy, 13.0, "sizes")
    assert found.weights.sum() == pytest.approx(1)
    assert (found.each >= 0).all()
    assert found.weights @ found.each == pytest.approx(found.mean, abs=1.0)
    assert (class_counts(noisy, 13.0, "sizes") == found.mean).all()
    exact = likely_counts(COUNTS, 1e-6, "sizes")
    assert exact.each == pytest.approx(np.broadcast_to(COUNTS, exact.each.shape), abs=1e-3)


def test_the_noise_of_a_large_cap_is_not_taken_from_the_average_shape_alone():
    shapes = likely_counts(COUNTS + np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 30.0, 0]), 13.0, "sizes")
    classes = SizeClasses(shapes.mean, SIZES, 13.0, shapes)
    weights, totals, _ = classes.likely(1023.0)
    assert weights @ totals**-2 > 1.2 * classes.total(1023.0) ** -2
