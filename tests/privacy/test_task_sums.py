"""Sums over tasks: how far one task moves them, and what is refused."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from apportion.auditing.hidden_values import distance, raw_value
from apportion.errors import InputError
from apportion.linalg import unpack
from apportion.privacy import ADD_REMOVE, Budget, Gaussian, SeededNoise, Session
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK
from apportion.privacy.party_sums import PartForm
from apportion.privacy.task_sums import MomentWeights, SizedModels, TaskMatrices, TaskModels

KINDS = ("gram", "squares", "matrices")
SEEDS = st.integers(0, 10**6)


def model_gram(models, neighbours):
    return PartForm(models._values.shape[1], models.norm, neighbours).of(models)


def model_squares(models, neighbours):
    return PartForm(models._values.shape[1], models.norm, neighbours, diagonal=True).of(models)


def matrix_total(matrices, neighbours):
    return PartForm(matrices._factors.shape[2], matrices.norm, neighbours).of(matrices)


def model_moments(models, neighbours, weights, *, diagonal):
    dimension, alike = models._values.shape[1], models._equal_lengths
    return PartForm(dimension, models.norm, neighbours, diagonal, weights, alike).of(models)


def _sum(kind, parts, norm, neighbours, *, scaled):
    if kind == "matrices":
        make = TaskMatrices.scaled if scaled else TaskMatrices.clipped
        return matrix_total(make(parts, norm), neighbours)
    make = TaskModels.scaled if scaled else TaskModels.clipped
    return (model_gram if kind == "gram" else model_squares)(make(parts, norm), neighbours)


def _parts(kind, rng, n_tasks):
    size = (n_tasks, 2, 4) if kind == "matrices" else (n_tasks, 4)
    return rng.standard_normal(size) * 10 ** rng.uniform(-3, 3, (n_tasks,) + (1,) * (len(size) - 1))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, norm=st.floats(0.1, 10), scaled=st.booleans())
def test_removing_any_task_moves_the_sum_by_at_most_its_sensitivity(kind, seed, norm, scaled):
    rng = np.random.default_rng(seed)
    parts = _parts(kind, rng, 6)
    whole = _sum(kind, parts, norm, ADD_REMOVE_TASK, scaled=scaled)
    rest = _sum(kind, np.delete(parts, 2, axis=0), norm, ADD_REMOVE_TASK, scaled=scaled)
    assert whole.l2_sensitivity == pytest.approx(norm**2)
    assert distance(rest, raw_value(whole), Gaussian()) <= whole.l2_sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, norm=st.floats(0.1, 10), scaled=st.booleans())
def test_replacing_any_task_moves_the_sum_by_at_most_its_sensitivity(kind, seed, norm, scaled):
    rng = np.random.default_rng(seed)
    parts = _parts(kind, rng, 6)
    other = parts.copy()
    other[3] = _parts(kind, rng, 1)[0]
    whole = _sum(kind, parts, norm, REPLACE_TASK, scaled=scaled)
    assert whole.l2_sensitivity == pytest.approx(math.sqrt(2) * norm**2)
    moved = distance(_sum(kind, other, norm, REPLACE_TASK, scaled=scaled), raw_value(whole), Gaussian())
    assert moved <= whole.l2_sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_at_right_angles_reach_the_bound_of_replacement(kind):
    one, other = np.eye(4)[:1] * 7.0, np.eye(4)[1:2] * 9.0
    if kind == "matrices":
        one, other = one[:, None], other[:, None]
    first, second = (_sum(kind, part, 2.0, REPLACE_TASK, scaled=False) for part in (one, other))
    assert distance(first, raw_value(second), Gaussian()) >= 0.999 * first.l2_sensitivity


WEIGHTS = st.builds(MomentWeights, st.floats(0.01, 2.0), st.floats(0.01, 1.0))


def _moments(models, sizes, norm, neighbours, weights, *, scaled, diagonal):
    return model_moments(SizedModels.of(models, sizes, norm, scaled=scaled), neighbours, weights, diagonal=diagonal)


@settings(max_examples=150, deadline=None)
@given(
    seed=SEEDS, norm=st.floats(0.1, 10), scaled=st.booleans(), diagonal=st.booleans(), weights=WEIGHTS,
    angle=st.floats(0, math.pi), relation=st.sampled_from([ADD_REMOVE_TASK, REPLACE_TASK]),
)  # fmt: skip
def test_no_task_moves_directions_sizes_and_products_together_by_more_than_their_bound(
    seed, norm, scaled, diagonal, weights, angle, relation
):
    """The other model lies at any angle, from the same direction to the opposite one, where the mean moves most."""
    rng = np.random.default_rng(seed)
    models, sizes = _parts("gram", rng, 6), rng.random(6)
    other, others = models.copy(), sizes.copy()
    across = rng.standard_normal(4)
    across -= across @ models[3] / (models[3] @ models[3]) * models[3]
    turned = np.cos(angle) * models[3] / np.linalg.norm(models[3]) + np.sin(angle) * across / np.linalg.norm(across)
    other[3], others[3] = turned * 10 ** rng.uniform(-3, 3), rng.integers(2)
    if relation == ADD_REMOVE_TASK:
        other, others = np.delete(models, 3, axis=0), np.delete(sizes, 3)
    arguments = {"norm": norm, "neighbours": relation, "weights": weights, "scaled": scaled, "diagonal": diagonal}
    whole = _moments(models, sizes, **arguments)
    moved = distance(_moments(other, others, **arguments), raw_value(whole), Gaussian())
    assert moved <= whole.l2_sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("mean", [0.1, 0.5, 1.0, 2.0])
def test_models_at_the_worst_angle_reach_the_bound_of_moments(mean):
    """cos = -a²/2: opposite enough for the means, apart enough for the outer products."""
    weights, cosine = MomentWeights(mean, 0.2), -mean / 2
    one, other = np.array([[1.0, 0.0]]), np.array([[cosine, math.sqrt(1 - cosine**2)]])
    arguments = {"norm": 1.0, "neighbours": REPLACE_TASK, "weights": weights, "scaled": True, "diagonal": False}
    first, second = _moments(one, np.ones(1), **arguments), _moments(other, np.zeros(1), **arguments)
    assert distance(second, raw_value(first), Gaussian()) >= 0.9999 * first.l2_sensitivity


def test_a_clipped_model_that_is_all_but_gone_still_moves_its_direction():
    """Its outer product is near 0 and its direction is not: the bound for models of one length would be too small."""
    weights = MomentWeights(2.0, 0.2)
    one, other = np.array([[1.0, 0.0]]), np.array([[-1e-6, 0.0]])
    arguments = {"norm": 1.0, "neighbours": REPLACE_TASK, "weights": weights, "scaled": False, "diagonal": False}
    first, second = _moments(one, np.ones(1), **arguments), _moments(other, np.zeros(1), **arguments)
    moved = distance(second, raw_value(first), Gaussian())
    assert weights.reach(REPLACE_TASK, equal_lengths=True) < moved <= first.l2_sensitivity


def test_sizes_and_lengths_that_break_their_word_are_refused():
    for sizes in (np.array([1.1]), np.array([-0.1]), np.array([np.nan]), np.ones(2)):
        with pytest.raises(InputError, match="one size from 0 to 1"):
            SizedModels(np.array([[1.0, 0.0]]), 1.0, sizes, equal_lengths=True)
    with pytest.raises(InputError, match="or 0; at least one has not"):
        SizedModels(np.array([[0.5, 0.0]]), 1.0, np.ones(1), equal_lengths=True)
    for mean, size in ((0.0, 1.0), (2.1, 1.0), (1.0, 0.0)):
        with pytest.raises(InputError, match="weight of the mean"):
            MomentWeights(mean, size)


def test_the_sums_are_what_they_say():
    models = np.random.default_rng(0).standard_normal((5, 3))
    held = TaskModels.clipped(models, 100.0)
    assert np.allclose(unpack(raw_value(model_gram(held, REPLACE_TASK))), models.T @ models, atol=1e-4)
    assert np.allclose(raw_value(model_squares(held, REPLACE_TASK)), (models**2).sum(0), atol=1e-4)
    sized = SizedModels.of(models, np.full(5, 0.5), 100.0, scaled=False)
    whole = raw_value(model_moments(sized, REPLACE_TASK, MomentWeights(0.25, 0.04), diagonal=False)) / 100.0**2
    directions = models / np.linalg.norm(models, axis=1, keepdims=True)
    assert np.allclose(whole[:3], 0.5 * directions.sum(0), rtol=1e-5)
    assert whole[3] == pytest.approx(0.2 * 2.5)
    assert np.allclose(unpack(whole[4:]), models.T @ models / 100.0**2, atol=1e-8)
    factors = np.random.default_rng(1).standard_normal((5, 2, 3))
    total = unpack(raw_value(matrix_total(TaskMatrices.clipped(factors, 100.0), ADD_REMOVE_TASK)))
    assert np.allclose(total, sum(f.T @ f for f in factors), atol=1e-4)


def test_a_matrix_beyond_its_bound_or_without_a_size_is_refused():
    with pytest.raises(InputError, match="within 1"):
        TaskMatrices(np.full((1, 1, 2), 2.0), 1.0)
    with pytest.raises(InputError, match="within 1"):
        TaskMatrices(np.full((1, 1, 2), np.nan), 1.0)


def test_matrices_of_tasks_cannot_be_read_or_pickled():
    held = TaskMatrices.scaled(np.ones((2, 1, 3)), 1.0)
    assert len(held) == 2
    assert "hidden" in repr(held)
    with pytest.raises(TypeError, match="private"):
        pickle.dumps(held)
    with pytest.raises(TypeError, match="private"):
        np.asarray(held)


def test_neighbours_that_differ_in_a_user_are_refused():
    with pytest.raises(InputError, match="one task"):
        model_gram(TaskModels.scaled(np.ones((2, 3)), 1.0), ADD_REMOVE)


def test_the_noise_of_a_released_covariance_has_the_stated_scale():
    """False-alarm rate 1e-9; a scale wrong by 1.05 would be seen."""
    models, budget = TaskModels.scaled(np.ones((3, 60)), 1.5), Budget(1.0, 1e-5)
    energy, count = 0.0, 0
    for seed in range(25):
        session = Session(budget, noise=SeededNoise(seed), neighbours=REPLACE_TASK)
        statistic = model_gram(models, REPLACE_TASK)
        released = session.release("covariance", statistic, session.plan(all=1.0).one("all"))
        stddev = math.sqrt(2) * 1.5**2 / budget.mu
        noise = (unpack(released - raw_value(statistic))) / stddev
        energy += float(np.square(noise).sum())  # in the Frobenius norm every packed entry is one normal
        count += released.size
    low, high = chi2.isf([1 - 5e-10, 5e-10], count)
    assert chi2.cdf(high / 1.05**2, count) <= 1e-9
    assert low < energy < high
