"""From released statistics to coefficients: no private data anywhere in here."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.regression.solves import Statistics, solve_psd, solve_shrunk, task_scales


def exact_statistics(seed=0, n_tasks=30, dimension=4, scale=50.0):
    """Statistics without noise of tasks that share the shape of their Gram matrices."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n_tasks, dimension)) / 2
    exposure = scale * rng.uniform(0.2, 2.0, n_tasks)
    common = np.diag(np.linspace(0.2, 1.0, dimension))
    grams = exposure[:, None, None] * common
    moments = np.einsum("tij,tj->ti", grams, truth)
    return Statistics(linalg.pack(grams), 0.0, moments, 0.0, exposure, 0.0), truth


def noisy(statistics, gram_stddev, moment_stddev, seed=1):
    rng = np.random.default_rng(seed)
    size = statistics.grams.shape[1]
    scales = np.full(size, np.sqrt(0.5))
    scales[linalg.diagonal_positions(linalg.packed_dim(size))] = 1.0
    grams = statistics.grams + gram_stddev * scales * rng.standard_normal(statistics.grams.shape)
    moments = statistics.moments + moment_stddev * rng.standard_normal(statistics.moments.shape)
    return Statistics(grams, gram_stddev, moments, moment_stddev, statistics.exposure, 0.0)


@pytest.mark.parametrize("solve", [solve_psd, solve_shrunk])
def test_without_noise_both_solve_the_ridge_regression_exactly(solve):
    statistics, truth = exact_statistics()
    np.testing.assert_allclose(solve(statistics, 0.0), truth, atol=1e-9)
    matrices = linalg.unpack(statistics.grams) + 0.3 * statistics.exposure[:, None, None] * np.eye(4)
    by_hand = np.linalg.solve(matrices, statistics.moments[:, :, None])[:, :, 0]
    np.testing.assert_allclose(solve(statistics, 0.3), by_hand, atol=1e-9)


def test_psd_is_the_pseudo_inverse_of_the_projection_on_the_cone():
    rng = np.random.default_rng(2)
    full = rng.standard_normal((20, 5, 5))
    full = full + full.transpose(0, 2, 1)
    moments, exposure = rng.standard_normal((20, 5)), rng.random(20)
    found = solve_psd(Statistics(linalg.pack(full), 1.0, moments, 1.0, exposure, 0.0), 0.5)
    for matrix, right, weight, theta in zip(full, moments, exposure, found, strict=True):
        values, vectors = np.linalg.eigh(matrix + 0.5 * weight * np.eye(5))
        projected = (vectors * np.maximum(values, 0)) @ vectors.T
        np.testing.assert_allclose(theta, np.linalg.pinv(projected, hermitian=True) @ right, atol=1e-8)


def test_shrinking_is_nearer_the_truth_when_noise_is_large():
    statistics, truth = exact_statistics()
    errors = {}
    for solve in (solve_psd, solve_shrunk):
        found = [solve(noisy(statistics, 8.0, 8.0, seed), 1e-3) for seed in range(10)]
        errors[solve] = np.mean([np.square(f - truth).sum() for f in found])
    assert errors[solve_shrunk] < 0.5 * errors[solve_psd]
    assert errors[solve_shrunk] < np.square(truth).sum()


def test_where_nothing_stands_out_the_answer_is_zero():
    statistics, _ = exact_statistics()
    silent = Statistics(statistics.grams, 1.0, np.zeros_like(statistics.moments), 1.0, statistics.exposure, 0.0)
    assert not solve_shrunk(silent, 0.0).any()


def test_a_task_without_evidence_gets_almost_nothing():
    statistics, truth = exact_statistics()
    grams, moments = statistics.grams.copy(), statistics.moments.copy()
    grams[3], moments[3] = 0.0, 0.0
    exposure = np.where(np.arange(30) == 3, 0.0, statistics.exposure)
    found = solve_shrunk(noisy(Statistics(grams, 0, moments, 0, exposure, 0), 1.0, 1.0), 1e-3)
    assert np.linalg.norm(found[3]) < 0.2 * np.linalg.norm(truth, axis=1).mean()


def test_the_common_shape_is_positive_of_trace_one_and_falls_back_to_the_identity():
    statistics, _ = exact_statistics()
    shape = linalg.unpack(linalg.common_shape(noisy(statistics, 5.0, 5.0).grams)[0])
    assert np.trace(shape) == pytest.approx(1)
    assert np.linalg.eigvalsh(shape).min() >= -1e-12
    np.testing.assert_allclose(linalg.unpack(linalg.common_shape(-statistics.grams)[0]), np.eye(4) / 4)


def test_scales_use_the_exposure_as_far_as_it_deserves():
    statistics, _ = exact_statistics(n_tasks=200)
    traces = statistics.exposure * np.linspace(0.2, 1.0, 4).sum()
    blurred = noisy(statistics, 20.0, 1.0)
    shape, _ = linalg.common_shape(blurred.grams)
    trusted = np.square(task_scales(blurred, shape) - traces).mean()
    useless = Statistics(*[*vars(blurred).values()][:4], np.full(200, 50.0), 0.0)
    alone = np.square(task_scales(useless, shape) - traces).mean()
    assert trusted < 0.2 * alone
    raw_variance = 20.0**2 / np.square(np.diag(np.linspace(0.2, 1.0, 4)) / 2.4).sum()
    assert alone < 1.3 * raw_variance


def test_coefficients_are_zero_and_finite_where_released_matrices_are_nothing_but_noise():
    rng = np.random.default_rng(0)
    grams = -np.abs(rng.standard_normal((5, 1))) * 1e5  # of trace below 0: noise alone
    moments = rng.standard_normal((5, 1)) * 250
    for matrices, exposure in ((grams, 0.7), (-grams, 0.0)):
        released = Statistics(matrices, 5e4, moments, 250.0, np.full(5, exposure), 0.0)
        np.testing.assert_array_equal(solve_shrunk(released, 0.01), np.zeros((5, 1)))
