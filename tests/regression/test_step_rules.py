"""Steps of Theorem 3.12: the paper's formulas, in the paper's units, give the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.regression.step_rules import Problem, check_rule, number_of_steps, step_sizes

BETA = 0.3
USERS = np.array([400.0, 90.0, 25.0])
OMEGA = np.sqrt(BETA) * np.array([0.1, 0.3, 0.5])  # the paper's, with Σ ω² <= β
PROBLEM = Problem(
    exposure=OMEGA / np.sqrt(BETA) * USERS,
    typical_weight=OMEGA / np.sqrt(BETA),
    dimension=7,
    mu=np.sqrt(2 * BETA),
    gradient_bound=1.5,
    radius=2.0,
    strong_convexity=0.4,
)


def test_numbers_of_steps_are_those_of_the_theorem():
    convex = 2 / 7 * np.square(USERS).sum() / (OMEGA**-2).sum()
    strongly = 2 / 7 * USERS.sum() / (1 / (OMEGA**2 * USERS)).sum()
    assert number_of_steps("convex", PROBLEM, 10**9) == round(convex)
    assert number_of_steps("strongly convex", PROBLEM, 10**9) == round(strongly)
    assert number_of_steps("convex", PROBLEM, 5) == 5
    assert number_of_steps("strongly convex", replace(PROBLEM, mu=1e-6), 5) == 1


@pytest.mark.parametrize("step", [1, 2, 9])
def test_step_sizes_are_those_of_the_theorem_with_its_proof_s_constants(step):
    """A step of the paper moves by η √β times our gradient, so our step size is √β times the paper's."""
    convex = 4.0 / (1.5 * np.sqrt(OMEGA**2 * USERS**2 + 30 * 7 / 2)) / np.sqrt(step)
    strongly = 1 / (OMEGA * USERS * 0.4 * step)
    np.testing.assert_allclose(step_sizes("convex", PROBLEM, step, 30), np.sqrt(BETA) * convex)
    np.testing.assert_allclose(step_sizes("strongly convex", PROBLEM, step, 30), np.sqrt(BETA) * strongly)


def test_with_the_printed_step_size_the_strongly_convex_rule_would_depend_on_the_unit_of_weights():
    """η = 1/(ω² n λ t) as printed: doubling all weights halves our step, as it must, but quarters the printed one."""
    doubled = replace(PROBLEM, exposure=2 * PROBLEM.exposure, typical_weight=2 * PROBLEM.typical_weight)
    ours = step_sizes("strongly convex", PROBLEM, 1, 1) / step_sizes("strongly convex", doubled, 1, 1)
    np.testing.assert_allclose(ours, 2.0)


def test_bad_rules_get_one_sentence():
    with pytest.raises(InputError, match="one of the rules 'convex', 'strongly convex', got 'steepest'"):
        check_rule("steepest", 1.0)
    with pytest.raises(InputError, match=r"strong_convexity > 0 .* got 0"):
        check_rule("strongly convex", 0.0)
