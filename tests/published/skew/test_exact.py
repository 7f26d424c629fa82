"""Eq. 9 on a public graph: feasible, certified, as good as a generic solver finds, never worse than the closed form."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import REPLACE_VALUES_PUBLIC_GRAPH
from apportion.privacy.contributions import TaskCounts
from apportion.published.skew import Exact, exact_weights, solve_public_graph
from held_values import values_of

from strategies import interactions, random_interactions


def members(data):
    """The 0-1 matrix of the graph, users by tasks, without users that have nothing."""
    matrix = np.zeros((data.n_users, data.n_tasks))
    matrix[data.users, data.tasks] = 1
    return matrix[matrix.any(axis=1)]


def costs(data, gamma):
    return np.maximum(np.bincount(data.tasks, minlength=data.n_tasks), 1.0) ** -gamma


def solved(data, cost, tolerance):
    return solve_public_graph(data.by_user.indptr, data.tasks, cost, tolerance)


def best_by_generic_solver(matrix, cost):
    """SLSQP with linear constraints from a feasible start; only tasks that somebody has."""
    present = matrix.any(axis=0)
    matrix, cost = matrix[:, present], cost[present]
    done = minimize(
        lambda z: (cost / z).sum(),
        np.full(matrix.shape[1], 0.9 / matrix.sum(axis=1).max()),
        jac=lambda z: -cost / z**2,
        bounds=[(1e-3, 1.0)] * matrix.shape[1],
        constraints={"type": "ineq", "fun": lambda z: 1 - matrix @ z, "jac": lambda z: -matrix},
        method="SLSQP",
        options={"ftol": 1e-9, "maxiter": 1000},
    )
    assert done.success, done.message
    return done.fun


@given(data=interactions(), gamma=st.sampled_from([0.0, 0.5, 1.0]))
def test_it_is_feasible_certified_and_as_good_as_a_generic_solver_finds(data, gamma):
    cost = costs(data, gamma)
    found = solved(data, cost, 1e-6)
    matrix, present = members(data), found.omega > 0
    np.testing.assert_array_equal(present, members(data).any(axis=0))
    assert (matrix @ found.omega**2).max() <= 1 + 1e-12
    assert found.objective == pytest.approx((cost[present] / found.omega[present] ** 2).sum(), rel=1e-12)
    assert 0 <= found.gap <= 1e-6
    assert found.objective == pytest.approx(best_by_generic_solver(matrix, cost), rel=1e-4)


@given(data=interactions(n_users=40, n_tasks=12), seed=st.integers(0, 1000))
def test_it_meets_the_optimality_conditions_for_any_costs(data, seed):
    """Some λ ≥ 0 that lives on the users who spend everything has Σ_{j ∈ Ω_i} λ_j = cost_i / z_i² for every task."""
    from scipy.optimize import nnls

    cost = np.exp(np.random.default_rng(seed).normal(size=data.n_tasks))
    found = solved(data, cost, 1e-9)
    present = found.omega > 0
    z, matrix = found.omega[present] ** 2, members(data)[:, present]
    tight = matrix[matrix @ z > 1 - 1e-4]
    wanted = cost[present] / z**2
    _, residual = nnls((tight / wanted).T, np.ones(len(z)))
    assert residual < 0.01


@given(data=interactions(n_users=60, n_tasks=15), gamma=st.sampled_from([0.0, 1.0]))
def test_it_is_never_worse_than_the_closed_form_scaled_to_feasibility(data, gamma):
    cost = costs(data, gamma)
    present = members(data).any(axis=0)
    counts = np.maximum(np.bincount(data.tasks, minlength=data.n_tasks), 1.0)
    closed = counts ** (-(1 + gamma) / 2)
    closed /= (members(data) @ (closed * present)).max()
    assert solved(data, cost, 1e-3).objective <= (cost / closed)[present].sum() * (1 + 1e-3)


def test_the_number_of_steps_keeps_within_the_proven_rate():
    """log(V/D_k) is at most log(n)/k, and D_k never falls: steps written out here, checked against the solver's V."""
    data = random_interactions(5, n_users=200, n_tasks=30)
    cost, matrix = costs(data, 1.0), members(data)
    present = matrix.any(axis=0)
    matrix, cost = matrix[:, present], cost[present]
    best = solved(data, costs(data, 1.0), 1e-9).dual_bound
    multipliers, duals = np.ones(len(matrix)), []
    for _ in range(300):
        pull = multipliers @ matrix
        duals.append(np.sqrt(cost * pull).sum() ** 2 / multipliers.sum())
        multipliers = multipliers * (matrix @ np.sqrt(cost / pull)) ** 2
    assert (np.log(best / np.array(duals[1:])) <= np.log(len(matrix)) / np.arange(1, 300)).all()
    assert (np.diff(duals) >= -1e-12 * best).all()


