"""The prior mean from features: recovers what generated the data, against direct solutions and known truths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from apportion.postprocessing import empirical_bayes, feature_prior, feature_rows, low_rank
from apportion.postprocessing.empirical_bayes import Evidence
from apportion.postprocessing.feature_prior import FeaturePrior, Regressors


def problem(seed=0, n_tasks=400, width=3, effect=0.6, noise=1.0):
    """Tasks whose parameters are features times coefficients plus a little of their own; exposures differ widely."""
    rng = np.random.default_rng(seed)
    useful = rng.random((n_tasks, 8)) < 0.25
    useless = rng.random((n_tasks, 20)) < 0.1
    features = csr_array(np.concatenate([useful, useless], axis=1).astype(float))
    covariates = np.stack([np.ones(n_tasks), rng.standard_normal(n_tasks)], axis=1)
    coefficients = np.zeros((28, width))
    coefficients[:8] = effect * rng.standard_normal((8, width))
    truth = covariates @ np.full((2, width), 0.3) + features @ coefficients
    truth += 0.1 * rng.standard_normal(truth.shape)
    exposure = np.exp(rng.normal(0, 1.5, n_tasks))
    design = np.eye(width) + 0.2
    statistics = exposure[:, None] * (truth @ design.T) + noise * rng.standard_normal(truth.shape)
    zeros = np.zeros(n_tasks)
    evidence = Evidence(statistics, design, exposure, zeros, zeros, np.full(width, noise**2))
    return evidence, Regressors.of(covariates, features, [8, 20]), truth


def test_rare_tasks_come_closer_to_their_truth_than_without_features():
    evidence, about, truth = problem()
    start = FeaturePrior.starting(about, 3, 0.1 * np.eye(3), 0.05)
    ours = feature_prior.fit(evidence, about, start, 20)
    plain = empirical_bayes.Prior(np.zeros((2, 3)), 0.1 * np.eye(3))
    theirs = empirical_bayes.fit(evidence, about.covariates, plain, 20)
    rare = evidence.exposure < np.median(evidence.exposure)
    ours_error, their_error = (np.square(each.mean - truth)[rare].mean() for each in (ours, theirs))
    assert ours_error < 0.5 * their_error
    np.testing.assert_allclose(np.diag(ours.prior.covariance), 0.01, atol=0.02)


def test_a_group_that_explains_nothing_gets_the_smaller_variance():
    evidence, about, _ = problem(seed=1)
    found = feature_prior.fit(evidence, about, FeaturePrior.starting(about, 3, 0.1 * np.eye(3), 0.05), 30)
    useful, useless = found.prior.variances.mean(axis=1)
    assert useful > 10 * useless


def test_the_coefficients_solve_the_generalised_least_squares_they_are_said_to():
    evidence, about, _ = problem(seed=2, n_tasks=60, width=2)
    start = FeaturePrior.starting(about, 2, np.array([[0.2, 0.05], [0.05, 0.1]]), 0.05)
    found = feature_prior.fit(evidence, about, start, 1).prior.coefficients
    regressors = np.concatenate([about.covariates, about.features.toarray()], axis=1)
    penalty = np.concatenate([np.full((2, 2), 100.0), 1 / start.variances[about.groups]])
    left, right = np.diag(penalty.ravel()), np.zeros(penalty.size)
    for row, exposure, statistic in zip(regressors, evidence.exposure, evidence.statistics, strict=True):
        seen = exposure * np.kron(row, evidence.design)  # statistic = seen @ coefficients.ravel() + noise
        noise = exposure**2 * evidence.design @ start.covariance @ evidence.design.T + np.eye(2)
        left += seen.T @ np.linalg.solve(noise, seen)
        right += seen.T @ np.linalg.solve(noise, statistic)
    np.testing.assert_allclose(found.ravel(), np.linalg.solve(left, right), atol=2e-3)


def test_without_features_it_agrees_with_the_plain_prior():
    evidence, about, _ = problem(seed=3)
    nothing = Regressors.of(about.covariates, csr_array((400, 1)), [1])
    ours = feature_prior.fit(evidence, nothing, FeaturePrior.starting(nothing, 3, 0.1 * np.eye(3), 0.05), 200)
    start = empirical_bayes.Prior(np.zeros((2, 3)), 0.1 * np.eye(3))
    theirs = empirical_bayes.fit(evidence, about.covariates, start, 200)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=0.02)


def test_a_wide_group_of_useless_features_does_little_harm():
    evidence, about, truth = problem(seed=4)
    rng = np.random.default_rng(5)
    words = csr_array((rng.random((400, 3000)) < 0.01).astype(float))
    wide = Regressors.of(about.covariates, csr_array(np.concatenate([about.features.toarray(), words.toarray()], 1)),
                         [8, 20, 3000])  # fmt: skip
    errors = [
        np.square(
            feature_prior.fit(evidence, each, FeaturePrior.starting(each, 3, 0.1 * np.eye(3), 0.05), 20).mean - truth
        ).mean()
        for each in (wide, about)
    ]
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.parametrize("seed", range(3))
def test_rows_with_features_are_denoised_better_than_without(seed):
    rng = np.random.default_rng(seed)
    n_tasks, width = 500, 6
    features = csr_array((rng.random((n_tasks, 10)) < 0.3).astype(float))
    about = Regressors.of(np.ones((n_tasks, 1)), features, [10])
    spread = np.exp(rng.normal(0, 1, n_tasks))
    parameters = features @ rng.standard_normal((10, width)) + 0.2 * rng.standard_normal((n_tasks, width))
    truth = np.sqrt(spread / spread.mean())[:, None] * parameters
    noisy = truth + 2.0 * rng.standard_normal(truth.shape)
    ours = feature_rows.denoise_rows(noisy, 2.0, spread, about, 5)
    theirs = low_rank.denoise_rows(noisy, 2.0, spread, 5)
    errors = [np.square(each.mean - truth).mean() for each in (ours, theirs)]
    assert errors[0] < 0.7 * errors[1]
    assert (ours.resolved >= 0).all()
    assert (ours.resolved <= 1).all()


def test_the_ridge_of_known_values_finds_a_linear_map():
    rng = np.random.default_rng(0)
    features = csr_array((rng.random((600, 12)) < 0.3).astype(float))
    truth = rng.standard_normal((12, 2))
    values = 0.5 + features @ truth + 0.1 * rng.standard_normal((600, 2))
    found = feature_prior.ridge(values, Regressors.of(np.ones((600, 1)), features, [12]), 10)
    np.testing.assert_allclose(found[1:], truth, atol=0.06)
    np.testing.assert_allclose(found[0], 0.5, atol=0.06)


def test_a_system_that_rounding_left_without_curvature_ends_the_steps():
    start, ones = np.full((2, 1), 3.0), np.ones((2, 1))
    found = feature_prior._conjugate_gradients(lambda held: 0 * held, ones, start, ones)
    np.testing.assert_array_equal(found, start)
