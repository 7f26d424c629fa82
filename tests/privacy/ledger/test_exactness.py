"""Exact sums: a legal last spend is never refused for rounding, an illegal one never allowed."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.privacy import Budget
from apportion.privacy.budget import make_plan
from apportion.privacy.ledger import GaussianRelease, PureRelease
from apportion.privacy.ledger.filters import (
    GaussianFilter,
    PureFilter,
    added,
    from_text,
    root_above,
    root_below,
    to_text,
)
from apportion.privacy.ledger.renyi import RenyiFilter

epsilons = st.floats(0.01, 50.0)
deltas = st.sampled_from([1e-3, 1e-6, 1e-9, 1e-12])
weights = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=40)


def spend(adds, events):
    """How many of the events are allowed, one after another; refused ones are left out."""
    spent, kept = adds.nothing, []
    for event in events:
        after = added(spent, adds.cost(event))
        if adds.allows(after):
            spent = after
            kept.append(event)
    return spent, kept


@given(epsilons, deltas, weights)
def test_every_release_of_a_plan_over_the_whole_budget_is_allowed(epsilon, delta, parts):
    whole = math.fsum(parts)
    fractions = [part / whole for part in parts]
    budget = Budget(epsilon, delta)
    plan = make_plan(budget, 1.0, {"rounds": fractions}).several("rounds")
    spent, kept = spend(GaussianFilter(budget), [GaussianRelease(share.mu) for share in plan])
    assert len(kept) == len(parts)
    assert spent[0] > Fraction(budget.mu) ** 2 * (1 - Fraction(1, 10**11))  # and nearly nothing is left
    pure = Budget(epsilon, 0.0)
    plan = make_plan(pure, 1.0, {"rounds": fractions}).several("rounds")
    assert len(spend(PureFilter(pure), [PureRelease(share.pure_epsilon) for share in plan])[1]) == len(parts)


@given(epsilons, deltas, st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=60))
def test_what_is_allowed_is_what_whole_numbers_say(epsilon, delta, parts):
    budget = Budget(epsilon, delta)
    mus = [budget.mu * part for part in parts]
    _, kept = spend(GaussianFilter(budget), [GaussianRelease(mu) for mu in mus])
    scale = 1 << 1200  # clears the denominators of floats of this size

    def square(mu):
        top, bottom = mu.as_integer_ratio()
        return (top * (scale // bottom)) ** 2

    left, expected = square(budget.mu), []
    for mu in mus:
        if square(mu) <= left:
            left -= square(mu)
            expected.append(GaussianRelease(mu))
    assert kept == expected


@given(epsilons, deltas, weights)
def test_the_largest_float_that_fits_is_allowed_and_the_next_one_is_not(epsilon, delta, parts):
    budget = Budget(epsilon, delta)
    for adds in (GaussianFilter(budget), RenyiFilter(budget)) if epsilon > 0.05 else (GaussianFilter(budget),):
        spent, _ = spend(adds, [GaussianRelease(budget.mu * part / 3) for part in parts])
        largest = root_below(adds.gaussian_left(spent))
        if largest == 0:
            continue
        assert adds.allows(added(spent, adds.cost(GaussianRelease(largest))))
        more = math.nextafter(largest, math.inf)
        assert not adds.allows(added(spent, adds.cost(GaussianRelease(more))))


@given(st.integers(1, 10), epsilons)
def test_powers_of_two_fill_an_account_to_the_last_bit(halvings, epsilon):
    budget, n = Budget(epsilon, 1e-6), 4**halvings if halvings <= 5 else 4**5
    part = budget.mu / math.isqrt(n)
    spent, kept = spend(GaussianFilter(budget), [GaussianRelease(part)] * (n + 1))
    assert len(kept) == n
    assert spent == GaussianFilter(budget).totals


@given(epsilons, deltas, weights, st.floats(0.001, 1.0))
def test_a_budget_for_a_part_of_what_is_left_fits_in_it_and_is_no_smaller_than_need_be(epsilon, delta, parts, fraction):
    budget = Budget(epsilon, delta)
    adds = GaussianFilter(budget)
    spent, _ = spend(adds, [GaussianRelease(budget.mu * part / len(parts)) for part in parts])
    left = adds.gaussian_left(spent)
    if float(left) < 1e-6 * budget.mu**2 or math.sqrt(float(left) * fraction) < 10 * delta:
        return
    found = adds.budget_within(fraction, spent)
    worth = Fraction(found.mu) ** 2
    assert Fraction(fraction) * left * (1 - Fraction(1, 10**6)) <= worth <= Fraction(fraction) * left


@given(st.fractions(min_value=0, max_value=10**9))
def test_roots_are_rounded_to_the_side_they_say(square):
    up, down = root_above(square), root_below(square)
    assert Fraction(down) ** 2 <= square <= Fraction(up) ** 2
    assert up == down or math.nextafter(down, math.inf) == up
    assert from_text(to_text([square])) == (square,)


def test_sums_of_floats_would_have_erred_both_ways():
    """Why the sums are rational: in floats the same spends are refused, or allowed, for their rounding alone."""
    third = [1 / 3] * 3 + [5e-17]
    assert math.fsum(third) == sum(third) == 1.0  # floats see nothing wrong
    spent, kept = spend(PureFilter(Budget(1.0, 0.0)), [PureRelease(part) for part in third])
    assert len(kept) == 4  # rightly: 3 * float(1/3) leaves 5.55e-17
    assert spent[0] < 1
    tenths = [0.1] * 10
    assert sum(tenths) < 1 < sum(map(Fraction, tenths))  # a float sum would let 1 + 5e-17 pass
    assert len(spend(PureFilter(Budget(1.0, 0.0)), [PureRelease(part) for part in tenths])[1]) == 9


@pytest.mark.parametrize("kind", [GaussianFilter, RenyiFilter])
def test_what_was_spent_is_never_said_to_be_less(kind):
    budget = Budget(1.0, 1e-6)
    adds = kind(budget)
    spent, _ = spend(adds, [GaussianRelease(budget.mu * 0.3)] * 7)
    exact = Budget(1.0, 1e-6).mu ** 2 * 0.09 * 7
    from apportion.privacy.gaussian import epsilon_of

    assert adds.spent_epsilon(spent) >= epsilon_of(math.sqrt(exact), 1e-6) * (1 - 1e-12)
    assert adds.spent_epsilon(adds.nothing) == 0
