"""Post-processing of released values: each estimator against a truth that is known because we drew it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.allocation.policies import ReleasedCounts, expected_of_normalised
from apportion.postprocessing import empirical_bayes, evidence, feature_prior, popularity
from apportion.postprocessing.feature_prior import FeaturePrior, Regressors
from apportion.postprocessing.low_rank import denoise_rows
from apportion.postprocessing.running import Belief, Beliefs


def long_tail(n=2000):
    return 300 * np.arange(1, n + 1) ** -0.9


def test_deconvolved_popularity_is_closer_than_noise_and_calibrated():
    rng = np.random.default_rng(0)
    truth, stddev = long_tail(), 5.0
    noisy = truth + stddev * rng.standard_normal(len(truth))
    found = popularity.posterior_popularity(noisy, stddev, ceiling=1000.0)
    error = found.mean - truth
    assert np.square(error).mean() < 0.25 * stddev**2
    assert found.mean.min() >= 0
    assert 0.5 < np.square(error).mean() / found.variance.mean() < 2.0


def test_popularity_without_noise_is_left_alone():
    truth = long_tail(200)
    found = popularity.posterior_popularity(truth + 0.0, 0.5, ceiling=1000.0)
    head = truth > 20
    np.testing.assert_allclose(found.mean[head], truth[head], rtol=0.1)


def test_exposure_agrees_with_the_weights_that_users_really_have():
    rng = np.random.default_rng(1)
    n_users, appeal = 3000, np.clip(long_tail(150) / 150, 0, 0.9)
    seen = rng.random((n_users, 150)) < appeal
    seen[:, 0] |= ~seen.any(axis=1)
    counts = seen / np.sqrt(seen.sum(axis=1, keepdims=True))
    truth = popularity.Popularity(counts.sum(axis=0), np.zeros(150))
    omega = truth.mean**-0.25
    weights = seen * omega
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    expected = expected_of_normalised(omega, ReleasedCounts(truth.mean, 0.0, n_users))
    found = popularity.exposure(truth, expected.total, expected.typical, n_users)
    np.testing.assert_allclose(found.total, weights.sum(axis=0), rtol=0.15)
    np.testing.assert_allclose(found.squares, np.square(weights).sum(axis=0), rtol=0.4)
    assert found.squares.sum() == pytest.approx(n_users)


def simulated_evidence(rng, n=3000, width=3):
    covariates = np.stack([np.ones(n), rng.standard_normal(n)], axis=1)
    coefficients = np.array([[0.2, 0.0, 0.0], [0.1, -0.1, 0.0]])
    root = np.diag([0.3, 0.2, 0.05])
    theta = covariates @ coefficients + rng.standard_normal((n, width)) @ root
    design = np.array([[1.0, 0.1, 0.0], [0.1, 0.5, 0.0], [0.0, 0.0, 0.5]])
    exposure = rng.gamma(1.0, 20.0, n) + 0.5
    noise = np.array([2.0, 3.0, 3.0])
    sampling = 0.5 * exposure
    errors = rng.standard_normal((n, width)) * noise
    errors += np.sqrt(sampling)[:, None] * rng.multivariate_normal(np.zeros(width), design, n)
    statistics = exposure[:, None] * (theta @ design.T) + errors
    given = empirical_bayes.Evidence(statistics, design, exposure, np.zeros(n), sampling, noise**2)
    return given, covariates, theta, (coefficients, root @ root)


def test_empirical_bayes_beats_the_plain_solve_and_the_prior_mean_and_knows_its_error():
    rng = np.random.default_rng(2)
    given, covariates, theta, (coefficients, covariance) = simulated_evidence(rng)
    start = empirical_bayes.Prior(np.zeros((2, 3)), 0.1 * np.eye(3))
    found = empirical_bayes.fit(given, covariates, start, steps=400)
    error = np.square(found.mean - theta).mean(axis=0)
    plain = np.linalg.solve(given.design, (given.statistics / given.exposure[:, None]).T).T
    assert (error < 0.5 * np.square(plain - theta).mean(axis=0)).all()
    from_prior = np.square(covariates @ coefficients - theta).mean(axis=0)  # the true prior, which nobody is told
    assert (error[:2] < 0.9 * from_prior[:2]).all()
    assert error[2] < 1.1 * from_prior[2]  # hardly any evidence: no better than the prior, and no worse
    np.testing.assert_allclose(error[:2], found.variance.mean(axis=0)[:2], rtol=0.25)
    np.testing.assert_allclose(np.diag(found.prior.covariance)[:2], np.diag(covariance)[:2], rtol=0.25)
    np.testing.assert_allclose(found.prior.coefficients, coefficients, atol=0.05)


def test_a_task_without_evidence_gets_what_its_covariates_predict():
    rng = np.random.default_rng(3)
    given, covariates, _, _ = simulated_evidence(rng)
    given.exposure[0] = 0.0
    given.statistics[0] = 50.0
    start = empirical_bayes.Prior(np.zeros((2, 3)), 0.1 * np.eye(3))
    found = empirical_bayes.fit(given, covariates, start, steps=20)
    np.testing.assert_allclose(found.mean[0], covariates[0] @ found.prior.coefficients, atol=1e-9)


def test_a_task_known_in_one_coordinate_is_estimated_as_if_the_others_were_nothing_but_noise():
    given, covariates, theta, _ = simulated_evidence(np.random.default_rng(5))
    given.design[0, 1] = given.design[1, 0] = 0.0  # as in rounds: the first coordinate says nothing of the others
    some = np.arange(len(theta)) % 3 > 0
    partly = replace(given, statistics=np.where(some[:, None] | (np.arange(3) == 0), given.statistics, 1e6), whole=some)
    start = empirical_bayes.Prior(np.zeros((2, 3)), 0.1 * np.eye(3) + 0.05)
    found = empirical_bayes.fit(partly, covariates, start, steps=30)
    expected = covariates @ found.prior.coefficients
    pull = found.prior.covariance[0] / found.prior.covariance[0, 0]  # what an error of the first says of the others
    np.testing.assert_allclose((found.mean - expected)[~some], (found.mean - expected)[~some, :1] * pull, atol=1e-9)
    assert (found.variance[~some, 1] > 0.5 * found.prior.covariance[1, 1]).all()
    alone = replace(
        given, exposure=given.exposure[some], sampling=given.sampling[some], statistics=given.statistics[some]
    )
    alone = replace(alone, exposure_variance=given.exposure_variance[some])
    known = empirical_bayes.fit(alone, covariates[some], found.prior, steps=1)
    np.testing.assert_allclose(found.mean[some], known.mean, atol=1e-12)
    np.testing.assert_allclose(found.variance[some], known.variance, atol=1e-12)


def test_features_tell_of_a_task_what_its_statistics_leave_open():
    """Where only the first coordinate is known, the second follows its features."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(6)
    n, some = 2000, np.arange(2000) % 2 > 0
    marked = rng.random(n) < 0.5
    theta = np.stack([0.1 * rng.standard_normal(n), np.where(marked, 0.5, -0.5)], axis=1)
    zeros, exposure = np.zeros(n), np.full(n, 10.0)
    statistics = exposure[:, None] * theta + rng.standard_normal((n, 2))
    statistics[~some, 1] = 1e6
    given = empirical_bayes.Evidence(statistics, np.eye(2), exposure, zeros, zeros, np.ones(2), some)
    about = Regressors.of(np.ones((n, 1)), csr_array(marked[:, None].astype(float)), [1])
    start = FeaturePrior.starting(about, 2, 0.1 * np.eye(2), 0.1)
    found = feature_prior.fit(given, about, start, 20)
    np.testing.assert_allclose(found.mean[~some, 1], theta[~some, 1], atol=0.05)


