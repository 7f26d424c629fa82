"""The stochastic tester and its trained distinguisher: bounds that hold as often as they say, and see what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from apportion.auditing import distinguisher, tester
from apportion.errors import InputError


def laplace(scale):
    return lambda data, rng: float(data) + rng.laplace(scale=scale)


def test_a_laplace_release_gets_close_to_its_epsilon_and_not_above():
    found = tester.audit_mechanism(laplace(1.0), 0, 1, epsilon=1.0, draws=16_000)
    assert 0.7 < found.lower_bound <= 1.0  # false alarms: 1e-3
    assert not found.violated


def test_half_the_noise_is_a_violation():
    found = tester.audit_mechanism(laplace(0.5), 0, 1, epsilon=1.0, draws=6000)
    assert found.violated
    assert found.lower_bound > 1.3


def test_a_statistic_of_the_callers_works_whatever_its_sign():
    for sign in (1, -1):
        found = tester.audit_mechanism(
            laplace(0.5), 0, 1, epsilon=1.0, draws=3000, statistic=lambda output, sign=sign: sign * output
        )
        assert found.violated


@pytest.mark.parametrize("statistic", [None, float])
def test_a_bound_exceeds_the_truth_no_more_often_than_it_says(statistic):
    """Randomised response, whose ε is known and whose worst set is easy to find."""
    rng = np.random.default_rng(0)
    epsilon, alpha, audits = 1.0, 0.1, 150
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    beyond = 0
    for _ in range(audits):
        here, there = (rng.random(400) < truth) * 1.0, (rng.random(400) > truth) * 1.0
        beyond += tester.audit_outputs(here, there, epsilon, statistic=statistic, confidence=1 - alpha).violated
    assert beyond <= binom.ppf(1 - 1e-6, audits, alpha)  # false alarms: 1e-6


def test_delta_is_allowed_for():
    """With probability 0.1 the data are published; that is (0, 0.1)-DP and no pure DP at all."""

    def mechanism(data, rng):
        return float(data) if rng.random() < 0.1 else 0.5

    assert tester.audit_mechanism(mechanism, 0, 1, epsilon=1.0, delta=0.0, draws=4000).violated
    assert not tester.audit_mechanism(mechanism, 0, 1, epsilon=0.5, delta=0.1, draws=4000).violated


SHAPES = {
    "a shift in one of many coordinates": lambda rng, n, on: rng.normal(size=(n, 30)) + on * 2.5 * np.eye(30)[4],
    "a larger spread": lambda rng, n, on: rng.normal(scale=1 + 2 * on, size=(n, 3)),
    "correlation alone": lambda rng, n, on: rng.multivariate_normal(
        [0, 0], [[1, 0.95 * on], [0.95 * on, 1]], size=n, method="cholesky"
    ),
    "two sides of the middle": lambda rng, n, on: rng.normal(size=n) + on * 4 * rng.choice([-1, 1], n),
    "a direction without noise": lambda rng, n, on: np.repeat(rng.normal(size=(n, 1)), 2, 1) + on * np.array([0, 1e-3]),
    "lists of different lengths": lambda rng, n, on: [[1.0] * k for k in rng.poisson(2 + 6 * on, n)],
    "a mapping": lambda rng, n, on: [{"a": x, "b": (1, True)} for x in rng.normal(size=n) + 3 * on],
}


@pytest.mark.parametrize("draw", SHAPES.values(), ids=SHAPES)
def test_a_distinguisher_learns_what_tells_two_data_sets_apart(draw):
    rng = np.random.default_rng(0)
    assert tester.audit_outputs(draw(rng, 6000, 1), draw(rng, 6000, 0), 1.0, 1e-5).violated
    assert not tester.audit_outputs(draw(rng, 6000, 0), draw(rng, 6000, 0), 0.2, 1e-5).violated  # false alarms: 1e-3


def test_outputs_become_rows_of_numbers():
    rows = distinguisher.as_matrix([[1, 2.5], {"b": 3, "a": np.array([[4.0]])}, [np.nan]])
    np.testing.assert_array_equal(rows, [[1, 2.5, 2], [4, 3, 2], [0, 0, 1.5]])
    np.testing.assert_array_equal(distinguisher.as_matrix([[1, 2, 3]], width=3), [[1, 2, 3]])
    with pytest.raises(InputError, match="got str"):
        distinguisher.as_matrix(["text"])


def test_the_same_seed_gives_the_same_finding():
    one, two = (tester.audit_mechanism(laplace(1.0), 0, 1, epsilon=1.0, draws=500, seed=3) for _ in range(2))
    assert one == two


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="at least 100 draws"):
        tester.audit_outputs([1.0] * 20, [1.0] * 20, 1.0)
    with pytest.raises(InputError, match="got -1"):
        tester.audit_outputs([1.0] * 200, [1.0] * 200, -1.0)
    with pytest.raises(InputError, match="confidence"):
        tester.audit_outputs([1.0] * 200, [1.0] * 200, 1.0, confidence=1.0)
    with pytest.raises(InputError, match="NaN"):
        tester.audit_outputs([1.0] * 200, [1.0] * 200, 1.0, statistic=lambda output: float("nan"))
