"""exp and the logistic function in one order of operations: near the truth, and the same whatever stands beside."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from apportion.linalg.fixed_exp import fixed_exp, fixed_logistic


def exact_exp(x, terms=80):
    """exp of a float as a fraction: the series of x/2^k, squared k times, with far more digits than a float has."""
    halvings = max(0, math.ceil(math.log2(abs(x) + 1)) + 2)
    small = Fraction(x) / 2**halvings
    total, term = Fraction(1), Fraction(1)
    for k in range(1, terms):
        term = (term * small / k).limit_denominator(10**60)
        total += term
    for _ in range(halvings):
        total = (total * total).limit_denominator(10**60)
    return total


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.3, -0.7, 1.0, 5.5, -12.25, 20.0])
def test_exp_is_within_two_units_in_the_last_place(x):
    truth, found = exact_exp(x), float(fixed_exp(np.array([x]))[0])
    assert abs(Fraction(found) - truth) <= 2 * Fraction(math.ulp(found))


def test_exp_agrees_with_the_standard_library_over_its_range():
    points = np.random.default_rng(0).uniform(-650, 650, 2000)
    wanted = np.array([math.exp(x) for x in points])
    np.testing.assert_allclose(fixed_exp(points), wanted, rtol=2e-15)


def test_the_logistic_function_is_bounded_monotone_and_symmetric():
    points = np.linspace(-800, 800, 4001)
    found = fixed_logistic(points)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) >= 0).all()
    np.testing.assert_allclose(found + fixed_logistic(-points), 1.0, atol=2e-16)


def test_a_number_does_not_depend_on_its_place():
    points = np.random.default_rng(1).uniform(-30, 30, 1037)
    whole = fixed_exp(points)
    alone = np.concatenate([fixed_exp(points[k : k + 1]) for k in range(len(points))])
    np.testing.assert_array_equal(whole, alone)