def test_rounds_are_pooled_by_their_noise():
    exposure = popularity.Exposure(np.ones(4), np.zeros(4), np.ones(4))
    design = np.eye(2)
    sharp = evidence.RoundEvidence(np.ones((4, 2)), design, np.array([1.0, 1.0]), 0.0, 1.0, np.zeros((4, 2)))
    blunt = evidence.RoundEvidence(np.full((4, 2), 11.0), design, np.array([3.0, 3.0]), 0.0, 1.0, np.zeros((4, 2)))
    pooled = evidence.combine([sharp, blunt], exposure, 1.0)
    np.testing.assert_allclose(pooled.statistics, (1 * 9 + 11 * 1) / 10)
    np.testing.assert_allclose(pooled.noise_variance, 0.9)


def test_the_offset_of_rounds_is_pooled_by_their_noise_and_drawn_to_what_is_expected():
    def rounds(*offsets):
        return [
            evidence.RoundEvidence(np.ones((1, 1)), np.eye(1), np.ones(1), o, v, np.zeros((1, 1))) for o, v in offsets
        ]

    pooled, noise = (1.0 * 4 + 2.0 * 1) / 5 / 0.5, 1e-4 / 5 / 0.25
    expected = 0.3 + (pooled - 0.3) * 0.0025 / (0.0025 + noise)
    assert evidence.offset(rounds((1.0, 0.25e-4), (2.0, 1e-4)), 0.5, 0.3) == pytest.approx(expected)
    assert evidence.offset(rounds((9.0, 1.0)), 1.0, 0.3) == pytest.approx(0.3, abs=0.03)  # noise does not move it
    assert evidence.offset([], 1.0, 0.3) == 0.3


