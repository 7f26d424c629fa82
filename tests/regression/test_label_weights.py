"""Optimal weights of label-private regression: feasible, certified, as good as a conic solver finds, at scale."""

from __future__ import annotations

import time
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom

from apportion.errors import InputError
from apportion.regression.label_weights.certificate import Certificate
from apportion.regression.label_weights.curvature import label_dual
from apportion.regression.label_weights.interior import interior_search
from apportion.regression.label_weights.newton import NewtonSearch
from apportion.regression.label_weights.optimal import least_squares_weights, optimal_label_weights, variance_of
from apportion.regression.label_weights.projection import capping_thresholds, user_blocks


def a_problem(seed, kind="normal", n_users=25, dim=3, most=20):
    """Features and offsets: Zipf sizes, some users without rows."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.zipf(1.5, n_users), most) * (rng.random(n_users) > 0.15)
    sizes[n_users // 2] += dim + 2
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    features = rng.standard_normal((indptr[-1], dim))
    if kind == "categories":
        features = np.eye(dim)[rng.integers(0, dim, len(features))]
        features[:, 0] = 1
        features[: dim + 1] = np.tri(dim + 1, dim)
    elif kind == "heavy tails and units":
        features = rng.standard_t(2, features.shape) * 10.0 ** np.arange(-1, dim - 1)
    elif kind == "duplicates and zeros":
        features = np.vstack([features[: dim + 1], np.zeros((1, dim))])[rng.integers(0, dim + 2, len(features))]
        features[: dim + 1] = np.eye(dim + 1, dim)
    return features, indptr


def sum_of_norms(rows, indptr, norm):
    """T, user by user."""
    lengths = np.linalg.norm(rows, ord=norm, axis=1)
    return max(lengths[start:end].sum() for start, end in pairwise(indptr))


def best_by_conic_solver(features, indptr, variance, price, norm):
    n, d = features.shape
    rows, cap = cp.Variable((n, d)), cp.Variable()
    constraints = [rows.T @ features == np.eye(d)]
    for start, end in pairwise(indptr):
        if end > start:
            constraints.append(cp.sum(cp.norm(rows[start:end], norm, axis=1)) <= cap)
    total = variance * cp.sum_squares(rows) + price * cp.square(cap)
    problem = cp.Problem(cp.Minimize(total), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-9, tol_feas=1e-10)
    assert problem.status == cp.OPTIMAL
    return problem.value


KINDS = ["normal", "categories", "heavy tails and units", "duplicates and zeros"]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("variance", "price"), [(1.0, 0.3), (1.0, 100.0), (1e-3, 20.0), (0.0, 1.0)])
def test_it_is_as_good_as_a_conic_solver_finds(kind, norm, variance, price):
    features, indptr = a_problem(3, kind)
    found = optimal_label_weights(features, indptr, variance=variance, price=price, norm=norm)
    best = best_by_conic_solver(features, indptr, variance, price, norm)
    assert found.converged
    assert found.objective == pytest.approx(best, rel=3e-6)
    assert found.lower_bound <= best * (1 + 1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    norm=st.sampled_from([1, 2]),
    dim=st.integers(1, 5),
    n_users=st.integers(1, 30),
    log_ratio=st.floats(-4, 6),
)
def test_it_is_feasible_certified_and_measured_from_its_rows(seed, kind, norm, dim, n_users, log_ratio):
    features, indptr = a_problem(seed, kind, n_users, dim)
    price = 10**log_ratio
    found = optimal_label_weights(features, indptr, variance=1.0, price=price, norm=norm)
    np.testing.assert_allclose(found.rows.T @ features, np.eye(dim), atol=1e-9)
    assert found.cap == pytest.approx(sum_of_norms(found.rows, indptr, norm), rel=1e-12)
    assert found.objective == pytest.approx((found.rows**2).sum() + price * found.cap**2, rel=1e-12)
    assert found.converged
    assert 0 <= found.gap <= 1e-6


@pytest.mark.parametrize("norm", [1, 2])
def test_no_small_change_that_keeps_it_unbiased_makes_it_better(norm):
    features, indptr = a_problem(5, n_users=40)
    problem = {"variance": 1.0, "price": 30.0, "norm": norm}
    found = optimal_label_weights(features, indptr, tolerance=1e-9, **problem)
    rng = np.random.default_rng(0)
    projector = np.eye(len(features)) - features @ np.linalg.pinv(features)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            moved = found.rows + size * found.cap * projector @ rng.standard_normal(found.rows.shape)
            assert variance_of(moved, indptr, **problem) >= found.objective * (1 - 1e-8)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("price", [0.01, 0.3, 5.0, 1e4])
def test_for_a_mean_it_gives_the_threshold_weights(norm, price):
    """One column of ones: c_i = min(h, s) / (s n_h), where h is the root of h = (v / A) Σ_l (1 − h / s_l)_+."""
    sizes, variance = np.array([1, 1, 2, 3, 5, 8, 40]), 2.0
    root = brentq(lambda h: h - variance / price * np.maximum(1 - h / sizes, 0).sum(), 0, 1e9)
    threshold = np.clip(root, sizes.min(), sizes.max())
    totals = np.minimum(threshold, sizes)
    expected = np.repeat(totals / sizes, sizes) / totals.sum()
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    found = optimal_label_weights(np.ones((60, 1)), indptr, variance=variance, price=price, norm=norm, tolerance=1e-12)
    np.testing.assert_allclose(found.rows[:, 0], expected, rtol=1e-6)


def test_without_a_price_it_is_least_squares_and_with_one_user_only_its_own_sum_counts():
    features, indptr = a_problem(1)
    free = optimal_label_weights(features, indptr, variance=2.0, price=0.0, norm=1)
    np.testing.assert_allclose(free.rows.T, np.linalg.pinv(features), atol=1e-12)
    assert free.converged
    assert free.gap == 0
    nothing = optimal_label_weights(features, indptr, variance=0.0, price=0.0, norm=1)
    assert (nothing.objective, nothing.gap, nothing.converged) == (0.0, 0.0, True)
    alone = optimal_label_weights([[1.0], [3.0]], [0, 2], variance=0.0, price=1.0, norm=1)
    np.testing.assert_allclose(alone.rows[:, 0], [0, 1 / 3], atol=1e-6)  # the row that says most per unit of weight


def example_1(g):
    """App. D.4: two directions, one of which wants a high threshold and the other a low one."""
    sizes = [1, *[g] * g**2, g, *[1] * g**2]
    features = np.zeros((sum(sizes), 2))
    features[0] = [g, 0]
    features[1 : 1 + g**3, 0] = 1
    features[1 + g**3 :, 1] = 1
    return features, np.concatenate([[0], np.cumsum(sizes)])


def limited(indptr, limit, rng):
    """Which rows remain if every user keeps at most `limit`, chosen at random."""
    sizes = np.diff(indptr)
    users = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort([rng.random(indptr[-1]), users])
    kept = np.zeros(indptr[-1], bool)
    kept[order] = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes) < limit
    return kept


@pytest.mark.parametrize("g", [4, 8, 16])
def test_example_1_has_a_gap_that_grows_with_g(g):
    """Rows of one user are all alike there, so that which of them are kept does not matter."""
    features, indptr = example_1(g)
    problem = {"variance": 0.0, "price": 1.0, "norm": 1}
    found = optimal_label_weights(features, indptr, **problem)
    assert found.converged
    assert found.objective <= g**-4 * (1 + 1e-6)
    limits = range(1, g + 1)
    kept = [limited(indptr, limit, np.random.default_rng(0)) for limit in limits]
    best = min(least_squares_weights(features, indptr, kept=each, **problem).objective for each in kept)
    assert best >= 1 / (4 * g**3)
    assert best / found.objective >= g / 4


@pytest.mark.parametrize("g", [8, 16, 32])
def test_example_3_has_a_gap_with_features_of_equal_length(g):
    """App. D.4. A draw fails the bound only if more than 2h of g rows are kept, each with chance h / g.

    Half of 40 draws at every h must pass it. By the binomial distribution that fails for some h with chance below 1e-9.
    """
    sizes = [g] * (g + 1)
    features = np.tile([0.0, 1.0], (g * (g + 1), 1))
    features[:g] = features[g::g] = [1.0, 0.0]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    problem = {"variance": 1.0, "price": float(g), "norm": 1}
    found = optimal_label_weights(features, indptr, **problem)
    assert found.converged
    assert found.objective <= 6 / g
    false_alarm, rng = 0.0, np.random.default_rng(1)
    for limit in range(1, g + 1):
        draws = [
            least_squares_weights(features, indptr, kept=limited(indptr, limit, rng), **problem) for _ in range(40)
        ]
        assert np.mean([draw.objective >= g / 9 for draw in draws]) >= 0.5
        false_alarm += binom.cdf(19, 40, binom.cdf(2 * limit, g, limit / g))
    assert false_alarm < 1e-9


def test_newton_and_the_interior_point_method_find_the_same():
    features, indptr = a_problem(8, n_users=200, dim=4)
    target = np.linalg.inv(np.linalg.qr(features, mode="r"))
    blocks = user_blocks(features, indptr, target)
    one, other = (Certificate(1.0, 50.0, 1e-7, 100) for _ in range(2))
    newton = NewtonSearch(blocks, target, 1, one)
    newton.try_without_stages(50)
    rows = interior_search(blocks, target, len(features), other)
    assert one.met
    assert other.met
    assert one.objective == pytest.approx(other.objective, rel=2e-7)
    np.testing.assert_allclose(newton.rows(len(features)), rows, atol=1e-3 * np.abs(rows).max())


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_the_dual_at_any_matrix_is_a_lower_bound(norm, seed):
    features, indptr = a_problem(seed)
    best = optimal_label_weights(features, indptr, variance=1.0, price=7.0, norm=norm).objective
    target = np.linalg.inv(np.linalg.qr(features, mode="r"))
    dual = label_dual(user_blocks(features, indptr, target), target, 7.0, norm)
    rng = np.random.default_rng(seed)
    for spread in (0.0, 0.1, 1.0, 10.0):
        matrix = target + spread * np.abs(target).mean() * rng.standard_normal(target.shape)
        point = dual.evaluate(matrix, 1.0, np.zeros(dual.n_users))
        assert point.lower_bound(7.0) <= best * (1 + 1e-9)
        assert point.linear == pytest.approx(point.curvature, rel=1e-12)


@pytest.mark.parametrize("norm", [1, 2])
def test_newtons_equations_are_the_derivative_of_the_gradient(norm):
    features, indptr = a_problem(4, n_users=60, dim=3)
    target = np.linalg.inv(np.linalg.qr(features, mode="r"))
    dual = label_dual(user_blocks(features, indptr, target), target, 20.0, norm)
    point = dual.evaluate(target, 1.0, np.zeros(dual.n_users))
    system = dual.system(point)
    rng, size = np.random.default_rng(0), 1e-6
    coordinates = rng.standard_normal(len(system.gradient)) / np.sqrt(np.diag(system.scale))
    direction = np.tensordot(coordinates, dual.directions, 1)

    def moment(step):
        """Evaluation scales its matrix; the moment scales with it."""
        moved = dual.evaluate(point.matrix + step * direction, point.cap, point.thresholds)
        return moved.moment * (np.linalg.norm(point.matrix + step * direction) / np.linalg.norm(moved.matrix))

    slope = (moment(size) - moment(-size)) / (2 * size)
    expected = np.tensordot(dual.directions, slope, 2)
    np.testing.assert_allclose(system.hessian @ coordinates, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@given(seed=st.integers(0, 1000), cap=st.floats(0.01, 20), guess=st.floats(0, 10))
def test_thresholds_bring_every_user_to_the_cap_and_leave_the_others_alone(seed, cap, guess):
    rng = np.random.default_rng(seed)
    magnitudes = np.round(np.abs(rng.standard_normal((12, 7))), 1)  # with ties and zeros
    thresholds, counts = capping_thresholds(magnitudes, cap, np.full(12, guess))
    over = magnitudes.sum(axis=1) > cap
    left = np.maximum(magnitudes - thresholds[:, None], 0)
    np.testing.assert_allclose(left[over].sum(axis=1), cap, rtol=1e-9)
    assert (thresholds[~over] == 0).all()
    assert (counts[~over] == 0).all()
    assert (counts[over] >= (left[over] > 1e-9).sum(axis=1)).all()
    assert (counts[over] <= (magnitudes >= thresholds[:, None] - 1e-9)[over].sum(axis=1)).all()


def test_least_squares_uses_the_kept_rows_only_and_is_never_better():
    features, indptr = a_problem(6)
    problem = {"variance": 0.5, "price": 3.0, "norm": 1}
    kept = limited(indptr, 4, np.random.default_rng(2))
    some = least_squares_weights(features, indptr, kept=kept, **problem)
    np.testing.assert_allclose(some.rows[kept].T, np.linalg.pinv(features[kept]), atol=1e-12)
    assert (some.rows[~kept] == 0).all()
    assert some.objective == pytest.approx(variance_of(some.rows, indptr, **problem), rel=1e-14)
    assert some.cap == pytest.approx(sum_of_norms(some.rows, indptr, 1))
    assert np.isnan(some.lower_bound)
    everything = least_squares_weights(features, indptr, **problem)
    best = optimal_label_weights(features, indptr, **problem)
    assert best.objective <= min(some.objective, everything.objective)


@pytest.mark.parametrize("norm", [1, 2])
def test_the_order_of_users_does_not_matter_and_units_only_scale(norm):
    features, indptr = a_problem(9)
    problem = {"variance": 1.0, "price": 40.0, "norm": norm}
    first = optimal_label_weights(features, indptr, **problem)
    order = np.random.default_rng(3).permutation(len(indptr) - 1)
    rows = np.concatenate([np.arange(indptr[user], indptr[user + 1]) for user in order])
    moved = np.concatenate([[0], np.cumsum(np.diff(indptr)[order])])
    shuffled = optimal_label_weights(features[rows], moved, **problem)
    assert shuffled.objective == pytest.approx(first.objective, rel=2e-6)
    scaled = optimal_label_weights(1000 * features, indptr, **problem)
    assert scaled.objective == pytest.approx(first.objective / 1e6, rel=2e-6)


@pytest.mark.parametrize("norm", [1, 2])
def test_giving_up_early_is_said_and_what_there_is_holds(norm):
    features, indptr = a_problem(2, "heavy tails and units")
    problem = {"variance": 1e-3, "price": 100.0, "norm": norm}
    seen = []
    early = optimal_label_weights(
        features, indptr, max_iterations=3, progress=lambda step, gap: seen.append((step, gap)), **problem
    )
    full = optimal_label_weights(features, indptr, **problem)
    assert not early.converged
    assert early.iterations == 3
    assert early.lower_bound <= full.objective <= early.objective
    assert early.gap > 1e-6
    np.testing.assert_allclose(early.rows.T @ features, np.eye(3), atol=1e-9)
    assert [step for step, _ in seen][-1] == 3
    assert seen[-1][1] == pytest.approx(early.gap, rel=1e-6)


def test_a_hundred_thousand_rows_take_seconds():
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.zipf(1.7, 20_000), 2_000)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    features = rng.standard_normal((indptr[-1], 8))
    start = time.process_time()
    found = optimal_label_weights(features, indptr, variance=1.0, price=1_000.0, norm=1)
    assert found.converged
    assert time.process_time() - start < 30  # takes about 2 s; a slow machine is no failure


def test_bad_input_is_refused():
    features, indptr = a_problem(0)
    given = {"variance": 1.0, "price": 1.0, "norm": 1}
    deficient = np.column_stack([features, features.sum(axis=1)])
    with pytest.raises(InputError, match="full column rank 4, got rank 3"):
        optimal_label_weights(deficient, indptr, **given)
    with pytest.raises(InputError, match="full column rank 3, got rank 2"):
        least_squares_weights(features * [1, 0, 1], indptr, **given)
    with pytest.raises(InputError, match="full column rank 3, got rank 2"):
        optimal_label_weights(features[:2], [0, 2], **given)
    with pytest.raises(InputError, match=r"finite features, got nan in row 1, column 0"):
        optimal_label_weights([[1.0], [np.nan]], [0, 2], **given)
    with pytest.raises(InputError, match=r"got shape \(3,\)"):
        optimal_label_weights([1.0, 2.0, 3.0], [0, 3], **given)
    with pytest.raises(InputError, match=f"rises from 0 to {len(features)}"):
        optimal_label_weights(features, [0, 1], **given)
    with pytest.raises(InputError, match="indptr to be a list of integers"):
        optimal_label_weights(features, [0.0, float(len(features))], **given)
    with pytest.raises(InputError, match="finite variance >= 0, got -1"):
        optimal_label_weights(features, indptr, variance=-1.0, price=1.0, norm=1)
    with pytest.raises(InputError, match="finite price >= 0, got inf"):
        optimal_label_weights(features, indptr, variance=1.0, price=np.inf, norm=1)
    with pytest.raises(InputError, match="norm 1 or 2, got 3"):
        optimal_label_weights(features, indptr, variance=1.0, price=1.0, norm=3)
    with pytest.raises(InputError, match="tolerance > 0, got 0"):
        optimal_label_weights(features, indptr, tolerance=0.0, **given)
    with pytest.raises(InputError, match="max_iterations >= 0, got -1"):
        optimal_label_weights(features, indptr, max_iterations=-1, **given)
    with pytest.raises(InputError, match=r"booleans, got shape \(2,\)"):
        least_squares_weights(features, indptr, kept=np.ones(2, bool), **given)
