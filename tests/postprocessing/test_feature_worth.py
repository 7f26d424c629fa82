"""Which groups of features take part in a fit: false alarms and power, and what evidence at the edge does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom

from apportion.postprocessing import empirical_bayes, feature_prior
from apportion.postprocessing.empirical_bayes import Evidence
from apportion.postprocessing.feature_prior import FeaturePrior, Regressors
from apportion.postprocessing.feature_worth import worth_fitting
from postprocessing.test_feature_prior import problem

COVARIANCE = 0.1 * np.eye(2)


def found(**made):
    evidence, about, _ = problem(width=2, **made)
    return worth_fitting(evidence, about, COVARIANCE)


def test_groups_that_move_tasks_are_worth_it():
    """Power: effects of 0.1 on a noise of 1 are found in nine of ten problems."""
    seen = np.stack([found(seed=seed, effect=0.1)[0].any() for seed in range(30)])
    assert seen.sum() >= 27


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_worthless_groups_pass_as_often_as_stated(noise):
    """One in five: 320 tests, and a false alarm of this one in 1 of 1,000 runs on either side."""
    passed = np.concatenate([found(seed=seed, effect=0.0, noise=noise) for seed in range(80)])
    low, high = binom.ppf([0.0005, 0.9995], passed.size, 0.2)
    assert low - 0.03 * passed.size <= passed.sum() <= high + 0.03 * passed.size


def test_what_covariates_explain_is_no_reason_for_a_feature():
    """A feature that is half a covariate, which has a large effect on the tasks, and half chance."""
    passed = []
    for seed in range(20):
        evidence, about, _ = problem(seed=seed, width=2, effect=0.0)
        half = about.covariates[:, 1:] + np.random.default_rng(seed).standard_normal((400, 1))
        again = Regressors.of(about.covariates, csr_array(half), [1])
        passed.append(worth_fitting(evidence, again, COVARIANCE).any())
    assert sum(passed) <= 14  # of 20, with two tests each: 7.2 are expected, and more in 1 of 1,000 runs


def test_released_values_at_the_edge_stop_nothing():
    evidence, about, _ = problem(width=2)
    for value in (0.0, 1e15, 1e200):
        odd = replace(evidence, statistics=np.full_like(evidence.statistics, value))
        assert worth_fitting(odd, about, COVARIANCE).shape == (2, 2)
    alike = Regressors.of(np.ones((400, 2)), about.features, [8, 20])
    assert worth_fitting(evidence, alike, COVARIANCE)[0].any()  # covariates that are all the same


def test_a_prior_keeps_what_it_knows_of_the_groups_that_take_part():
    _, about, _ = problem(width=2)
    known = FeaturePrior.starting(about, 2, COVARIANCE, 0.01)
    grown = replace(known, variances=5 * known.variances)
    half = grown.with_groups(about, np.array([[True, False], [False, False]]), 0.01)
    np.testing.assert_array_equal(half.variances > 1e-7, [[True, False], [False, False]])
    assert half.variances[0, 0] == grown.variances[0, 0]
    assert half.has_effects.tolist() == [True, False]
    again = half.with_groups(about, np.full((2, 2), True), 0.01)
    assert again.variances[0, 0] == grown.variances[0, 0]
    np.testing.assert_array_equal(again.variances[1], known.variances[1])


def test_without_groups_a_fit_is_the_one_without_features():
    evidence, about, _ = problem(width=2)
    start = FeaturePrior.starting(about, 2, COVARIANCE, 0.01).with_groups(about, np.full((2, 2), False), 0.01)
    ours = feature_prior.fit(evidence, about, start, 7)
    theirs = empirical_bayes.fit(evidence, about.covariates, empirical_bayes.Prior(np.zeros((2, 2)), COVARIANCE), 7)
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    np.testing.assert_array_equal(ours.prior.coefficients[:2], theirs.prior.coefficients)
    assert not ours.prior.coefficients[2:].any()
    assert not ours.prior.has_effects.any()


def test_a_group_of_few_tasks_counts_like_any_other():
    """Every fourth task has a feature; all others have none."""
    rng = np.random.default_rng(0)
    few = csr_array((np.arange(400)[:, None] % 4 == 0).astype(float))
    truth = 0.3 * few.toarray()
    evidence = Evidence(
        20 * truth + rng.standard_normal((400, 1)), np.eye(1), np.full(400, 20.0), np.zeros(400), np.zeros(400),
        np.ones(1),
    )  # fmt: skip
    assert worth_fitting(evidence, Regressors.of(np.ones((400, 1)), few, [1]), 0.1 * np.eye(1)).all()
