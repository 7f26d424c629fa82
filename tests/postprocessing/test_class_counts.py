"""How many users are in each class, from noisy numbers: lengths of users' vectors that end, and users far from most."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.postprocessing.class_counts import class_counts

CLASSES, USERS, STDDEV = 41, 3000, 19.0


def by_class(octaves):
    return np.bincount(np.floor(2 * octaves).astype(int) + 6, minlength=CLASSES).astype(float)


def users_found_beyond(lengths, kind):
    """How many users are found beyond the largest length, on average over 40 draws of the noise."""
    true, rng = by_class(np.log2(lengths)), np.random.default_rng(1)
    last = int(np.flatnonzero(true)[-1])
    noisy = true + STDDEV * rng.standard_normal((40, CLASSES))
    return float(np.mean([class_counts(each, STDDEV, kind)[last + 1 :].sum() for each in noisy]))


def test_hardly_any_user_is_found_beyond_lengths_that_end():
    lengths = np.sqrt(np.random.default_rng(0).integers(1, 41, USERS))
    assert users_found_beyond(lengths, "lengths") < 0.6 * users_found_beyond(lengths, "distances")


def test_long_tails_of_lengths_are_found_as_before():
    lengths = np.exp(np.random.default_rng(0).normal(1, 0.8, USERS)).clip(1, 500)
    noisy = by_class(np.log2(lengths)) + STDDEV * np.random.default_rng(1).standard_normal(CLASSES)
    one, other = (class_counts(noisy, STDDEV, kind) for kind in ("lengths", "distances"))
    assert np.abs(one - other).max() < 0.01 * USERS


def test_two_hundred_users_of_many_rows_are_not_taken_for_noise():
    noisy = by_class(np.log2(np.full(USERS, 3.0)))
    noisy[24] = 6 * STDDEV
    assert class_counts(noisy, STDDEV, "lengths")[24] > 30 > class_counts(noisy, STDDEV, "distances")[24]


@pytest.mark.parametrize(("kind", "laplace"), [("lengths", False), ("norms", True)])
def test_a_long_tail_beyond_many_users_of_one_row_is_found(kind, laplace):
    """It is two to five deviations of noise in each of eight classes, and has most of the rows."""
    true, rng = by_class(np.log2(np.minimum(np.random.default_rng(0).zipf(1.7, USERS), 50))), np.random.default_rng(1)
    noise = rng.laplace(0, STDDEV / np.sqrt(2), (20, CLASSES)) if laplace else rng.normal(0, STDDEV, (20, CLASSES))
    rows = 2.0 ** (np.arange(CLASSES) / 2 - 3)
    found = [class_counts(true + each, STDDEV, kind, laplace=laplace) @ rows / (true @ rows) for each in noise]
    assert 0.8 < np.mean(found) < 1.15
    assert np.min(found) > 0.65


@pytest.mark.parametrize(("kind", "laplace"), [("lengths", False), ("norms", True)])
def test_no_tail_is_found_where_there_is_none(kind, laplace):
    true, rng = by_class(np.zeros(USERS)), np.random.default_rng(1)
    noise = rng.laplace(0, STDDEV / np.sqrt(2), (200, CLASSES)) if laplace else rng.normal(0, STDDEV, (200, CLASSES))
    found = [class_counts(true + each, STDDEV, kind, laplace=laplace)[14:].sum() for each in noise]
    assert np.max(found) < 1.0


def test_a_cluster_of_noise_far_beyond_all_users_is_not_taken_for_users():
    """As drawn once in 600 releases; a wrong shape there costs noise of billions of rows."""
    noisy = np.zeros(41)
    noisy[1:9] = [6, 81, 175, 296, 469, 504, 198, 34]
    noisy[37:] = [41, 70, 48, 20]
    assert class_counts(noisy, 17.7, "norms", laplace=True)[12:].sum() < 1.0


WHOLE = np.array([*range(1, 8), *(2.0 ** (k / 2) for k in range(6, 35))])  # of L1 norms that are whole numbers


def rows_found(sizes, *, stddev, draws=40):
    """Rows that are found over those there are, for each draw of Laplace noise in numbers of users by whole norm."""
    true = np.bincount(np.searchsorted(WHOLE, sizes, side="right") - 1, minlength=len(WHOLE)).astype(float)
    noise = np.random.default_rng(1).laplace(0, stddev / np.sqrt(2), (draws, len(WHOLE)))
    return np.array([class_counts(true + each, stddev, "whole norms", laplace=True) @ WHOLE for each in noise]) / (
        true @ WHOLE
    )


@pytest.mark.parametrize(
    "sizes",
    [
        np.minimum(np.random.default_rng(0).zipf(1.7, USERS), 50),
        np.rint(np.exp(np.random.default_rng(0).normal(1.0, 1.5, USERS))).clip(1, 500),
        np.random.default_rng(0).geometric(0.1, USERS),
    ],
    ids=["power law", "log-normal", "geometric"],
)
def test_long_tails_of_whole_norms_are_found_through_laplace_noise(sizes):
    found = rows_found(sizes, stddev=STDDEV)
    assert 0.8 < found.mean() < 1.25
    assert found.min() > 0.6
    assert found.max() < 1.5


def test_a_tenth_of_all_users_with_thirty_rows_is_not_taken_for_noise():
    """They stand out by sixteen deviations of Laplace noise."""
    found = rows_found(np.repeat([1, 30], [2700, 300]), stddev=STDDEV)
    assert found.min() > 0.8


def test_whole_norms_that_end_have_no_tail_in_five_hundred_draws():
    found = rows_found(np.random.default_rng(0).integers(1, 7, USERS), stddev=STDDEV, draws=500)
    assert abs(found.mean() - 1) < 0.03
    assert found.max() < 1.5
