"""The joint allocation: optimal, a contraction, at least as good as any other, and private through released counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from apportion.allocation import Adaptive, ReleasedCounts, SplitEqually
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.estimators.counts import allocated
from apportion.privacy import Budget, Session
from apportion.privacy.noise import SeededNoise
from apportion.published.skew import Exact, ExactJoint, Joint, joint_weights, solve_joint, solve_public_graph
from held_values import values_of

from strategies import interactions, random_interactions


def counts_of(data):
    return np.bincount(data.tasks, minlength=data.n_tasks).astype(float)


def costs(data, gamma):
    return np.maximum(counts_of(data), 1.0) ** -gamma


def objective(data, weights, cost):
    """F of one weight per observation, over the tasks that somebody has."""
    sums = np.bincount(data.tasks, weights, minlength=data.n_tasks)
    counts = counts_of(data)
    present = counts > 0
    return (cost * (counts / np.where(present, sums, 1.0)) ** 2)[present].sum()


def normalised(data, omega):
    norms = np.sqrt(np.bincount(data.users, omega[data.tasks] ** 2, minlength=data.n_users))
    return omega[data.tasks] / norms[data.users]


def solved(data, cost, tolerance=1e-9):
    return solve_joint(data.by_user.indptr, data.tasks, cost, tolerance)


def exact_counts(data, n_users):
    """Counts without noise, as a policy sees them."""

    def count(weights):
        return ReleasedCounts(np.bincount(data.tasks, values_of(weights, data), minlength=data.n_tasks), 0.0, n_users)

    return count


def equally_active(seed, n_users=400, n_tasks=12, per_user=4):
    """Popular and rare tasks; every user has equally many."""
    rng = np.random.default_rng(seed)
    keys = np.log(np.arange(1, n_tasks + 1)) * -1.2 + rng.gumbel(size=(n_users, n_tasks))
    tasks = np.argsort(-keys, axis=1)[:, :per_user]
    users = np.repeat(np.arange(n_users), per_user)
    return Interactions.from_arrays(users, tasks.ravel(), task_ids=np.arange(n_tasks))


@settings(max_examples=15)
@given(data=interactions(n_users=7, n_tasks=6), gamma=st.sampled_from([0.0, 1.0]))
def test_no_weights_that_a_generic_solver_finds_are_better(data, gamma):
    cost = costs(data, gamma)
    found = solved(data, cost)
    owns = (data.users == np.arange(data.n_users)[:, None]).astype(float)

    def slope(weights):
        sums = np.bincount(data.tasks, weights, minlength=data.n_tasks)
        return (-2 * cost * counts_of(data) ** 2 / np.where(sums > 0, sums, 1.0) ** 3)[data.tasks]

    done = minimize(
        lambda w: objective(data, w, cost),
        0.9 * normalised(data, np.ones(data.n_tasks)),
        jac=slope,
        bounds=[(1e-4, 1.0)] * data.n_observations,
        constraints={"type": "ineq", "fun": lambda w: 1 - owns @ w**2, "jac": lambda w: -2 * owns * w},
        method="SLSQP",
        options={"ftol": 1e-9, "maxiter": 500},
    )
    assert done.success, done.message
    assert found.objective == pytest.approx(done.fun, rel=1e-4)


@given(data=interactions(n_users=30), gamma=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 1000))
def test_it_is_certified_meets_the_optimality_conditions_and_beats_other_weights(data, gamma, seed):
    cost = costs(data, gamma)
    found = solved(data, cost, 1e-10)
    weights = normalised(data, found.omega)
    assert 0 <= found.gap <= 1e-10
    assert found.objective == pytest.approx(objective(data, weights, cost), rel=1e-12)
    present = counts_of(data) > 0
    np.testing.assert_array_equal(found.omega > 0, present)
    sums = np.bincount(data.tasks, weights, minlength=data.n_tasks)[present]
    stationary = (cost * counts_of(data) ** 2)[present] / sums**3  # proportional to ω where F is least
    np.testing.assert_allclose(stationary / stationary.max(), found.omega[present], rtol=1e-3)
    other = normalised(data, np.exp(np.random.default_rng(seed).normal(size=data.n_tasks)))
    assert found.dual_bound <= objective(data, other, cost)
    assert found.dual_bound <= solve_public_graph(data.by_user.indptr, data.tasks, cost, 1e-6).objective


@given(data=interactions(n_users=30), seed=st.integers(0, 1000), spread=st.floats(0.1, 5.0))
def test_a_step_is_a_contraction_by_three_quarters_in_the_largest_ratio(data, seed, spread):
    rng = np.random.default_rng(seed)
    present = counts_of(data) > 0

    def step(omega):
        norms = np.sqrt(np.bincount(data.users, omega[data.tasks] ** 2, minlength=data.n_users))
        over_users = np.bincount(data.tasks, 1 / norms[data.users], minlength=data.n_tasks)[present]
        return (counts_of(data)[present] / over_users**3) ** 0.25

    one, two = (np.exp(spread * rng.normal(size=data.n_tasks)) for _ in range(2))
    before = np.abs(np.log(one / two))[present].max()
    assert np.abs(np.log(step(one) / step(two))).max() <= 0.75 * before * (1 + 1e-9)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_where_users_are_alike_it_is_equation_11(gamma):
    """Each pair by its own coin, a hundred tasks a user: t_i is about proportional to n_i, so ω is n^(−(1 + γ)/4)."""
    rng = np.random.default_rng(3)
    chances = np.geomspace(0.02, 0.4, 800)
    users, tasks = np.nonzero(rng.random((2000, 800)) < chances)
    data = Interactions.from_arrays(users, tasks)
    omega = solved(data, costs(data, gamma)).omega
    slope = np.polyfit(np.log(counts_of(data)), np.log(omega), 1)[0]
    assert slope == pytest.approx(-(1 + gamma) / 4, rel=0.05)


def test_known_answers_and_what_nobody_has_is_left_out():
    alone = solve_joint([0, 1, 2], [0, 1], [5.0, 1.0], 1e-9)  # one task each: all weights 1
    assert alone.objective == pytest.approx(6.0)
    same = solve_joint([0, 2, 4], [0, 1, 0, 1], [16.0, 1.0], 1e-9)
    # two users alike: min 16/a² + 1/b² with a² + b² = 1, at a² = 4/5
    assert same.objective == pytest.approx(25.0)
    np.testing.assert_allclose((same.omega / np.linalg.norm(same.omega)) ** 2, [0.8, 0.2], rtol=1e-4)
    sparse = solve_joint([0, 0, 2, 2], [0, 2], [1.0, np.inf, 1.0])
    assert sparse.omega[1] == 0
    assert solve_joint([0, 0], [], [1.0]).objective == 0


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_released_counts_without_noise_lead_to_the_same_weights(gamma):
    data = equally_active(1)
    many = Joint(gamma, rounds=40, floor=0.0).weights(data.n_tasks, exact_counts(data, 400))
    best = joint_weights(data, gamma, 1e-9)
    np.testing.assert_allclose(values_of(many, data), values_of(best, data), rtol=1e-3)


def test_every_round_comes_closer_to_the_best():
    data = equally_active(2)
    cost = costs(data, 1.0)
    best = solved(data, cost).objective
    gaps = [
        objective(data, values_of(Joint(1.0, rounds, 0.0).weights(data.n_tasks, exact_counts(data, 400)), data), cost)
        / best
        - 1
        for rounds in (1, 2, 4, 8)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3] >= -1e-5


@given(data=interactions(), user=st.integers(0, 11), rounds=st.integers(1, 3))
def test_given_what_was_released_nobody_elses_weights_move_when_a_user_leaves(data, user, rounds):
    released, replayed = [], []

    def record(weights):
        released.append(exact_counts(data, 12)(weights))
        return released[-1]

    def replay(weights):
        replayed.append(weights)
        return released[len(replayed) - 1]

    policy = Joint(rounds=rounds)
    fewer = data.without(user)
    made = policy.weights(data.n_tasks, record), policy.weights(fewer.n_tasks, replay)
    weights, rest = values_of(made[0], data), values_of(made[1], fewer)
    assert len(released) == len(replayed) == policy.releases == rounds
    squares = np.bincount(data.users, np.square(weights, dtype=float), minlength=data.n_users)
    assert squares.min() > 1 - 1e-5
    assert squares.max() <= 1.0
    np.testing.assert_array_equal(weights[data.users != user], rest)


def test_what_it_expects_of_its_weights_is_about_right():
    data = equally_active(3, n_users=3000, n_tasks=100, per_user=25)
    for policy in (Joint(rounds=1), Joint(rounds=3), Joint(gamma=0.0)):
        released = []

        def count(weights, released=released):
            released.append(exact_counts(data, 3000)(weights))
            return released[-1]

        sums = np.bincount(data.tasks, values_of(policy.weights(data.n_tasks, count), data), minlength=data.n_tasks)
        expected = policy.expected(released, 3000, data.n_tasks)
        np.testing.assert_allclose(expected.total, sums, rtol=0.05)
        np.testing.assert_allclose(expected.typical, sums / counts_of(data), rtol=0.05)
    adaptive = Adaptive(0.5)
    one = [exact_counts(data, 3000)(SplitEqually())]
    np.testing.assert_allclose(  # one step from the equal split, users alike: eq. 11
        Joint(rounds=1).expected(one, 3000, data.n_tasks).total,
        adaptive.expected(one, 3000, data.n_tasks).total,
        rtol=1e-9,
    )


def test_sessions_charge_each_round_and_name_what_is_assumed_public():
    data = random_interactions(4, n_users=60)
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(1))
    shares = session.plan(counts=[0.05, 0.05]).several("counts")
    given = allocated(data.as_users, Joint(), session, LocalEngine(), shares, 60.0)
    assert [r.name for r in session.statement().releases] == ["popularity", "step 2: popularity"]
    assert all(1 <= r.sensitivity < 1 + 1e-8 for r in session.statement().releases)
    assert len(given.counts) == 2
    assert "released counts" in given.weights.description
    assert not any("task is public" in sentence for sentence in session.statement().public)
    for policy in (Exact(), ExactJoint()):
        public = allocated(data.as_users, policy, session, LocalEngine(), (), 60.0).weights
        assert "public" in public.description
        assert "which user has which task is public" in session.statement().public
    assert len(session.statement().releases) == 2


def test_the_policy_for_a_public_graph_knows_its_sums():
    data, policy = random_interactions(3), ExactJoint(gamma=0.0)
    given = policy.allocate(data.as_users, exact_counts(data, 12), 12)
    weights, expected = given.weights, given.expected
    sums = np.bincount(data.tasks, values_of(weights, data), minlength=data.n_tasks)
    np.testing.assert_allclose(expected.total, sums, rtol=1e-5)


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="at least 1 round, got 0"):
        Joint(rounds=0)
    with pytest.raises(InputError, match=r"a floor >= 0, got 1\.0 and -1"):
        Joint(floor=-1)
    with pytest.raises(InputError, match="tolerance > 0, got -1"):
        solve_joint([0, 1], [0], [1.0], -1)
    data = random_interactions(2, n_users=50)
    with pytest.raises(ArithmeticError, match="after 1 steps, not 1e-09"):
        solve_joint(data.by_user.indptr, data.tasks, costs(data, 1.0), 1e-9, max_steps=1)
