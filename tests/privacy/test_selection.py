"""The cost of private selection: never below the exact one, by integration and by enumeration, and not far above."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, gaussian
from apportion.privacy.selection import Tries, calibrate, divergence, epsilon_of

LAWS = ("geometric", "logarithmic")
ORDERS = (1.5, 2.0, 5.0, 20.0, 80.0)


K = np.arange(1, 3000)


@lru_cache
def law_of(tries):
    return np.array([tries.probability(int(k)) for k in K])


def generating(tries, x):
    """E[x^K] and its derivative, term by term."""
    p, powers = law_of(tries), x ** (K - 1.0)
    return float(p @ powers) * x, float((p * K) @ powers)


class GaussianScores:
    """Selection where a result is its score, N(0, 1) or N(μ, 1): densities of the chosen score under both."""

    def __init__(self, mu, tries):
        self.grid = np.linspace(-9.0, 9.0 + mu, 701)
        grown = np.array([generating(tries, x)[1] for x in stats.norm.cdf(self.grid)])
        shifted = np.array([generating(tries, x)[1] for x in stats.norm.cdf(self.grid - mu)])
        self.densities = (grown * stats.norm.pdf(self.grid), shifted * stats.norm.pdf(self.grid - mu))

    def pairs(self):
        first, second = self.densities
        return ((first, second), (second, first))

    def divergence(self, order):
        return max(
            math.log(integrate.simpson(p**order * q ** (1 - order), x=self.grid)) / (order - 1) for p, q in self.pairs()
        )

    def delta(self, epsilon):
        return max(
            float(integrate.simpson(np.maximum(p - math.exp(epsilon) * q, 0), x=self.grid)) for p, q in self.pairs()
        )


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [1.5, 10.0, 60.0])
def test_the_law_of_the_tries_is_one_with_its_mean(law, mean):
    tries = Tries(mean, law)
    k = np.arange(1, 40_000)
    p = np.array([tries.probability(int(each)) for each in k])
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert (k * p).sum() == pytest.approx(mean, rel=1e-6)
    assert math.exp(tries.log_mean) == pytest.approx(mean, rel=1e-9)
    assert tries.probability(0) == 0


@pytest.mark.parametrize("law", LAWS)
def test_the_number_of_tries_is_drawn_from_its_law(law):
    """Chi-square over 10 cells of 20 000 draws, at 1e-9; it must reject the other law."""
    tries, other = (Tries(6.0, each) for each in (law, *(set(LAWS) - {law})))
    noise = SeededNoise(5)
    drawn = np.minimum([tries.draw(noise) for _ in range(20_000)], 10)
    counted = np.bincount(drawn, minlength=11)[1:]

    def p_value(hypothesis):
        p = np.array([hypothesis.probability(k) for k in range(1, 10)])
        return stats.chisquare(counted, 20_000 * np.append(p, 1 - p.sum())).pvalue

    assert p_value(tries) > 1e-9
    assert p_value(other) < 1e-9


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("mu", "mean"), [(0.1, 10.0), (0.5, 3.0), (1.0, 20.0)])
def test_no_divergence_is_below_the_exact_one_of_gaussian_scores(law, mu, mean):
    tries = Tries(mean, law)
    exact = GaussianScores(mu, tries)
    for order in (1.5, 2.0, 5.0):
        assert order * mu**2 / 2 < exact.divergence(order) <= divergence(order, mu, tries)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("epsilon", "delta", "mean"), [(1.0, 1e-4, 8.0), (3.0, 1e-3, 30.0)])
def test_a_calibrated_selection_of_gaussian_scores_is_within_its_budget_and_one_try_of_the_budget_is_not(
    law, epsilon, delta, mean
):
    tries = Tries(mean, law)
    cost = calibrate(Budget(epsilon, delta), tries)
    assert GaussianScores(cost.one_try.mu, tries).delta(epsilon) <= delta
    assert GaussianScores(Budget(epsilon, delta).mu, tries).delta(epsilon) > delta


@pytest.mark.parametrize(("law", "shape"), [("geometric", 1), ("logarithmic", 0)])
@pytest.mark.parametrize(("mu", "mean"), [(0.05, 5.0), (0.2, 10.0), (1.0, 40.0)])
def test_the_divergence_is_at_most_that_of_the_published_theorem_and_above_half_of_it(law, shape, mu, mean):
    """dp_accounting has Theorem 2 of Papernot and Steinke, with the best second order on its grid."""
    orders = [1 + x for x in np.geomspace(0.05, 500, 400)]
    accountant = RdpAccountant(orders)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(1 / mu), mean, shape))
    ours = np.array([divergence(order, mu, Tries(mean, law)) for order in orders])
    ours = np.minimum.accumulate(ours[::-1])[::-1]  # as theirs: a divergence grows with its order
    theirs = np.asarray(accountant.rdp)
    assert (ours <= theirs * (1 + 1e-6)).all()
    assert (ours >= 0.5 * theirs).all()


def selected(masses, tries):
    """Distribution of the best of K outcomes, the last one being the best: by the law of K, term by term."""
    below = [generating(tries, min(1.0, total))[0] for total in np.concatenate([[0.0], np.cumsum(masses)])]
    return np.diff(below)


@given(
    st.lists(st.floats(0.02, 1), min_size=2, max_size=6),
    st.lists(st.floats(-1, 1), min_size=6, max_size=6),
    st.floats(0.05, 2.0),
    st.sampled_from(LAWS),
    st.floats(1.2, 30.0),
)
@settings(max_examples=60, deadline=None)
def test_selection_among_finite_pure_mechanisms_never_costs_more_than_stated(raw, tilt, pure, law, mean):
    """Two distributions whose probabilities differ by at most e^±ε, enumerated; the score is the place in the list."""
    first = np.array(raw) / sum(raw)
    second = first * np.exp(pure / 2 * np.array(tilt[: len(raw)]))
    second /= second.sum()
    pure = float(np.abs(np.log(second / first)).max()) + 1e-12
    tries, mu = Tries(mean, law), gaussian.mu_of_pure(pure)
    chosen = selected(first, tries), selected(second, tries)
    for p, q in (chosen, chosen[::-1]):
        for order in ORDERS:
            exact = math.log((p * (p / q) ** (order - 1)).sum()) / (order - 1)
            assert exact <= divergence(order, mu, tries) + 1e-9
        for delta in (1e-3, 1e-6):
            epsilon = epsilon_of(mu, delta, tries)
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= delta * (1 + 1e-9)


def test_randomised_response_that_is_tuned_costs_more_than_one_of_its_tries_and_at_most_what_is_stated():
    """The better answer has probability 0.01 or 0.01 e^0.5: picked from 100 tries, its odds move by more than e^0.5."""
    tries, pure = Tries(100.0), 0.5
    worse, better = 0.01, 0.01 * math.exp(pure)
    first, second = (selected(np.array([1 - p, p]), tries) for p in (worse, better))
    grown = max(abs(math.log(a / b)) for a, b in zip(first, second, strict=True))
    assert 0.25 < grown <= epsilon_of(gaussian.mu_of_pure(pure), 1e-12, tries)
    simulated = np.random.default_rng(3)
    k = simulated.geometric(tries.gamma, 200_000)
    hits = (simulated.random(200_000) < 1 - (1 - worse) ** k).mean()
    assert hits == pytest.approx(first[1], abs=6.2 * 0.5 / math.sqrt(200_000))  # false alarm below 1e-9


@given(st.floats(0.01, 2.0), st.floats(1.2, 200.0), st.sampled_from(LAWS), st.floats(-12, -2))
@settings(max_examples=100, deadline=None)
def test_the_cost_grows_with_the_tries_and_with_one_try_and_falls_with_delta(mu, mean, law, exponent):
    delta = 10.0**exponent
    at = epsilon_of(mu, delta, Tries(mean, law))
    assert gaussian.epsilon_of(mu, delta) <= at
    assert at <= epsilon_of(mu, delta, Tries(mean * 1.1, law))
    assert at <= epsilon_of(mu * 1.1, delta, Tries(mean, law))
    assert epsilon_of(mu, delta * 2, Tries(mean, law)) <= at
    assert epsilon_of(mu, delta, Tries(mean, "logarithmic")) <= epsilon_of(mu, delta, Tries(mean, "geometric")) + 1e-9


@given(st.floats(0.05, 20.0), st.floats(-12, -4), st.floats(1.2, 500.0), st.sampled_from(LAWS))
@settings(max_examples=25, deadline=None)
def test_a_calibrated_selection_is_within_the_budget_and_uses_it(epsilon, exponent, mean, law):
    budget, tries = Budget(epsilon, 10.0**exponent), Tries(mean, law)
    cost = calibrate(budget, tries)
    assert epsilon_of(cost.one_try.mu, budget.delta, tries) == cost.epsilon <= budget.epsilon
    assert cost.epsilon > 0.999 * budget.epsilon
    assert cost.one_try.epsilon < budget.epsilon
    assert cost.one_try.delta == cost.delta == budget.delta
    assert cost.order > 1


def test_more_tries_leave_less_for_each():
    each = [calibrate(Budget(1.0, 1e-6), Tries(mean)).one_try.mu for mean in (2, 5, 20, 100)]
    assert all(before > after for before, after in pairwise(each))


@pytest.mark.parametrize(
    ("mean", "law"), [(1.0, "geometric"), (math.nan, "geometric"), (1e6, "logarithmic"), (5, "no")]
)
def test_laws_that_make_no_sense_are_refused(mean, law):
    with pytest.raises(InputError, match="Expected a"):
        Tries(mean, law)


def test_budgets_that_cannot_pay_are_refused():
    with pytest.raises(InputError, match="delta above 0"):
        calibrate(Budget(1.0, 0.0), Tries(5))
    with pytest.raises(InputError, match="pays for 5 tries"):
        calibrate(Budget(1e-6, 1e-9), Tries(5))
    with pytest.raises(InputError, match="pays for 2 tries"):  # the least budget with this delta is worth too much
        calibrate(Budget(0.05, 0.01), Tries(2))
    with pytest.raises(InputError, match="orders above 1"):
        divergence(1.0, 0.1, Tries(5))
