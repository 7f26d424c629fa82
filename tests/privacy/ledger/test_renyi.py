"""The Rényi filter: costs are never below the truth, allowances are valid, and δ has to be divided among the orders."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from dp_accounting.rdp import compute_epsilon
from scipy.optimize import brentq

from apportion.errors import BudgetError
from apportion.privacy import Budget
from apportion.privacy.gaussian import delta_of
from apportion.privacy.ledger import GaussianRelease, PureRelease, SampledRun
from apportion.privacy.ledger.filters import GaussianFilter, added
from apportion.privacy.ledger.renyi import RenyiFilter, allowance, default_orders, epsilon_at, sampled_divergences

BUDGETS = [Budget(0.1, 1e-6), Budget(0.5, 1e-6), Budget(1.0, 1e-6), Budget(2.0, 1e-9), Budget(8.0, 1e-5)]


def exact_divergence(noise, probability, order):
    """log Σ_k C(α, k) (1 − q)^(α − k) q^k exp(k (k − 1) / (2 z²)) / (α − 1), in 60 digits (Mironov et al. 2019)."""
    with localcontext() as context:
        context.prec = 60
        q, z = Decimal(probability), Decimal(noise)
        terms = (
            math.comb(order, k) * (1 - q) ** (order - k) * q**k * (k * (k - 1) / (2 * z * z)).exp()
            for k in range(order + 1)
        )
        return sum(terms).ln() / (order - 1)


@pytest.mark.parametrize("probability", [1e-6, 1e-3, 0.1, 0.9])
@pytest.mark.parametrize("noise", [0.6, 3.0, 100.0])
def test_a_sampled_release_is_charged_what_it_costs_or_a_little_more(noise, probability):
    orders = (2, 3, 8, 33, 256)
    for order, found in zip(orders, sampled_divergences(noise, probability, orders), strict=True):
        truth = exact_divergence(noise, probability, order)
        assert truth <= Decimal(found) <= truth * Decimal(1 + 1e-9) + Decimal("2e-10")


@pytest.mark.parametrize("budget", BUDGETS)
def test_an_allowance_is_what_the_conversion_gives_and_no_more(budget):
    for order in default_orders(budget):
        rho = allowance(order, budget.epsilon, budget.delta)
        assert compute_epsilon([order], [float(rho)], budget.delta)[0] == pytest.approx(budget.epsilon, rel=1e-9)
        assert epsilon_at(order, float(rho), budget.delta) >= budget.epsilon * (1 - 1e-15)
        mu = math.sqrt(2 * float(rho) / order)  # the Gaussian release that takes it all
        assert delta_of(budget.epsilon, mu) < budget.delta


@pytest.mark.parametrize("budget", BUDGETS)
def test_it_is_stricter_than_the_gaussian_filter_but_not_by_much(budget):
    renyi, exact = RenyiFilter(budget), GaussianFilter(budget)
    ratio = math.sqrt(renyi.gaussian_left(renyi.nothing) / exact.gaussian_left(exact.nothing))
    assert 0.8 < ratio < 1
    assert all(total > 0 for total in renyi.totals)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
def test_a_pure_release_is_charged_at_least_what_randomised_response_costs(epsilon):
    adds = RenyiFilter(Budget(20.0, 1e-6))
    high = math.exp(epsilon) / (1 + math.exp(epsilon))
    for order, cost in zip(adds.orders, adds.cost(PureRelease(epsilon)), strict=True):
        moment = high**order * (1 - high) ** (1 - order) + (1 - high) ** order * high ** (1 - order)
        truth = math.log(moment) / (order - 1)
        assert truth <= cost <= min(epsilon, order * epsilon**2 / 2)


def test_a_run_costs_the_sum_of_its_parts_and_an_order_that_it_kills_stays_dead():
    adds = RenyiFilter(Budget(2.0, 1e-6), (4, 8, 64))
    parts = [SampledRun((), 2.0, 0.05, 30), GaussianRelease(0.1), GaussianRelease(0.2)]
    whole = adds.cost(SampledRun((0.1, 0.2), 2.0, 0.05, 30))
    summed = added(added(adds.cost(parts[0]), adds.cost(parts[1])), adds.cost(parts[2]))
    for one, other, total in zip(whole, summed, adds.totals, strict=True):
        assert one == other or min(one, other) > total  # beyond its total a cost is cut off
    heavy = adds.cost(SampledRun((), 1e-3, 0.5, 1000))
    assert not adds.allows(heavy)
    assert all(cost > total for cost, total in zip(heavy, adds.totals, strict=True))


def test_samples_that_cost_too_much_at_large_orders_are_borne_by_smaller_ones():
    adds = RenyiFilter(Budget(2.0, 1e-6), (8, 64))
    cost = adds.cost(SampledRun((), 1.2, 0.001, 100))
    assert cost[1] > adds.totals[1]
    assert cost[0] < adds.totals[0]
    assert adds.allows(cost)


def test_an_order_that_can_promise_nothing_is_refused_alone():
    with pytest.raises(ValueError, match="that one of the orders 2 can reach"):
        RenyiFilter(Budget(1.0, 1e-6), (2,))


class TwoPointMechanism:
    """Two answers; the first has probability p and is exp(loss) times as likely with the user as without."""

    def __init__(self, p, loss):
        self.answers = [(p, p * math.exp(-loss)), (1 - p, 1 - p * math.exp(-loss))]

    def divergence(self, order):
        def one_way(pairs):
            return math.log(sum(math.exp(order * math.log(p) + (1 - order) * math.log(q)) for p, q in pairs))

        there, back = one_way(self.answers), one_way([(q, p) for p, q in self.answers])
        return max(there, back) / (order - 1)

    def delta(self, epsilon):
        return sum(max(0.0, p - math.exp(epsilon) * q) for p, q in self.answers)


def most_revealing(order, rho, epsilon):
    """The δ(ε) that a two-point mechanism within (order, ρ)-RDP can reach."""
    best = 0.0
    for k in range(200):
        loss = max(epsilon, 0.0) + 0.01 + 0.02 * k

        def excess(log_p, loss=loss):
            return TwoPointMechanism(math.exp(log_p), loss).divergence(order) - rho

        p = math.exp(brentq(excess, -60, -1e-9)) if excess(-1e-9) > 0 else 1 - 1e-9
        best = max(best, TwoPointMechanism(p, loss).delta(epsilon))
    return best


def attack(allowances, epsilon):
    """δ(ε) of an adaptive pair of releases that uses up another order, depending on what the first one answered."""
    first = TwoPointMechanism(0.00444, 2.2545)
    reached = 0.0
    for p, q in first.answers:
        left = {order: float(total) - first.divergence(order) for order, total in allowances.items()}
        reached += p * max(most_revealing(order, rho, epsilon - math.log(p / q)) for order, rho in left.items())
    return reached


def test_orders_that_each_had_the_whole_delta_would_break_the_promise_and_ours_do_not():
    """Each path of the attack stays within the allowance of one of two orders; the promise is about all paths."""
    budget = Budget(8.0, 1e-3)
    whole = {order: allowance(order, 8.0, 1e-3) for order in (2, 5)}
    assert attack(whole, 8.0) > 1.8e-3
    for order, total in whole.items():  # a single order keeps it
        assert most_revealing(order, float(total), 8.0) <= 1e-3
    divided = RenyiFilter(budget, (2, 5))
    ours = dict(zip(divided.orders, divided.totals, strict=True))
    assert 0.5e-3 < attack(ours, 8.0) <= 1e-3


def test_amounts_are_rationals_whatever_the_event():
    adds = RenyiFilter(Budget(1.0, 1e-6))
    for event in (GaussianRelease(0.1), PureRelease(0.1), SampledRun((0.1,), 3.0, 0.01, 7)):
        assert all(isinstance(amount, Fraction) for amount in adds.cost(event))
    with pytest.raises(BudgetError, match="Too little is left"):
        adds.budget_within(1.0, tuple(total for total in adds.totals))
