"""Exposures from the statistics of a task: against a truth that is known because we drew it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.postprocessing import empirical_bayes, evidence
from apportion.postprocessing.exposure_told import FirstKnown, told, with_likely_spread
from apportion.postprocessing.popularity import Exposure

N, SLOPE, SPREAD = 4000, 0.8, 0.09
START = empirical_bayes.Prior(np.zeros((1, 1)), np.array([[SPREAD]]))


class Tasks:
    """Tasks whose exposure is known with a relative error of 0.7, and rounds around what was learned before."""

    def __init__(self, seed, spread=SPREAD):
        self.rng = np.random.default_rng(seed)
        self.theta = np.sqrt(spread) * self.rng.standard_normal(N)
        believed = self.rng.uniform(5, 40, N)
        self.true = believed * self.rng.gamma(2.0, 0.5, N)
        self.exposure = Exposure(believed, believed**2 / 2, np.zeros(N))

    def after_rounds(self, noises, *, learn):
        """Return the evidence of all rounds, with exposures as they tell if `learn`, and what is known after them."""
        around, known, rounds, design = np.zeros((N, 1)), None, [], SLOPE * np.eye(1)
        for noise in noises:
            released = (self.true * SLOPE * (self.theta - around[:, 0]) + noise * self.rng.standard_normal(N))[:, None]
            shifted = released + self.exposure.total[:, None] * SLOPE * around
            rounds.append(evidence.RoundEvidence(shifted, design, np.array([noise]), 0.0, 1.0, SLOPE * around))
            given = evidence.combine(rounds, self.exposure, 0.0)
            if learn and known is not None:
                before = FirstKnown(known.expected[:, 0], SPREAD, known.mean[:, 0], known.variance[:, 0])
                given = told(given, before)
            known = empirical_bayes.fit(given, np.ones((N, 1)), START, 1)
            around = known.mean
        return given, known


def error_of(theta, known):
    return float(np.square(known.mean[:, 0] - theta).mean())


@pytest.mark.parametrize(("noises", "gain"), [((6.0, 4.0, 3.0), 0.93), ((4.0, 2.0, 1.0), 0.75), ((1.0, 0.5, 0.5), 0.3)])
def test_errors_are_smaller_and_known(noises, gain):
    """The more so the less the noise: without it, only uncertain exposures are left as a source of errors."""
    _, before = Tasks(0).after_rounds(noises, learn=False)
    _, after = Tasks(0).after_rounds(noises, learn=True)
    theta = Tasks(0).theta
    assert error_of(theta, after) < gain * error_of(theta, before)
    assert after.variance.mean() == pytest.approx(error_of(theta, after), rel=0.35)


def test_exposures_come_nearer_to_the_truth():
    tasks = Tasks(1)
    given, _ = tasks.after_rounds((4.0, 2.0, 1.0), learn=True)
    before, after = (np.square(each - tasks.true).mean() for each in (tasks.exposure.total, given.exposure))
    assert after < 0.75 * before


@pytest.mark.parametrize("spread", [0.01, 0.09, 0.8])
@pytest.mark.parametrize("believed", [0.02, 0.5])
def test_the_variance_among_tasks_is_found_whatever_was_believed(spread, believed):
    tasks = Tasks(4, spread)
    given, known = tasks.after_rounds((3.0, 2.0), learn=False)
    before = FirstKnown(np.zeros(N), believed, known.mean[:, 0], known.variance[:, 0])
    found = with_likely_spread(given, before)
    assert found.spread == pytest.approx(spread, rel=0.35)
    noise = replace(given, noise_variance=np.full(1, 1e12), moves=np.zeros((N, 2)))
    assert with_likely_spread(noise, before).spread == pytest.approx(0.17, rel=0.1)  # of a log-normal around 0.1
    assert with_likely_spread(replace(given, around=None), before) is before
    assert with_likely_spread(given, replace(before, expected=np.full(N, np.nan))).spread == believed


def test_a_prior_mean_that_followed_the_noise_tells_nothing_of_exposures_but_what_rounds_do():
    tasks = Tasks(5)
    given, known = tasks.after_rounds((3.0, 2.0, 1.5), learn=False)
    one, other = (
        FirstKnown(expected, SPREAD, known.mean[:, 0], known.variance[:, 0], by_features=True)
        for expected in (known.mean[:, 0], np.zeros(N))
    )
    found = told(given, one)
    before, after = (np.square(each.exposure - tasks.true).mean() for each in (given, found))
    assert after < 0.98 * before
    np.testing.assert_array_equal(told(given, other).exposure, found.exposure)
    assert with_likely_spread(given, one).spread == 0.17


def test_a_known_exposure_stays_and_so_does_all_if_numbers_are_not_finite():
    tasks = Tasks(2)
    given, known = tasks.after_rounds((4.0, 3.0), learn=False)
    before = FirstKnown(known.expected[:, 0], SPREAD, known.mean[:, 0], known.variance[:, 0])
    sure = told(replace(given, exposure_variance=np.zeros(N)), before)
    np.testing.assert_allclose(sure.exposure, given.exposure, rtol=0.01)
    assert (sure.exposure_variance < 1e-4 * np.square(given.exposure)).all()
    absurd = told(given, replace(before, expected=np.full(N, np.inf)))
    np.testing.assert_array_equal(absurd.exposure, given.exposure)
    np.testing.assert_array_equal(absurd.exposure_variance, given.exposure_variance)
    np.testing.assert_array_equal(absurd.statistics, given.statistics)
    assert told(replace(given, around=None), before).exposure is given.exposure


def test_rounds_are_pooled_with_the_parameters_that_their_residuals_were_around():
    """Whatever the exposure, the pooled statistics are those of rounds that were formed with it."""
    rng = np.random.default_rng(3)
    released, centres = rng.standard_normal((2, 5, 1)), rng.standard_normal((2, 5, 1))
    right, wrong = (Exposure(t, np.zeros(5), t) for t in (np.arange(1.0, 6.0), np.full(5, 2.0)))
    pooled = []
    for exposure in (right, wrong):
        rounds = [
            evidence.RoundEvidence(
                r + exposure.total[:, None] * 0.5 * c, 0.5 * np.eye(1), np.ones(1), 0.0, 1.0, 0.5 * c
            )
            for r, c in zip(released, centres, strict=True)
        ]
        pooled.append(evidence.combine(rounds, exposure, 1.0))
    moved = pooled[1].statistics + (right.total - wrong.total)[:, None] * pooled[1].around
    np.testing.assert_allclose(moved, pooled[0].statistics)
