"""What sums by size class and by stratum say of a mean over rows: no more than they can."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.postprocessing.class_counts import LikelyCounts, likely_counts
from apportion.postprocessing.size_dependence import SizeClasses
from apportion.postprocessing.size_strata import SizeStrata
from apportion.postprocessing.slope_priors import EXPECTED
from apportion.postprocessing.stratified_means import CentredSums, Shapes, pooled_mean, predicted_error

EDGES = 2.0 ** np.arange(11)
CAPS = 2 * EDGES - 1
SIZES = np.sqrt(EDGES * CAPS)
COUNTS = np.array([7.0, 9, 18, 27, 37, 48, 2, 0, 0, 0, 0])  # primary schools
STRATA = SizeStrata.below(CAPS, 4)
LINE = 0.5 + 0.02 * (np.log2(SIZES) - 4)


def shapes_of(counts):
    """One shape, known for sure."""
    one = LikelyCounts(counts, counts[None], np.ones(1))
    return Shapes.of(SizeClasses(counts, SIZES, 0.0, one), one)


def pooled(means, counts=COUNTS, of_classes=1e-4, of_strata=1e-4, moved=0.0, shapes=None, laplace=True):
    """The mean of sums without noise, said to have these variances; the first stratum's high sum is moved."""
    weights = STRATA.weights(counts, SIZES)
    by_class = CentredSums.of_both(counts * means, counts * (1 - means), np.full(11, of_classes))
    high, low = weights @ means + np.array([moved, 0.0]), weights @ (1 - means)
    by_stratum = CentredSums.of_both(high, low, np.full(len(weights), of_strata))
    return pooled_mean(shapes or shapes_of(counts), STRATA, by_class, by_stratum, 0.5, laplace=laplace)


def mean_of(means, counts=COUNTS):
    return float(counts * SIZES @ means / (counts @ SIZES))


def test_strata_are_neighbouring_octaves_and_weights_stay_within_their_bounds():
    assert STRATA.of_class.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert STRATA.bounds.tolist() == [31.0, 3.0]
    assert SizeStrata.below(CAPS, 10).bounds.tolist() == [2047.0, 255.0, 31.0]
    assert SizeStrata.below(CAPS, 0).bounds.tolist() == [1.0]
    each = STRATA.weights(np.ones(11), SIZES)
    assert (each <= STRATA.bounds[:, None]).all()
    assert each.sum(axis=0) == pytest.approx(np.minimum(SIZES, 31.0))


@pytest.mark.parametrize(
    "means", [np.full(11, 0.5), LINE, np.where(SIZES > 16, 0.6, 0.3)], ids=["flat", "line", "step"]
)
def test_sums_with_little_noise_tell_the_mean_over_rows_though_large_users_are_capped(means):
    many = 50 * COUNTS
    found = pooled(means, many)
    assert found.value == pytest.approx(mean_of(means, many), abs=3e-3)
    assert abs(found.value - mean_of(means, many)) < 2 * found.unsure.stddev + 1e-4


def test_a_line_that_only_the_strata_show_is_followed_beyond_the_cap():
    many, steep = 50 * COUNTS, 0.5 + 0.05 * (np.log2(SIZES) - 4)
    weights = STRATA.weights(many, SIZES)
    capped, truth = float(weights.sum(axis=0) @ steep / weights.sum()), mean_of(steep, many)
    found = pooled(steep, many, of_classes=1e6)
    assert truth - capped > 0.005
    assert abs(found.value - truth) < (truth - capped) / 2


def test_where_large_users_are_lost_in_noise_the_mean_of_small_ones_counts_and_the_interval_is_wider():
    clear, lost = (pooled(np.full(11, 0.4), of_strata=variance) for variance in (1e-4, 1e6))
    assert lost.value == pytest.approx(0.4, abs=0.02)
    assert lost.unsure.stddev > 1.5 * clear.unsure.stddev
    assert lost.noise.sum() < 0.01  # sums that say nothing are not used


def test_a_sum_far_from_all_others_counts_less_if_its_noise_is_laplace_noise():
    moves = [
        abs(pooled(LINE, of_classes=0.25, of_strata=2500.0, moved=1200.0, laplace=laplace).value - mean_of(LINE))
        for laplace in (True, False)
    ]
    assert moves[0] < 0.8 * moves[1]


