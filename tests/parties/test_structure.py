"""What a curator reads from released matrices."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.parties.structure import (
    Covariance,
    GroupSparse,
    LowRank,
    Relations,
    structure_of,
    taken_apart,
    visible,
)


def symmetric_noise(seed, dimension, stddev):
    raw = np.random.default_rng(seed).standard_normal((dimension, dimension)) * stddev
    return (raw + raw.T) / 2  # stddev on the diagonal, 1/√2 of it off


def test_noise_alone_has_no_eigenvalue_beyond_the_margin():
    """The chance is at most exp(-2) by concentration and far less in truth; in 300 draws none is expected."""
    assert not any(taken_apart(symmetric_noise(seed, 20, 3.0), 3.0, np.inf, 2.0).standing_out for seed in range(300))


def test_a_direction_shows_where_theory_puts_it_and_is_shrunk_to_what_is_left_of_it():
    """λ = θ + σ²d/(2θ); the projection of the truth on the found vector is √(λ² - edge²), within a few per cent."""
    dimension, stddev, strength = 400, 1.0, 40.0
    truth = np.zeros((dimension, dimension))
    truth[0, 0] = strength
    spectrum = taken_apart(truth + symmetric_noise(1, dimension, stddev), stddev, np.inf, 0.0)
    assert spectrum.standing_out == 1
    assert spectrum.values[-1] == pytest.approx(strength + dimension / (2 * strength), rel=0.03)
    left = strength * spectrum.vectors[0, -1] ** 2
    assert spectrum.strengths[-1] == pytest.approx(left, rel=0.03)


def test_a_sum_of_directions_at_random_has_nothing_that_stands_out():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((2000, 15))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert Covariance().read(rows.T @ rows, 1e-3, 2000.0).kept == 0


@pytest.mark.parametrize("name", ["em", "low-rank", "low-rank+sparse", "relations"])
def test_noise_alone_is_answered_by_the_identity(name):
    found = structure_of(name, 0.3).read(symmetric_noise(3, 12, 1e4), 1e4, 300.0)
    assert np.array_equal(found.shared, np.eye(12))
    assert found.kept == 0


def test_what_could_not_show_is_not_believed_even_if_noise_stands_out():
    matrix = symmetric_noise(4, 10, 1.0) + np.diag([100.0] + [0.0] * 9)
    assert Covariance().read(matrix, 1.0, 200.0).kept == 1
    assert not visible(1.0, 10, 2.0)
    assert np.array_equal(Covariance().read(matrix, 1.0, 2.0).shared, np.eye(10))


def test_without_noise_the_projection_is_the_proximal_step_of_the_trace_norm():
    """M W must be what soft-thresholding the singular values of W gives."""
    rng = np.random.default_rng(5)
    models = rng.standard_normal((6, 3)) @ rng.standard_normal((3, 40)) * 5 + 0.1 * rng.standard_normal((6, 40))
    found = LowRank(0.4).read(models @ models.T, 1e-9, np.inf)
    threshold = 0.4 * np.sqrt(np.trace(models @ models.T) / 6)
    left, values, right = np.linalg.svd(models, full_matrices=False)
    assert np.allclose(found.shared @ models, left * np.maximum(values - threshold, 0) @ right, atol=1e-6)


def test_without_noise_the_projection_is_the_proximal_step_of_the_group_penalty():
    rng = np.random.default_rng(6)
    models = rng.standard_normal((8, 50)) * np.array([9, 8, 7, 0.1, 0.1, 0.1, 0.1, 0.1])[:, None]
    squares = np.square(models).sum(axis=1)
    found = GroupSparse(0.5).read(squares, 1e-9, np.inf)
    norms, threshold = np.sqrt(squares), 0.5 * np.sqrt(squares.mean())
    assert np.allclose(found.shared @ models, models * np.maximum(1 - threshold / norms, 0)[:, None], atol=1e-6)
    assert np.count_nonzero(np.diag(found.shared)) == 3


def test_relations_give_each_party_what_the_matrix_of_relations_would():
    """W R⁻¹ with R = (WᵀW)^½ / tr is (W Wᵀ)^(-½) W tr, from the d x d sum alone."""
    rng = np.random.default_rng(7)
    models = rng.standard_normal((4, 9))
    values, vectors = np.linalg.eigh(models.T @ models)
    roots = np.sqrt(np.maximum(values, 0))
    relations = (vectors * roots) @ vectors.T / roots.sum()
    direct = models @ np.linalg.pinv(relations, rcond=1e-6)
    outer_values, outer = np.linalg.eigh(models @ models.T)
    after = (outer / np.sqrt(outer_values)) @ outer.T @ models * np.sqrt(outer_values).sum()
    assert np.allclose(direct, after)
    strong = models * np.array([10.0, 1, 1, 1])[:, None]
    step = Relations(0.5).read(strong @ strong.T, 1e-9, np.inf).shared
    assert np.linalg.eigvalsh(step)[-1] == pytest.approx(1.0)
    assert np.linalg.eigvalsh(step)[0] < 0.6


def test_the_covariance_of_the_directions_has_trace_d_and_finds_them():
    rng = np.random.default_rng(8)
    basis = np.linalg.qr(rng.standard_normal((20, 2)))[0]
    models = basis @ rng.standard_normal((2, 300))
    found = Covariance().read(models @ models.T + symmetric_noise(9, 20, 2.0), 2.0, np.inf)
    assert found.kept == 2
    assert np.trace(found.shared) == pytest.approx(20)
    top = np.linalg.eigh(found.shared)[1][:, -2:]
    assert np.linalg.norm(basis.T @ top) ** 2 == pytest.approx(2, abs=0.05)


def _beside(directions, stddev, seed):
    """What EM reads from a release of a mean and a second moment, at a² = 2/d."""
    dimension, part = directions.shape[1], 1 / directions.shape[1]
    noise = np.random.default_rng([seed, 1]).standard_normal(dimension) * stddev / np.sqrt(2)
    matrix = directions.T @ directions + symmetric_noise(seed, dimension, stddev)
    mean = np.sqrt(part) * directions.sum(axis=0) + noise
    count = float(len(directions))
    return Covariance().read_beside(mean, part, matrix, stddev, count), Covariance().read(matrix, stddev, count)


def test_a_mean_beside_the_second_moment_brings_the_common_direction_closer():
    """The signal grows by 1/(8 · 0.6²), about a third; in 60 draws the mean of squared sines falls by a quarter."""
    rng = np.random.default_rng(10)
    centre, apart = np.eye(8)[0], []
    for seed in range(60):
        models = centre + 0.45 * rng.standard_normal((120, 8))
        pair = _beside(models / np.linalg.norm(models, axis=1, keepdims=True), 9.0, seed)
        apart.append([1 - np.linalg.eigh(one.shared)[1][0, -1] ** 2 for one in pair if one.kept])
    with_mean, without = np.mean([one for one in apart if len(one) == 2], axis=0)
    assert with_mean < 0.85 * without


def test_a_mean_of_nothing_adds_no_direction():
    """Neither where no direction stands out, nor where some do, about which models have both signs."""
    rng = np.random.default_rng(11)
    directions = rng.standard_normal((2000, 15))
    found, _ = _beside(directions / np.linalg.norm(directions, axis=1, keepdims=True), 1e-3, 0)
    assert found.kept == 0
    plane = rng.standard_normal((2000, 2)) @ np.eye(15)[:2]
    found, without = _beside(plane / np.linalg.norm(plane, axis=1, keepdims=True), 1.0, 1)
    assert found.kept == without.kept == 2
    assert found.shared == pytest.approx(without.shared, abs=0.05)
    assert np.trace(found.shared) == pytest.approx(15)


def test_an_unknown_structure_is_named():
    with pytest.raises(InputError, match="got 'clusters'"):
        structure_of("clusters", 1.0)
