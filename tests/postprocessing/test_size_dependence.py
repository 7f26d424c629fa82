"""What released counts and sums by size class say: no more than they can."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.postprocessing.class_counts import _shapes, class_counts, likely_counts
from apportion.postprocessing.size_dependence import (
    SizeClasses,
    Tilt,
    balanced_tilt,
    class_means,
    first_guess,
    usual_distance,
)

EDGES = 2.0 ** np.arange(11)
SIZES = EDGES * math.sqrt(2)
COUNTS = np.array([7.0, 9, 18, 27, 37, 48, 2, 0, 0, 0, 0])  # primary schools


def sums_of(classes, means):
    """Sums of z and of 1 - z without noise."""
    return classes.counts * means, classes.counts * (1 - means)


def slope_of(found, classes):
    return float(np.polyfit(classes.octaves, found.values, 1, w=np.sqrt(classes.counts))[0])


def test_sums_that_are_all_noise_do_not_make_a_slope_steeper_than_means_can_have():
    classes = SizeClasses(COUNTS, SIZES, 13.0)
    noise = 60.0 * np.linspace(-1, 1, 11)
    found = class_means(COUNTS / 2 + noise, COUNTS / 2 - noise, 100.0, classes)
    assert 0 < slope_of(found, classes) < 0.1


def test_a_slope_within_its_noise_is_hardly_believed_and_a_clear_one_is():
    classes = SizeClasses(50 * COUNTS, SIZES, 1.0)
    sums = sums_of(classes, 0.5 + 0.02 * classes.octaves)
    assert slope_of(class_means(*sums, 1.0, classes), classes) == pytest.approx(0.02, rel=0.1)
    assert abs(slope_of(class_means(*sums, 1e8, classes), classes)) < 0.001


def test_means_of_classes_that_are_well_known_need_not_lie_on_a_line():
    classes = SizeClasses(50 * COUNTS, SIZES, 1.0)
    means = np.where(SIZES > 16, 0.6, 0.3)
    found = class_means(*sums_of(classes, means), 1.0, classes)
    assert found.values[:6] == pytest.approx(means[:6], abs=0.01)
    change, unsure = found.correction(classes, 7.0)
    assert change == pytest.approx((classes.shares() - classes.shares(7.0)) @ means, abs=0.003)
    assert 0 < unsure.stddev < 0.02


def test_a_cap_that_cuts_nothing_changes_nothing_and_leaves_no_doubt():
    classes = SizeClasses(COUNTS, SIZES, 13.0)
    found = class_means(*sums_of(classes, 0.5 + 0.02 * classes.octaves), 100.0, classes)
    change, unsure = found.correction(classes, 1e6)
    assert (change, unsure.stddev) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert found.correction(classes, 1.0)[1].stddev > found.correction(classes, 15.0)[1].stddev > 0


def test_shapes_average_to_the_counts_and_agree_where_there_is_no_noise():
    noisy = COUNTS + np.array([4.0, -12, 6, 3, -9, 15, 2, 5, -8, 11, -3])
    found = likely_counts(noisy, 13.0, "sizes")
    assert found.weights.sum() == pytest.approx(1)
    assert (found.each >= 0).all()
    assert found.weights @ found.each == pytest.approx(found.mean, abs=1.0)
    assert (class_counts(noisy, 13.0, "sizes") == found.mean).all()
    exact = likely_counts(COUNTS, 1e-6, "sizes")
    assert exact.each == pytest.approx(np.broadcast_to(COUNTS, exact.each.shape), abs=1e-3)


def test_less_of_the_tail_of_a_power_law_is_lost_in_the_noise(monkeypatch):
    counts = 1000 * 0.435 ** np.arange(11)  # as many as users with Pareto sizes of exponent 1.2 have in each octave
    found = class_counts(counts, 15.0, "sizes")[6:].sum()
    monkeypatch.setattr("apportion.postprocessing.class_counts._RARE", 1e6)  # without shapes of a power law
    _shapes.cache_clear()
    lost = class_counts(counts, 15.0, "sizes")[6:].sum()
    _shapes.cache_clear()
    assert found > 4 * lost


def test_the_noise_of_a_large_cap_is_not_taken_from_the_average_shape_alone():
    shapes = likely_counts(COUNTS + np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 30.0, 0]), 13.0, "sizes")
    classes = SizeClasses(shapes.mean, SIZES, 13.0, shapes)
    weights, totals, _ = classes.likely(1023.0)
    assert weights @ totals**-2 > 1.2 * classes.total(1023.0) ** -2


def test_large_users_whom_the_noise_may_hide_widen_an_interval():
    noisy = np.array([380.0, 390, 300, 190, 70, 25, -10, 5, 0, -12, 8])
    shapes = likely_counts(noisy, 26.0, "sizes")
    hidden, counted = (SizeClasses(shapes.mean, SIZES, 26.0, each) for each in (shapes, None))
    found = class_means(*sums_of(counted, np.full(11, 0.5)), 200.0, counted)
    assert found.correction(hidden, 15.0)[1].stddev > 1.2 * found.correction(counted, 15.0)[1].stddev


def test_a_tilt_is_0_for_users_who_are_all_alike_and_shows_a_slope_that_sums_by_class_hide():
    classes = SizeClasses(4 * COUNTS, SIZES, 13.0)
    clips = usual_distance(0.5, SIZES)
    weights = balanced_tilt(classes, clips)
    assert classes.counts @ weights == pytest.approx(0, abs=1e-6)
    assert (np.abs(weights) * clips <= 1 + 1e-12).all()
    assert (np.diff(weights * clips) >= -1e-12).all()
    means = 0.5 + 0.03 * classes.octaves
    sums = sums_of(classes, means)
    guess = first_guess(*sums, 1e4, classes.counts)
    tilt = Tilt(weights, float(classes.counts @ (weights * (means - guess))), 1.0)
    assert abs(slope_of(class_means(*sums, 1e4, classes), classes)) < 0.003
    assert slope_of(class_means(*sums, 1e4, classes, tilt), classes) == pytest.approx(0.03, rel=0.2)