def test_the_factors_of_noise_are_those_by_which_sums_move_the_mean():
    at, moved = (pooled(LINE, of_strata=100.0, moved=each, laplace=False) for each in (0.0, 1.0))
    factor = (moved.value - at.value) / (1 - at.value)  # a high sum moves the distance from the mean by so much
    assert at.noise[0] == pytest.approx(factor * np.sqrt(50.0 + 200.0 * (at.value - 0.5) ** 2), rel=0.05)


def test_large_users_whom_the_noise_may_hide_widen_an_interval():
    noisy = np.array([380.0, 390, 300, 190, 70, 25, -10, 5, 0, -12, 8])
    likely = likely_counts(noisy, 26.0, "sizes")
    hidden = Shapes.of(SizeClasses(likely.mean, SIZES, 26.0, likely), likely)
    shown = replace(hidden, counts=likely.mean[None], weights=np.ones(1))
    steep = 0.5 + 0.05 * (np.log2(SIZES) - 3)
    wide, narrow = (pooled(steep, likely.mean, 300.0, 1000.0, shapes=each).unsure.stddev for each in (hidden, shown))
    assert wide > 1.2 * narrow


def test_released_weights_tell_shapes_apart_and_move_counts_to_them():
    both = Shapes(np.stack([COUNTS, COUNTS[::-1]]), np.array([0.5, 0.5]), SIZES, 25.0)
    released = STRATA.weights(COUNTS, SIZES).sum(axis=1)
    found = both.with_weights(STRATA, 1.1 * released, np.full(2, 0.1))
    assert found.weights[0] > 0.99
    assert STRATA.weights(found.counts[0], SIZES).sum(axis=1) == pytest.approx(1.1 * released, rel=0.01)


def test_less_error_is_expected_of_less_noise_and_a_cap_is_a_trade():
    shapes = shapes_of(10 * COUNTS)

    def errors(noise):
        tried = [SizeStrata.below(CAPS, last) for last in range(8)]
        return np.array([predicted_error(shapes, each, 400.0, np.square(noise * each.bounds)) for each in tried])

    assert (errors(1.0) < errors(30.0)).all()
    assert np.argmin(errors(1.0)) > np.argmin(errors(30.0))


def test_a_stratum_tells_its_own_mean_though_its_users_are_not_spread_as_the_shape_says():
    """Steep means, and more large users in the first stratum than the counts say, which its sum shows."""
    steep, true = 0.5 + 0.1 * (np.log2(SIZES) - 4), 50 * COUNTS
    said = true * np.where(STRATA.of_class == 0, 1 + 0.2 * (3.5 - np.arange(11)).clip(-1, 1), 1.0)
    weights = STRATA.weights(true, SIZES)
    said *= (weights[0].sum() / STRATA.weights(said, SIZES)[0].sum()) ** (STRATA.of_class == 0)
    by_class = CentredSums.of_both(said * steep, said * (1 - steep), np.full(11, 1e6))
    by_stratum = CentredSums.of_both(weights @ steep, weights @ (1 - steep), np.full(2, 1e-4))
    found = pooled_mean(shapes_of(said), STRATA, by_class, by_stratum, 0.5, laplace=True)
    assert abs(found.value - mean_of(steep, true)) < abs(mean_of(steep, said) - mean_of(steep, true)) / 2


def test_more_is_feared_where_few_users_differ_more_than_usual():
    few = COUNTS / 6
    unlike = np.where(np.arange(11) % 2, 0.25, 0.75)
    narrow, wide = (pooled(means, few, 1.0, 1.0).unsure.stddev for means in (np.full(11, 0.5), unlike))
    assert wide > 1.5 * narrow


def test_sums_by_class_tell_which_slopes_are_likely():
    shapes = shapes_of(20 * COUNTS)
    fits = [
        shapes.log_fits(CentredSums.of_both(20 * COUNTS * means, 20 * COUNTS * (1 - means), np.full(11, 1.0)), 0.5)
        for means in (np.full(11, 0.5), 0.5 + 0.08 * (np.log2(SIZES) - 4))
    ]
    flat, steep = (EXPECTED.given(each) for each in fits)
    assert flat.likely @ flat.slopes < 0.01 < 0.03 < steep.likely @ steep.slopes
    assert flat.likely.sum() == pytest.approx(1)


def test_users_beyond_the_cap_who_may_not_be_counted_matter_where_slopes_are_steep():
    shapes = replace(shapes_of(COUNTS), of_counts=100.0)
    assert shapes.uncounted(np.inf, EXPECTED.slopes) == pytest.approx(0.0)
    few, many = shapes.uncounted(31.0, np.array([0.1])), shapes.uncounted(7.0, np.array([0.1]))
    assert 0 < few < many
