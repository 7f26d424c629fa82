"""Distances of users' sums say how much users of one size differ."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.postprocessing.size_dependence import OF_ROWS, OF_USERS
from apportion.postprocessing.size_strata import SizeStrata
from apportion.postprocessing.slope_priors import DOUBTED
from apportion.postprocessing.user_spreads import UserDistances

EDGES = 2.0 ** np.arange(7)
CAPS = 2 * EDGES - 1
SIZES = np.sqrt(EDGES * CAPS)
USERS = np.array([20.0, 60, 150, 200, 120, 40, 10])
STRATA = SizeStrata.below(CAPS, 5)
SPREADS = np.array([0.5, 2.0, 6.0, 30.0])


def distances(spread, users=USERS, stddev=1.0, noise=0.0):
    """Normal users with this spread around the centre, counted by octave."""
    rng = np.random.default_rng(5)
    furthest = 0.6 * STRATA.bounds
    counts = np.zeros((len(furthest), 7))
    for each, size, stratum in zip(users.astype(int), SIZES, STRATA.of_class, strict=True):
        away = np.abs(rng.normal(0, np.sqrt(spread * OF_USERS + OF_ROWS / size), each)) * min(size, STRATA.cap)
        octave = 6 + np.floor(np.log2(np.minimum(away / furthest[stratum], 0.999)) + 1).astype(int)
        np.add.at(counts[stratum], np.maximum(octave, 0), 1.0)
    return UserDistances(np.maximum(counts + noise, 0.0), stddev, furthest)


@pytest.mark.parametrize("place", range(4))
def test_the_spread_that_users_have_fits_best(place):
    fits = distances(SPREADS[place]).log_fits(USERS, SIZES, STRATA, SPREADS)
    assert int(np.argmax(fits)) == place


def test_noise_makes_distances_tell_less():
    few = USERS / 8
    each = (distances(30.0, few, stddev).log_fits(few, SIZES, STRATA, SPREADS) for stddev in (0.01, 10.0))
    clear, noisy = (fits[3] - fits[0] for fits in each)
    assert 0 < noisy < 0.9 * clear


def test_strata_without_users_tell_nothing():
    fits = distances(6.0).log_fits(USERS / 1000, SIZES, STRATA, SPREADS)
    np.testing.assert_array_equal(fits, 0.0)


def test_numbers_without_bounds_are_finite():
    for huge in (0.0, 1e12):
        told = UserDistances(np.full((len(STRATA.bounds), 7), huge), 1.0, STRATA.bounds)
        assert np.isfinite(told.log_fits(USERS * 1e10, SIZES, STRATA, SPREADS)).all()


def test_covariances_of_doubted_priors_have_no_negative_eigenvalue():
    places = np.arange(31.0)
    found = DOUBTED.covariances(np.ones((1, 31)) * 1e9, 2.0**places, 2)
    assert np.linalg.eigvalsh(found[..., :31, :31]).min() > 0
    np.testing.assert_allclose(DOUBTED.likely.sum(), 1)


def test_slopes_bends_and_turns_are_in_proportion_to_what_users_differ():
    apart = np.sqrt(DOUBTED.spreads)
    for each in (DOUBTED.bent, DOUBTED.wanders):
        assert np.ptp(each / apart) == pytest.approx(0, abs=1e-12)
    assert DOUBTED.slopes.max() / DOUBTED.slopes.min() == pytest.approx(np.sqrt(60) * 1.0 / 0.03)
