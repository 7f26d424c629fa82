"""What counts predict: the paper's improvements, where the bound is least, and advice that counts its noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.published.skew import excess_risk, improvement, recommend_exponent

counts_of_tasks = st.lists(st.floats(0.5, 1e6), min_size=1, max_size=30).map(np.array)


def one_large_task(m, nu):
    return np.concatenate([[m ** (1 + nu)], np.ones(m - 1)])


def slope(small, large, factor):
    return np.log(large / small) / np.log(factor)


@pytest.mark.parametrize("nu", [0.25, 0.5, 0.75])
def test_one_large_task_gains_as_the_paper_says(nu):
    sizes = (10**5, 10**7)
    r0 = [improvement(one_large_task(m, nu), strongly_convex=False) for m in sizes]
    r1 = [improvement(one_large_task(m, nu), strongly_convex=True) for m in sizes]
    assert slope(*r0, 100) == pytest.approx(nu / 2, abs=0.03)
    assert slope(*r1, 100) == pytest.approx(nu, abs=0.03)


def test_in_the_convex_case_no_skew_gains_more_than_the_root_of_the_number_of_tasks():
    """The paper's m^(ν/2) for its example holds for ν < 1 only: R0 ≤ √m by Cauchy-Schwarz, whatever ν."""
    m = 10_000
    gains = [improvement(one_large_task(m, nu), strongly_convex=False) for nu in (1.5, 2.0, 3.0)]
    assert max(gains) <= np.sqrt(m) * (1 + 1e-9)
    assert gains[-1] == pytest.approx(np.sqrt(m), rel=0.02)


@given(counts=counts_of_tasks, strongly_convex=st.booleans(), balanced=st.booleans())
def test_the_improvement_is_the_ratio_of_the_bounds_and_never_below_one(counts, strongly_convex, balanced):
    gamma = 2 if balanced else int(strongly_convex)
    risks = [excess_risk(counts, exponent, gamma, 1000) for exponent in (0.0, (1 + gamma) / 4)]
    ratio = risks[0] / risks[1]
    gain = improvement(counts, strongly_convex=strongly_convex, balanced=balanced)
    assert gain == pytest.approx(ratio if strongly_convex else np.sqrt(ratio), rel=1e-9)
    assert gain >= 1


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("strongly_convex", [False, True])
def test_equal_counts_gain_nothing(strongly_convex, balanced):
    gain = improvement(np.full(50, 7.0), strongly_convex=strongly_convex, balanced=balanced)
    assert gain == pytest.approx(1.0, abs=1e-12)


@given(counts=counts_of_tasks, gamma=st.sampled_from([0.0, 0.5, 1.0, 2.0]), shift=st.floats(-0.5, 0.5))
def test_the_bound_is_least_at_a_quarter_of_one_plus_gamma(counts, gamma, shift):
    best = excess_risk(counts, (1 + gamma) / 4, gamma, 100)
    assert excess_risk(counts, (1 + gamma) / 4 + shift, gamma, 100) >= best * (1 - 1e-12)


def test_the_bound_is_the_sum_over_the_weights_of_equation_16():
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 500, 40).astype(float)
    omega = counts**-0.3 / np.sqrt((counts**0.4).sum() / 800)
    assert excess_risk(counts, 0.3, 1.0, 800) == pytest.approx((1 / (omega**2 * counts)).sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("strongly_convex", "balanced", "exponent"),
    [(False, False, 0.25), (True, False, 0.5), (False, True, 0.75), (True, True, 0.75)],
)
def test_the_advised_exponent_minimises_the_bound_of_its_objective(strongly_convex, balanced, exponent):
    counts = np.array([5.0, 40.0, 300.0, 2500.0])
    advice = recommend_exponent(counts, 5000, strongly_convex=strongly_convex, balanced=balanced)
    assert advice.exponent == exponent
    omega_squared = np.square(counts[:, None] ** -np.linspace(0, 1.5, 301))
    spent = (counts[:, None] * omega_squared).sum(axis=0)  # Σ n_i ω_i², the constraint of eq. 10
    scale = counts[:, None] ** (1.0 if balanced else 0.0)  # the mean over users instead of the sum
    if strongly_convex:
        risk = (1 / (omega_squared * counts[:, None]) / scale).sum(axis=0) * spent  # eq. 8
    else:
        risk = np.sqrt((1 / omega_squared / scale**2).sum(axis=0) * spent)  # eq. 7: a task's part is 1/ω_i
    assert np.linspace(0, 1.5, 301)[risk.argmin()] == pytest.approx(exponent, abs=0.003)
    assert risk[0] / risk.min() == pytest.approx(advice.improvement, rel=1e-4)


@given(counts=counts_of_tasks, strongly_convex=st.booleans(), stddev=st.floats(0, 100))
def test_slack_only_lowers_the_promise_and_raises_the_cost(counts, strongly_convex, stddev):
    exact = recommend_exponent(counts, 1000, strongly_convex=strongly_convex)
    noisy = recommend_exponent(counts, 1000, strongly_convex=strongly_convex, count_stddev=stddev)
    assert noisy.improvement <= exact.improvement * (1 + 1e-9)
    assert noisy.count_cost >= exact.count_cost == 1


def test_the_slack_covers_all_counts_as_often_as_it_says():
    advice = recommend_exponent(np.full(200, 50.0), 1000, strongly_convex=True, count_stddev=3.0)
    errors = np.abs(np.random.default_rng(2).normal(scale=3.0, size=(4000, 200)))
    covered = (errors.max(axis=1) <= advice.slack).mean()
    assert covered > 0.95 - 6 * np.sqrt(0.05 * 0.95 / 4000)  # false alarm below 1e-8
    assert recommend_exponent(np.zeros(3), 10, strongly_convex=True, count_stddev=1.0).improvement == 1


def test_the_advice_says_what_it_knows():
    skewed = np.concatenate([np.full(90, 4.0), np.full(10, 4000.0)])
    advice = recommend_exponent(skewed, 5000, strongly_convex=True, count_stddev=2.0)
    assert "Exponent 0.5" in advice.sentence
    assert f"{advice.improvement:.3g} times" in advice.sentence
    assert "take back" in advice.sentence
    assert advice.beyond_unit == pytest.approx(0.9)  # 5000 / (100 · (4 + slack)) > 1
    assert "90% of tasks get more than one user's unit" in advice.sentence
    assert "more than the skew gains" in recommend_exponent([5, 6], 10, strongly_convex=True, count_stddev=5.0).sentence


def test_bad_counts_and_numbers_are_refused():
    with pytest.raises(InputError, match="floor released counts"):
        improvement([1.0, 0.0], strongly_convex=True)
    with pytest.raises(InputError, match="number of users, got 0"):
        recommend_exponent([1.0, 2.0], 0, strongly_convex=True)
    with pytest.raises(InputError, match="standard deviation >= 0, got -1"):
        recommend_exponent([1.0, 2.0], 10, strongly_convex=True, count_stddev=-1)
