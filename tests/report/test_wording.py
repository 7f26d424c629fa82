"""What is said in words and rounded numbers is never better than the guarantee."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.privacy import Budget, Session, gaussian
from apportion.report import wording


@given(st.floats(0.001, 20))
def test_the_best_guess_is_half_of_one_plus_the_total_variation(mu):
    assert wording.best_guess_of(mu) == pytest.approx((1 + gaussian.delta_of(0.0, mu)) / 2, abs=1e-9)


@given(st.floats(0.01, 20), st.floats(1e-9, 1e-2))
def test_the_best_guess_is_within_what_epsilon_and_delta_alone_allow(epsilon, delta):
    mu = gaussian.mu_of(epsilon, delta)
    assert wording.best_guess_of(mu) <= 1 - (1 - delta) / (1 + math.exp(epsilon)) + 1e-9


@given(st.floats(0.001, 300))
def test_the_factor_on_the_odds_is_rounded_up_and_not_by_much(epsilon):
    shown = math.log(float(wording.factor(epsilon).replace(",", "")))
    assert epsilon - 1e-9 <= shown <= epsilon + 0.1


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 %"), (1, "100 %"), (0.9999, "100 %"), (0.123456, "12.3 %"), (0.0005, "0.05 %"), (0.9989, "99.9 %")],
)
def test_percentages_have_about_three_digits(value, shown):
    assert wording.percent(value) == shown


@given(st.floats(1e-12, 0.5))
def test_declared_numbers_read_back_exactly(value):
    assert float(wording.exact(value)) == value


@given(st.floats(-1e9, 1e9))
def test_numbers_read_back_to_four_digits(value):
    assert float(wording.number(value).replace(",", "")) == pytest.approx(value, rel=6e-3)


@given(st.floats(1e-8, 1e9))
def test_bounds_are_rounded_up_and_not_by_much(value):
    assert value * (1 - 1e-9) <= float(wording.bound(value).replace(",", "")) <= value * 1.006


@given(st.floats(0, 1))
def test_bounds_in_percent_are_rounded_up_to_a_tenth(value):
    assert -1e-9 <= float(wording.percent_bound(value).removesuffix(" %")) - 100 * value <= 0.1


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-6), (5.0, 1e-5)])
def test_the_odds_exceed_the_printed_factor_with_probability_delta_at_most(epsilon, delta):
    from scipy.stats import norm

    mu = gaussian.mu_of(epsilon, delta)
    budget_only = Session(Budget(epsilon, delta)).statement()
    printed = float(wording.meaning_of(budget_only).odds_factor.replace(",", ""))
    beyond = norm.sf((math.log(printed) - mu**2 / 2) / mu)
    assert beyond <= delta * (1 + 1e-9)
    assert printed <= 1.1 * math.exp(mu**2 / 2 + mu * norm.isf(delta))  # rounded up, and not by much
    assert printed > math.exp(epsilon)  # delta does not say how often the odds pass e^epsilon