KNOWN = Beliefs.at_start(1000.0, Belief(0.9, 0.25), Belief(0.9, 0.02))


def test_statistics_of_residuals_are_shifted_back_to_the_parameters():
    moments = evidence.SharedMoments(KNOWN, np.diag([2.0, 1.0]), 0.0, 1.0)
    exposure = popularity.Exposure(np.array([10.0]), np.zeros(1), np.ones(1))
    truth, about, scales = np.array([[0.5, -1.0]]), np.array([[0.4, -0.7]]), np.array([1.0, 0.5])
    residual_sums = 10.0 * (truth - about) @ moments.design * scales
    found = evidence.of_round(residual_sums, 0.1, scales, moments, about, exposure)
    np.testing.assert_allclose(found.statistics, 10.0 * truth @ moments.design)
    np.testing.assert_allclose(found.stddev, [0.1, 0.2])


def test_shared_moments_are_read_back_and_noise_is_shrunk_away():
    second = np.array([[0.6, 0.1], [0.1, 0.4]])
    votes = 1000 * np.array([1.0, 0.9, 0.8, 0.7, -0.3, 0.6 / 2, np.sqrt(2) * 0.1 / 2, 0.4 / 2])
    exact = evidence.shared_moments(votes, 1e-6, KNOWN)
    np.testing.assert_allclose(exact.design[1:, 1:], second, atol=1e-6)
    assert (exact.residual_variance, exact.clipped_variance, exact.offset) == pytest.approx((0.8, 0.7, -0.3))
    drowned = evidence.shared_moments(votes, 1e6, KNOWN)
    np.testing.assert_allclose(drowned.design, np.diag([0.9, 0.3, 0.3]), atol=1e-3)
    assert drowned.residual_variance == pytest.approx(0.9, abs=1e-3)


def test_rounds_together_know_shared_moments_better_than_the_last_one():
    def errors(rounds, seed):
        rng, known = np.random.default_rng(seed), KNOWN
        for _ in range(rounds):
            noisy = 1000 * np.array([1.0, 0.95, 0.4, 0.3]) + 300 * rng.standard_normal(4)
            known = known.after(noisy, None, 300.0, 0)
        return [abs(known.residual.mean - 0.4), abs(known.slope.mean - 0.95)]

    once, often = (np.mean([errors(rounds, seed) for seed in range(40)], axis=0) for rounds in (1, 9))
    assert often[0] < 0.6 * once[0]
    assert (often < 0.15).all()  # a round alone is off by 0.24 in the mean


def test_a_variance_that_falls_from_round_to_round_is_followed_where_noise_is_small():
    known = KNOWN
    for variance in (1.2, 0.9, 0.7, 0.6):
        known = known.after(1000 * np.array([1.0, 1.0, variance, variance]), None, 1.0, 0)
    assert known.residual.mean == pytest.approx(0.6, abs=0.01)


def test_denoising_keeps_what_stands_out_and_drops_what_does_not():
    rng = np.random.default_rng(4)
    n, width, rank = 2000, 10, 3
    spread = rng.gamma(1.0, 1.0, n) + 0.05
    basis = np.linalg.qr(rng.standard_normal((width, rank)))[0]
    truth = np.sqrt(spread)[:, None] * (3 * rng.standard_normal((n, rank)) @ basis.T)
    noisy = truth + 2.0 * rng.standard_normal((n, width))
    found = denoise_rows(noisy, 2.0, spread, steps=300)
    outside = found.mean - found.mean @ basis @ basis.T
    assert np.square(found.mean - truth).mean() < 0.35 * np.square(noisy - truth).mean()
    assert np.square(outside).mean() < 0.02 * np.square(found.mean).mean()
    assert np.corrcoef(found.resolved, spread)[0, 1] > 0.5


def test_pure_noise_is_shrunk_to_almost_nothing():
    rng = np.random.default_rng(5)
    found = denoise_rows(rng.standard_normal((3000, 8)), 1.0, np.ones(3000), steps=200)
    assert np.square(found.mean).mean() < 0.02


def test_rows_that_are_shrunk_gently_stay_nearer_to_their_length():
    rng = np.random.default_rng(6)
    spread = rng.uniform(0.5, 2.0, 400)
    noisy = np.sqrt(2 * spread)[:, None] * rng.standard_normal((400, 1)) + rng.standard_normal((400, 1))
    usual, gentle = (denoise_rows(noisy, 1.0, spread, 20, gently=gently) for gently in (False, True))
    np.testing.assert_allclose(gentle.mean / noisy, (usual.mean / noisy) ** 0.75, rtol=1e-12)
    np.testing.assert_array_equal(gentle.resolved, usual.resolved)
