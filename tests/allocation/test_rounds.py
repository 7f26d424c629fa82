"""Budgets over rounds: shares that sum to one, the optimum that theory has."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from apportion.allocation.rounds import (
    Geometric,
    Power,
    Uniform,
    recommended,
)
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session


@given(
    schedule=st.one_of(
        st.just(Uniform()),
        st.floats(-3, 3).map(Power),
        st.floats(0.8, 1.25).map(Geometric),
    ),
    rounds=st.integers(1, 60),
)
def test_shares_sum_to_exactly_one_and_fit_a_plan(schedule, rounds):
    shares = schedule.shares(rounds)
    assert len(shares) == rounds
    assert math.fsum(shares) == 1.0
    assert min(shares) > 0
    plan = Session(Budget(1.0, 1e-5), noise=SeededNoise(0)).plan(rounds=shares)
    assert math.fsum(share.fraction for share in plan.several("rounds")) <= 1.0


def test_shares_are_in_the_proportion_of_squares():
    assert Power(0.5).shares(3) == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    assert Geometric(0.5).shares(2) == pytest.approx([1 / 5, 4 / 5])


@pytest.mark.parametrize(("accelerated", "alpha"), [(False, 0.0), (True, 0.4)])
def test_the_recommended_power_is_the_numerical_optimum_of_the_error_bound(accelerated, alpha):
    """Least Σ t^c μ_t^(-1/2) under Σ μ_t² = 1, c = 1 with momentum, by a solver that knows nothing of powers."""
    times = np.arange(1, 13, dtype=float)
    weights = times if accelerated else np.ones_like(times)

    def bound(logs):
        shares = np.exp(logs) / np.exp(logs).sum()
        return float((weights * shares**-0.25).sum())

    found = minimize(bound, np.zeros(len(times)), method="BFGS", options={"gtol": 1e-10}).x
    shares = np.exp(found) / np.exp(found).sum()
    assert recommended(accelerated=accelerated).shares(12) == pytest.approx(shares, rel=1e-4)
    assert Power(alpha).shares(12) == pytest.approx(shares, rel=1e-4)


@pytest.mark.parametrize("accelerated", [False, True])
def test_the_recommended_ratio_is_the_numerical_optimum_under_strong_convexity(accelerated):
    """Errors of round t count Q₀^(T - t) plainly, and √ of the faster rate with momentum."""
    condition, rounds = 50.0, 20
    forgotten = (1 - condition**-0.5) ** 0.5 if accelerated else 1 - 1 / condition
    weights = forgotten ** -np.arange(1.0, rounds + 1)

    def bound(ratio):
        return float((weights * np.asarray(Geometric(ratio).shares(rounds)) ** -0.25).sum())

    best = recommended(accelerated=accelerated, condition=condition)
    assert isinstance(best, Geometric)
    assert bound(best.ratio) <= min(bound(best.ratio * (1 + step)) for step in (-1e-3, 1e-3, -0.02, 0.02))


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="at least 1 round, got 0"):
        Uniform().shares(0)
    with pytest.raises(InputError, match="ratio above 0, got -1"):
        Geometric(-1.0)
    with pytest.raises(InputError, match="shares above 0"):
        Geometric(1e-30).shares(20)
    with pytest.raises(InputError, match="above 1, got 1"):
        recommended(accelerated=True, condition=1.0)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.15, 3.0])
def test_a_growing_schedule_gives_each_round_a_factor_of_the_one_before(factor):
    plain = factor ** np.arange(9)
    np.testing.assert_allclose(Geometric.growing(factor).shares(9), plain / plain.sum(), rtol=1e-12)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
def test_a_factor_that_is_no_factor_is_refused(factor):
    with pytest.raises(InputError, match="as a factor > 0"):
        Geometric.growing(factor)