def test_known_answers():
    complete = solve_public_graph([0, 3, 6], [0, 1, 2, 0, 1, 2], np.ones(3), 1e-9)
    np.testing.assert_allclose(complete.omega**2, 1 / 3, rtol=1e-6)
    apart = solve_public_graph([0, 1, 2], [0, 1], [5.0, 1.0], 1e-9)
    np.testing.assert_allclose(apart.omega, 1.0, rtol=1e-6)
    shared = solve_public_graph([0, 2], [0, 1], [9.0, 1.0], 1e-9)  # (√9 + √1)², split as 3 : 1
    np.testing.assert_allclose(shared.omega**2, [0.75, 0.25], rtol=1e-6)
    assert shared.objective == pytest.approx(16.0)


def test_users_and_tasks_with_nothing_are_left_out():
    found = solve_public_graph([0, 0, 2, 2, 3], [0, 2, 2], [1.0, np.inf, 1.0, 0.0], 1e-9)
    assert found.omega[1] == found.omega[3] == 0
    np.testing.assert_allclose(found.omega[[0, 2]] ** 2, 0.5, rtol=1e-6)
    empty = solve_public_graph([0, 0], [], [1.0, 1.0])
    assert (empty.objective, empty.gap, empty.steps) == (0.0, 0.0, 0)


def test_a_hundred_thousand_edges_take_a_second():
    rng = np.random.default_rng(7)
    data, _ = long_tailed_ratings(10_000, 2_000, 100_000, rank=1, rng=rng, skew=1.2, activity_spread=1.2)
    start = time.process_time()
    found = solved(data, costs(data, 1.0), 1e-3)
    assert found.gap <= 1e-3
    assert time.process_time() - start < 10  # takes about 0.05 s; a slow machine is no failure


@given(data=interactions(), gamma=st.sampled_from([0.0, 1.0]))
def test_the_weights_are_those_of_the_solution_and_engines_take_them(data, gamma):
    weights = exact_weights(data, gamma, 1e-6)
    omega = solved(data, costs(data, gamma), 1e-6).omega
    np.testing.assert_allclose(values_of(weights, data), omega[data.tasks], rtol=1e-5)
    assert "public" in weights.description
    assert 2 <= add_up_one(LocalEngine(), data.as_users, TaskCounts(weights)).l2_sensitivity < 2 + 1e-8


def test_the_policy_releases_nothing_says_what_it_assumes_and_knows_its_sums():
    data, policy = random_interactions(3), Exact(gamma=1.0)

    def count(weights):
        raise AssertionError("asked for a release")

    given = policy.allocate(data.as_users, count, 12)
    weights, expected = given.weights, given.expected
    assert policy.releases == 0
    assert policy.assumes == ("which user has which task is public",)
    assert policy.neighbours == weights.neighbours == REPLACE_VALUES_PUBLIC_GRAPH
    values = values_of(weights, data)
    sums = np.bincount(data.tasks, values, minlength=data.n_tasks)
    np.testing.assert_allclose(expected.total, sums, rtol=1e-5)
    np.testing.assert_allclose(expected.typical[data.tasks], values, rtol=1e-5)
    assert policy == Exact(gamma=1.0)


def test_bad_input_is_refused_and_a_missed_tolerance_is_an_error():
    with pytest.raises(InputError, match="tolerance > 0, got 0"):
        solve_public_graph([0, 1], [0], [1.0], 0.0)
    with pytest.raises(InputError, match="positive, finite cost"):
        solve_public_graph([0, 1], [0], [0.0])
    with pytest.raises(InputError, match="tasks from 0 to 0, got 0 to 1"):
        solve_public_graph([0, 2], [0, 1], [1.0])
    with pytest.raises(InputError, match="offsets from 0 to 1"):
        solve_public_graph([0, 2], [0], [1.0])
    with pytest.raises(InputError, match="one cost for each of 4 tasks"):
        solve_public_graph([0, 1], [0], np.ones((2, 2)))
    with pytest.raises(InputError, match="finite gamma, got nan"):
        exact_weights(random_interactions(1), float("nan"))
    data = random_interactions(2, n_users=50)
    with pytest.raises(ArithmeticError, match="after 3 steps, not 1e-12"):
        solve_public_graph(data.by_user.indptr, data.tasks, costs(data, 1.0), 1e-12, max_steps=3)
