"""Weights over users: the optimum against brute force and a general solver, the policies, and private sizes."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from apportion.allocation import users
from apportion.allocation.users import SampleLimit, Smooth, Unbounded, UserWeights
from apportion.errors import InputError

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)
TRADE_OFFS = st.floats(-4, 4).map(lambda exponent: 10.0**exponent)
INDPTR = np.array([0, 3, 3, 4, 11, 11, 31])  # sizes 3, 0, 1, 7, 0, 20


def exact_objective(sizes, threshold, trade_off):
    """v(h) in rational arithmetic."""
    sizes, h, a = [Fraction(s) for s in sizes], Fraction(threshold), Fraction(trade_off)
    kept = [min(h, s) for s in sizes]
    return (max(kept) ** 2 + a * sum(k * k / s for k, s in zip(kept, sizes, strict=True))) / sum(kept) ** 2


def exact_minimum(sizes, trade_off):
    """The least v(h), by trying the stationary point of every piece, and every end, in rational arithmetic."""
    sizes, a = sorted(Fraction(s) for s in sizes), Fraction(trade_off)
    candidates = set(sizes)
    for h in sizes:
        rest = [s for s in sizes if s > h]
        candidates.add(a * len(rest) / (1 + a * sum(1 / s for s in rest)))
    return min(exact_objective(sizes, h, a) for h in candidates if h >= sizes[0])


@settings(deadline=None)
@given(sizes=SIZES, trade_off=TRADE_OFFS)
def test_the_threshold_is_the_minimum_to_machine_precision(sizes, trade_off):
    threshold = users.optimal_threshold(sizes, trade_off)
    least = exact_minimum(sizes, trade_off)
    assert exact_objective(sizes, threshold, trade_off) <= least * (1 + Fraction(1, 10**25))
    assert users.weight_objective(sizes, threshold, trade_off) == pytest.approx(float(least), rel=1e-14)


@settings(deadline=None)
@given(sizes=st.lists(st.floats(0.01, 1e6), min_size=1, max_size=12), trade_off=TRADE_OFFS)
def test_the_threshold_is_the_minimum_for_sizes_that_are_not_whole(sizes, trade_off):
    threshold = users.optimal_threshold(sizes, trade_off)
    least = exact_minimum(sizes, trade_off)
    assert exact_objective(sizes, threshold, trade_off) <= least * (1 + Fraction(1, 10**24))
    assert min(sizes) <= threshold <= max(sizes)


@pytest.mark.parametrize("seed", range(12))
def test_no_weights_of_any_form_are_better(seed):
    """A general solver over all row weights finds nothing below v(h), and comes as close as its own tolerance."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, rng.integers(2, 6))
    trade_off = float(np.exp(rng.uniform(-3, 3)))
    ours = users.weight_objective(sizes, users.optimal_threshold(sizes, trade_off), trade_off)
    owners, n = np.repeat(np.arange(len(sizes)), sizes), sizes.sum()
    solved = minimize(
        lambda x: x[-1] ** 2 + trade_off * np.square(x[:-1]).sum(),
        np.append(np.full(n, 1 / n), 1.0),
        jac=lambda x: np.append(2 * trade_off * x[:-1], 2 * x[-1]),
        bounds=[(0, 1)] * (n + 1),
        constraints=[
            {"type": "eq", "fun": lambda x: x[:-1].sum() - 1},
            {"type": "ineq", "fun": lambda x: x[-1] - np.bincount(owners, x[:-1])},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    c = np.maximum(solved.x[:-1], 0) / np.maximum(solved.x[:-1], 0).sum()
    theirs = np.bincount(owners, c).max() ** 2 + trade_off * np.square(c).sum()
    assert ours <= theirs * (1 + 1e-12)
    assert theirs == pytest.approx(ours, rel=1e-5)


@given(sizes=SIZES, trade_off=TRADE_OFFS, counts=st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_counts_stand_for_repeated_sizes(sizes, trade_off, counts):
    counts = counts[: len(sizes)]
    repeated = np.repeat(sizes, counts)
    if not len(repeated):
        with pytest.raises(InputError, match="at least one user"):
            users.optimal_threshold(sizes, trade_off, counts)
        return
    threshold = users.optimal_threshold(sizes, trade_off, counts)
    assert threshold == pytest.approx(users.optimal_threshold(repeated, trade_off), rel=1e-12)
    assert users.weight_objective(sizes, 2.5, trade_off, counts) == pytest.approx(
        users.weight_objective(repeated, 2.5, trade_off), rel=1e-12
    )
    assert users.best_sample_limit(sizes, trade_off, counts) == users.best_sample_limit(repeated, trade_off)


def test_ways_to_count_users_agree_and_users_without_rows_do_not_count():
    rng = np.random.default_rng(3)
    sizes = rng.zipf(1.7, 5000).clip(0, 4000) - 1
    by_bincount = users.optimal_threshold(sizes, 0.01)
    by_sort = users.optimal_threshold(sizes.astype(float), 0.01)
    assert by_bincount == pytest.approx(by_sort, rel=1e-12)
    assert by_bincount == users.optimal_threshold(sizes[sizes > 0], 0.01)


def test_extreme_trade_offs():
    sizes = [2, 5, 5, 90]
    assert users.optimal_threshold(sizes, 0.0) == 2.0
    assert users.optimal_threshold(sizes, 1e-320) == 2.0
    assert users.optimal_threshold(sizes, np.inf) == 90.0
    assert users.optimal_threshold(sizes, 1e300) == pytest.approx(90.0)
    assert users.weight_objective(sizes, 2.0, 0.0) == pytest.approx(1 / 16)
    assert users.weight_objective(sizes, 2.0, np.inf) == np.inf
    assert [users.best_sample_limit(sizes, a) for a in (0.0, 1e-320, 1e300, np.inf)] == [2, 2, 90, 90]
    assert users.optimal_threshold([7], 0.3) == 7.0
    assert users.optimal_threshold([4.0, 4.0, 4.0], 3.0) == 4.0


@given(sizes=SIZES, trade_off=TRADE_OFFS)
def test_the_best_sample_limit_is_as_good_as_any_other(sizes, trade_off):
    limit = users.best_sample_limit(sizes, trade_off)
    every = [users.sample_limit_objective(sizes, h, trade_off) for h in range(min(sizes), max(sizes) + 1)]
    assert min(sizes) <= limit <= max(sizes)
    assert users.sample_limit_objective(sizes, limit, trade_off) <= min(every) * (1 + 1e-14)


@pytest.mark.parametrize("seed", range(50))
def test_the_best_sample_limit_between_sizes_that_lie_far_apart_is_found(seed):
    rng = np.random.default_rng(seed)
    light, size, heavy = (int(rng.integers(*ends)) for ends in ((20, 200), (1, 4), (1, 6)))
    sizes = [size] * light + [5000] * heavy
    trade_off = float(np.exp(rng.uniform(-1, 1)) * light / 10)
    limits = np.arange(size, 5001)
    kept = light * size + heavy * limits
    objective = trade_off / kept + np.square(limits / kept)
    assert users.best_sample_limit(sizes, trade_off) == limits[objective.argmin()]


def test_the_best_sample_limit_of_huge_sizes_does_not_depend_on_how_huge_they_are():
    limits = [users.best_sample_limit([1] * 50 + [largest] * 2, 3.0) for largest in (100, 10**6, 10**15)]
    assert limits == [3, 3, 3]


@pytest.mark.parametrize("g", [1, 2, 3, 10, 1000])
def test_example_2_of_the_paper(g):
    """g users of 1 row and g of g rows, σ = 1, 2 (B/ε)² = g: variances (2g + 1)/(4g²) and 3/(4g) exactly."""
    sizes, price = np.repeat([1, g], g), float(g)
    ours = price * users.weight_objective(sizes, users.optimal_threshold(sizes, 1 / price), 1 / price)
    limit = users.best_sample_limit(sizes, 1 / price)
    assert ours == pytest.approx((2 * g + 1) / (4 * g * g), rel=1e-14)
    assert limit == 1
    assert price * users.sample_limit_objective(sizes, limit, 1 / price) == pytest.approx(3 / (4 * g), rel=1e-14)


@settings(max_examples=200)
@given(sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=20), trade_off=st.floats(1e-6, 1e6))
def test_sample_limiting_is_never_better_and_never_four_times_worse(sizes, trade_off):
    ours = users.weight_objective(sizes, users.optimal_threshold(sizes, trade_off), trade_off)
    limited = users.sample_limit_objective(sizes, users.best_sample_limit(sizes, trade_off), trade_off)
    assert 1 - 1e-12 <= limited / ours <= 4


def test_effective_sizes_are_those_of_the_variance_of_a_mean():
    sizes, rho = np.array([0, 1, 2, 50]), 0.3
    found = users.effective_sizes(sizes, rho)
    for size, worth in zip(sizes[1:], found[1:], strict=True):
        covariance = rho + (1 - rho) * np.eye(size)
        assert worth == pytest.approx(1 / covariance.mean())
    assert found[0] == 0
    np.testing.assert_array_equal(users.effective_sizes(sizes), sizes)
    np.testing.assert_array_equal(users.effective_sizes(sizes, 1.0), [0, 1, 1, 1])


@pytest.mark.parametrize("correlation", [0.0, 0.4])
@pytest.mark.parametrize("policy", [Smooth(), Smooth(2.5), SampleLimit(), SampleLimit(4), Unbounded()])
def test_weights_of_every_policy_sum_to_one_and_state_what_one_user_has(policy, correlation):
    found = policy.row_weights(INDPTR, 0.8, correlation)
    totals = [found.rows[a:b].sum() for a, b in itertools.pairwise(INDPTR)]
    assert found.rows.shape == (31,)
    assert found.rows.min() >= 0
    assert sum(totals) == pytest.approx(1, rel=1e-14)
    assert found.largest == pytest.approx(max(totals), rel=1e-14)
    assert found.sum_of_squares == pytest.approx(np.square(found.rows).sum(), rel=1e-14)
    assert not found.rows.flags.writeable


def test_smooth_weights_are_the_threshold_form_and_reach_the_objective():
    found = Smooth().row_weights(INDPTR, 0.8)
    sizes = np.diff(INDPTR)
    h = users.optimal_threshold(sizes, 0.8)
    assert found.threshold == h
    assert f"h = {h:g}" in found.description
    np.testing.assert_allclose(found.rows[11:], min(h, 20) / 20 / np.minimum(h, sizes).sum(), rtol=1e-14)
    assert found.largest**2 + 0.8 * found.sum_of_squares == pytest.approx(users.weight_objective(sizes, h, 0.8))


def test_correlated_rows_are_worth_less_and_light_users_then_count_more():
    free, tied = Smooth().row_weights(INDPTR, 5.0), Smooth().row_weights(INDPTR, 5.0, 0.9)
    assert tied.rows[3] > free.rows[3]  # the user with one row
    worth = users.effective_sizes(np.diff(INDPTR), 0.9)
    totals = np.array([tied.rows[a:b].sum() for a, b in itertools.pairwise(INDPTR)])
    np.testing.assert_allclose(totals, np.minimum(tied.threshold, worth) / np.minimum(tied.threshold, worth).sum())


def test_a_sample_limit_keeps_that_many_rows_and_the_best_by_default():
    found = SampleLimit(4).row_weights(INDPTR, 0.8)
    kept = [np.count_nonzero(found.rows[a:b]) for a, b in itertools.pairwise(INDPTR)]
    assert kept == [3, 0, 1, 4, 0, 4]
    assert set(np.unique(found.rows)) == {0.0, 1 / 12}
    sizes, best = np.diff(INDPTR), SampleLimit().row_weights(INDPTR, 0.8)
    assert best.threshold == users.best_sample_limit(sizes, 0.8)
    objective = users.sample_limit_objective(sizes, int(best.threshold), 0.8)
    assert best.largest**2 + 0.8 * best.sum_of_squares == pytest.approx(objective)


def test_samples_are_uniform_over_seeds_and_repeat_with_a_seed():
    draws = 3000
    kept = sum((SampleLimit(4, seed).row_weights(INDPTR, 1.0).rows > 0).astype(int) for seed in range(draws))
    assert (kept[:4] == draws).all()
    for rows, share in ((slice(4, 11), 4 / 7), (slice(11, 31), 4 / 20)):
        deviation = np.sqrt(draws * share * (1 - share))
        assert np.abs(kept[rows] - draws * share).max() < 6.5 * deviation  # false alarm below 1e-9 a row
    again = [SampleLimit(4, 5).row_weights(INDPTR, 1.0).rows for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_unbounded_weights_are_all_alike():
    found = Unbounded().row_weights(INDPTR, 1.0)
    assert set(found.rows) == {1 / 31}
    assert found.largest == pytest.approx(20 / 31)
    assert found.threshold == 20


def test_weights_for_private_sizes_look_at_no_other_user():
    found = users.unnormalised_row_weights(INDPTR, 4.5)
    totals = np.add.reduceat(found, [0, 3, 4, 11])
    np.testing.assert_allclose(totals, [3, 1, 4.5, 4.5], rtol=1e-14)
    alone = users.unnormalised_row_weights([0, 7], 4.5)
    np.testing.assert_array_equal(found[4:11], alone)


def test_buckets_double_up_to_the_largest_size():
    edges = users.size_buckets(20)
    assert edges.tolist() == [1, 2, 4, 8, 16]
    assert users.size_buckets(1).tolist() == [1]
    assert users.size_buckets(16).tolist() == [1, 2, 4, 8, 16]


@given(noisy=st.lists(st.floats(-50, 50), min_size=4, max_size=4))
def test_counts_from_a_noisy_histogram_are_the_closest_with_the_same_sum(noisy):
    edges, noisy = users.size_buckets(8), np.array(noisy)
    sizes, counts = users.sizes_from_histogram(noisy, edges)
    np.testing.assert_allclose(sizes, np.sqrt([1, 6, 28, 120]))
    total = max(noisy.sum(), 1.0)
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(total)
    # optimality: what is taken is the same from all that remain, and no less from the others
    taken = noisy - counts
    assert np.ptp(taken[counts > 0]) < 1e-9
    assert (taken[counts == 0] <= taken[counts > 0].max() + 1e-9).all()


@pytest.mark.parametrize(("n_users", "epsilon"), [(300, 0.5), (3000, 0.1)])
def test_a_noisy_histogram_gives_nearly_the_best_threshold_and_less_bias_than_clipped_counts(n_users, epsilon):
    rng = np.random.default_rng(11)
    sizes = rng.zipf(2.0, n_users).clip(1, 5000)
    edges = users.size_buckets(2**14)
    histogram = np.bincount(np.searchsorted(edges, sizes, side="right") - 1, minlength=len(edges))
    best = users.optimal_threshold(sizes, 1.0)
    least = users.weight_objective(sizes, best, 1.0)
    thresholds = {"projected": [], "clipped": []}
    for _ in range(300):
        noisy = histogram + rng.laplace(0, 1 / epsilon, len(edges))
        stands_for, counts = users.sizes_from_histogram(noisy, edges)
        thresholds["projected"].append(users.optimal_threshold(stands_for, 1.0, counts))
        thresholds["clipped"].append(users.optimal_threshold(stands_for, 1.0, np.maximum(noisy, 0)))
    bias = {name: np.log(found).mean() - np.log(best) for name, found in thresholds.items()}
    worse = {
        name: np.mean([users.weight_objective(sizes, h, 1.0) for h in found]) / least
        for name, found in thresholds.items()
    }
    assert abs(bias["projected"]) < 0.8 * bias["clipped"]  # the clipped threshold is too high
    assert 1 <= worse["projected"] < min(worse["clipped"], 1.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: users.optimal_threshold([1, 2], -1.0), "trade-off of at least 0, got -1.0"),
        (lambda: users.optimal_threshold([1, 2], float("nan")), "got nan"),
        (lambda: users.optimal_threshold([1.0, float("nan")], 1.0), "finite sizes of at least 0"),
        (lambda: users.optimal_threshold([-1, 2], 1.0), "sizes of at least 0, got -1 to 2"),
        (lambda: users.optimal_threshold([0, 0], 1.0), "at least one user with rows"),
        (lambda: users.optimal_threshold([], 1.0), "at least one user with rows"),
        (lambda: users.optimal_threshold([1, 2], 1.0, [1]), "one count for each of 2 sizes"),
        (lambda: users.optimal_threshold([1, 2], 1.0, [1, -1]), "counts of at least 0, got -1.0 to 1.0"),
        (lambda: users.optimal_threshold([[1, 2]], 1.0), "one size for each user"),
        (lambda: users.weight_objective([1, 2], 0.0, 1.0), "threshold above 0, got 0.0"),
        (lambda: users.best_sample_limit([1.5, 2.0], 1.0), "whole sizes, got 1.5"),
        (lambda: users.effective_sizes([1], 1.5), "correlation from 0 to 1, got 1.5"),
        (lambda: SampleLimit(0).row_weights(INDPTR, 1.0), "at least 1 row per user, got 0"),
        (lambda: Smooth(-2.0).row_weights(INDPTR, 1.0), "threshold above 0, got -2.0"),
        (lambda: Unbounded().row_weights([0, 0], 1.0), "rise from 0 to at least 1"),
        (lambda: Unbounded().row_weights([0, 3, 2], 1.0), "offsets that rise"),
        (lambda: Unbounded().row_weights([0], 1.0), "rise from 0 to at least 1, got 0 to 0"),
        (lambda: users.unnormalised_row_weights([0, 3, 2], 1.0), "offsets that rise"),
        (lambda: users.size_buckets(0), "largest size of at least 1, got 0"),
        (lambda: users.sizes_from_histogram([1.0], [1, 2]), "one finite count for each of 2 buckets"),
        (lambda: UserWeights(np.array([0.5, 0.6]), np.array([0, 2]), 1.0, ""), "sum to 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()
