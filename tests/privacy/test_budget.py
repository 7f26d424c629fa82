"""Budgets, shares and plans."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import BudgetError, InputError
from apportion.privacy import Budget, Session


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30))
def test_shares_that_sum_to_the_whole_can_all_be_spent_and_never_exceed_it(parts):
    total = math.fsum(parts)
    session = Session(Budget(2.0, 1e-6))
    plan = session.plan(first=parts[0] / total, rest=[p / total for p in parts[1:]])
    shares = [plan.one("first"), *plan.several("rest")]
    assert math.fsum(s.mu**2 for s in shares) <= session.budget.mu**2
    assert math.fsum(s.mu**2 for s in shares) >= session.budget.mu**2 * (1 - 1e-9)


def test_a_plan_that_asks_for_too_much_says_how_much_is_left():
    with pytest.raises(BudgetError, match=r"asks for 1\.1 of the budget, but only 1 is left"):
        Session(Budget(1.0, 1e-5)).plan(counts=0.1, rounds=[0.5, 0.5])


def test_splitting_a_share_cannot_create_budget():
    share = Session(Budget(1.0, 1e-5)).plan(all=1.0).one("all")
    parts = share.split(gram=0.1, moment=0.9)
    assert math.fsum(p.mu**2 for p in parts.values()) <= share.mu**2
    with pytest.raises(BudgetError, match=r"1\.2"):
        share.split(gram=0.3, moment=0.9)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1, 1e-301), (1, 1), (1, -0.1)]
)
def test_impossible_budgets_are_refused_with_the_value(epsilon, delta):
    with pytest.raises(InputError, match="Expected"):
        Budget(epsilon, delta)


@pytest.mark.parametrize("part", [0.0, -0.1, math.nan, math.inf])
def test_a_share_is_positive(part):
    with pytest.raises(BudgetError, match="share of 'counts'"):
        Session(Budget(1.0, 1e-5)).plan(counts=part)


def test_asking_a_plan_for_the_wrong_kind_says_so():
    plan = Session(Budget(1.0, 1e-5)).plan(one=0.5, many=[0.2, 0.3])
    with pytest.raises(KeyError, match="several"):
        plan.one("many")
    with pytest.raises(KeyError, match="one"):
        plan.several("one")
