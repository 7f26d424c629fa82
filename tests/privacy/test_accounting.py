"""Composition of fixed mechanisms: never below the true cost, and agreement where there is a closed form."""

from __future__ import annotations

import math
import warnings

import pytest

from apportion.errors import InputError
from apportion.privacy import accounting, gaussian
from apportion.privacy.accounting import Gaussian, Laplace, Pure, SampledGaussian
from apportion.privacy.budget import Budget


def test_gaussians_compose_in_closed_form():
    mixed = [Gaussian(3.0, 4), Gaussian(1.5)]
    mu = math.sqrt(4 / 9 + 1 / 2.25)
    assert accounting.epsilon_of(mixed, 1e-6) == pytest.approx(gaussian.epsilon_of(mu, 1e-6), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("count", [1, 2])
def test_pure_composition_is_between_its_lower_and_upper_bound(epsilon, count):
    cost = accounting.epsilon_of([Pure(epsilon, count)], 1e-9)
    assert cost <= count * epsilon + 1e-3
    if count == 1:  # the exact profile of randomised response: delta(x) = (e^eps - e^x) / (1 + e^eps)
        exact = math.log(math.exp(epsilon) - 1e-9 * (1 + math.exp(epsilon)))
        assert cost >= exact - 1e-9


def test_laplace_is_cheaper_than_its_pure_bound_and_dearer_than_its_exact_profile():
    delta = 1e-3
    exact = 1 + 2 * math.log(1 - delta)  # delta(eps) = 1 - exp((eps - 1/b) / 2) at b = 1
    cost = accounting.epsilon_of([Laplace(1.0)], delta)
    assert exact <= cost <= min(1.0, exact + 1e-3)


def test_mixing_in_any_mechanism_costs_more():
    base = accounting.epsilon_of([Gaussian(2.0)], 1e-5)
    for more in (Laplace(5.0), Pure(0.1), SampledGaussian(2.0, 0.1)):
        assert accounting.epsilon_of([Gaussian(2.0), more], 1e-5) > base


def test_sampling_users_costs_less_than_taking_all_and_one_means_all():
    everyone = accounting.epsilon_of([Gaussian(2.0, 10)], 1e-5)
    assert accounting.epsilon_of([SampledGaussian(2.0, 0.05, 10)], 1e-5) < everyone / 2
    assert accounting.epsilon_of([SampledGaussian(2.0, 1.0, 10)], 1e-5) == pytest.approx(everyone, rel=2e-3)


@pytest.mark.parametrize("probability", [0.1, 1.0])
def test_calibration_stays_within_the_budget_and_is_not_wasteful(probability):
    budget = Budget(1.0, 1e-5)

    def make(z):
        return [SampledGaussian(z, probability, 20), Laplace(z * 3)]

    z = accounting.calibrate(make, budget)
    assert accounting.epsilon_of(make(z), budget.delta) <= budget.epsilon
    assert accounting.epsilon_of(make(z * 0.995), budget.delta) > budget.epsilon


def test_zero_noise_costs_infinity_never_nothing():
    assert accounting.epsilon_of([Gaussian(0.0)], 1e-5) == math.inf
    assert accounting.epsilon_of([Gaussian(1.0), Laplace(0.0)], 1e-5) == math.inf
    assert accounting.delta_of([SampledGaussian(0.0, 0.5)], 1.0) == 1.0


def test_bad_parameters_are_quoted():
    with pytest.raises(InputError, match=r"-1"):
        Gaussian(-1.0)
    with pytest.raises(InputError, match=r"1\.5"):
        SampledGaussian(1.0, 1.5)
    with pytest.raises(InputError, match="0"):
        Pure(1.0, 0)


@pytest.mark.parametrize("noise", [1e-200, 1e300, math.nan, math.inf])
def test_noise_beyond_arithmetic_is_refused(noise):
    with pytest.raises(InputError, match="Expected a noise multiplier"):
        Gaussian(noise)


def test_a_loss_too_large_to_compose_is_refused_instead_of_filling_memory():
    with pytest.raises(InputError, match="a privacy loss of at most 1000"):
        accounting.epsilon_of([Gaussian(1e-3), Laplace(1.0)], 1e-6)


def test_a_loss_beyond_floating_point_numbers_is_infinite_without_a_warning_of_numpy():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert accounting.epsilon_of([SampledGaussian(0.0562, 0.2, 4)], 1e-5, interval=1e-2) == math.inf
