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
from apportion.privacy.task_sums import TaskMatrices, TaskModels, matrix_total, model_gram, model_squares

KINDS = ("gram", "squares", "matrices")
SEEDS = st.integers(0, 10**6)


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


def test_the_sums_are_what_they_say():
    models = np.random.default_rng(0).standard_normal((5, 3))
    held = TaskModels.clipped(models, 100.0)
    assert np.allclose(unpack(raw_value(model_gram(held, REPLACE_TASK))), models.T @ models)
    assert np.allclose(raw_value(model_squares(held, REPLACE_TASK)), (models**2).sum(0))
    factors = np.random.default_rng(1).standard_normal((5, 2, 3))
    total = unpack(raw_value(matrix_total(TaskMatrices.clipped(factors, 100.0), ADD_REMOVE_TASK)))
    assert np.allclose(total, sum(f.T @ f for f in factors))


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
