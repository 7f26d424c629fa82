"""Exact Gaussian accounting against dp_accounting and against numerical integration."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from apportion.privacy import gaussian

EPSILONS = [0.1, 1.0, 5.0, 20.0]
DELTAS = [1e-3, 1e-5, 1e-9]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("compositions", [1, 3, 50])
def test_calibrated_noise_agrees_with_dp_accounting_and_never_undercuts_it(epsilon, delta, compositions):
    mu = gaussian.mu_of(epsilon, delta) / math.sqrt(compositions)
    event = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1 / mu), compositions)
    accountant = pld_privacy_accountant.PLDAccountant().compose(event)
    theirs = accountant.get_epsilon(delta)
    assert epsilon * (1 - 1e-3) <= theirs <= epsilon * (1 + 2e-3) + 1e-3  # theirs is pessimistic by its grid


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_mu_agrees_with_dp_accountings_analytic_gaussian(epsilon, delta):
    sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert gaussian.mu_of(epsilon, delta) == pytest.approx(1 / sigma, rel=1e-6)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 8.0])
def test_delta_is_the_hockey_stick_integral_and_never_below_it(mu, epsilon):
    start = epsilon / mu + mu / 2  # where the likelihood ratio passes e^eps

    def excess(x):
        return norm.pdf(x - mu) - math.exp(epsilon) * norm.pdf(x)

    integral, error = quad(excess, start, start + 40, epsabs=1e-300, epsrel=1e-10, limit=400)
    ours = gaussian.delta_of(epsilon, mu)
    assert ours == pytest.approx(integral, rel=1e-6, abs=1e-18)
    assert ours >= integral - error - 1e-15 * norm.sf(start - mu) - 1e-20


@given(st.floats(0.01, 30), st.floats(1e-12, 0.1))
def test_conversions_round_towards_privacy(epsilon, delta):
    mu = gaussian.mu_of(epsilon, delta)
    assert gaussian.delta_of(epsilon, mu) <= delta
    assert gaussian.delta_of(epsilon, mu * (1 + 1e-6)) > delta * (1 - 1e-4)
    assert gaussian.epsilon_of(mu, delta) <= epsilon * (1 + 1e-9)
    assert gaussian.delta_of(gaussian.epsilon_of(mu, delta), mu) <= delta


@given(st.floats(1e-3, 30))
def test_a_pure_release_is_charged_a_gaussian_curve_that_lies_below_its_own(epsilon):
    mu = gaussian.mu_of_pure(epsilon)
    alphas = np.linspace(1e-6, 1 - 1e-6, 999)
    pure = np.maximum.reduce([np.zeros_like(alphas), 1 - math.exp(epsilon) * alphas, math.exp(-epsilon) * (1 - alphas)])
    assert (norm.cdf(norm.ppf(1 - alphas) - mu) <= pure + 1e-12).all()
    assert gaussian.pure_of_mu(mu) == pytest.approx(epsilon, rel=1e-6)
    assert gaussian.mu_of_pure(gaussian.pure_of_mu(mu)) <= mu


@given(st.lists(st.floats(1e-6, 20), min_size=1, max_size=6))
def test_pure_releases_are_charged_at_most_what_one_with_the_sum_of_their_epsilons_is(epsilons):
    parts = sum(gaussian.mu_of_pure(epsilon) ** 2 for epsilon in epsilons)
    assert parts <= gaussian.mu_of_pure(sum(epsilons)) ** 2 * (1 + 1e-7)


def test_no_noise_costs_everything():
    assert gaussian.delta_of(5.0, math.inf) == 1.0
    assert gaussian.epsilon_of(math.inf, 1e-5) == math.inf


def test_far_tails_do_not_underflow_into_a_free_lunch():
    assert gaussian.delta_of(50.0, 1.0) > 0
    assert gaussian.mu_of(0.01, 1e-15) > 0
    assert gaussian._log_normal_tail(29.999) == pytest.approx(norm.logsf(29.999), rel=1e-12)
    assert gaussian._log_normal_tail(60.0) == pytest.approx(norm.logsf(60.0), rel=1e-9)
