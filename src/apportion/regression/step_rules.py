"""Numbers and sizes of steps for weighted noisy gradient descent.

Both rules of Theorem 3.12 of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023), in the
units of this library. The paper gives a user the budget Σ_i ω_i² ≤ β and every step the noise Γ√(T/2). Here weights
are v = ω/√β, so that Σ_i v_i² ≤ 1, and T steps that share the Gaussian-DP parameter μ get the noise Γ√T/μ. The two
are the same mechanism at μ² = 2β: the paper's noisy gradient is √β times ours, so its step is 1/√β times ours. With
v_i n_i = t_i, the total weight of task i, its formulas become

    (a)   T = (μ²/d) Σ n_i² / Σ v_i⁻²              η_i^(t) = ‖C‖ / (Γ √(t_i² + T d/μ²) √t)
    (b)   T = (μ²/d) Σ n_i / Σ 1/(v_i² n_i)        η_i^(t) = 1 / (λ t_i t)

In print, (b) has ω_i² instead of ω_i and T instead of t; the paper's proof and its Lemma A.3 agree with the form here.
All inputs are public or released.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError

Floats = NDArray[np.float64]

RULES = ("convex", "strongly convex")


@dataclass(frozen=True)
class Problem:
    """The input of a rule.

    Attributes:
        exposure: t_i > 0, the total weight of every task.
        typical_weight: v_i > 0, the weight of one of its observations.
        dimension: d.
        mu: μ of all steps together.
        gradient_bound: Γ.
        radius: the radius of the ball C in which parameters stay.
        strong_convexity: λ of one observation's loss, penalty included.
    """

    exposure: Floats
    typical_weight: Floats
    dimension: int
    mu: float
    gradient_bound: float
    radius: float
    strong_convexity: float

    @property
    def users(self) -> Floats:
        """n_i = t_i / v_i."""
        return np.asarray(self.exposure / self.typical_weight)


def number_of_steps(rule: str, problem: Problem, most: int) -> int:
    """Return T of Theorem 3.12, rounded, at least 1 and at most `most`."""
    weight, users = problem.typical_weight, problem.users
    if rule == "strongly convex":
        ratio = users.sum() / (1 / (np.square(weight) * users)).sum()
    else:
        ratio = np.square(users).sum() / (weight**-2.0).sum()
    return int(np.clip(np.round(np.square(problem.mu) / problem.dimension * ratio), 1, most))


def step_sizes(rule: str, problem: Problem, step: int, n_steps: int) -> Floats:
    """Return η_i of every task at a step, counted from 1."""
    if rule == "convex":
        noise = n_steps * problem.dimension / np.square(problem.mu)
        scale = problem.gradient_bound * np.sqrt((np.square(problem.exposure) + noise) * step)
        return np.asarray(2 * problem.radius / scale)
    return np.asarray(1 / (problem.strong_convexity * problem.exposure * step))


def check_rule(rule: str, strong_convexity: float) -> None:
    """Refuse an unknown rule, and the second one without a λ."""
    if rule not in RULES:
        raise InputError(f"Expected one of the rules {', '.join(map(repr, RULES))}, got {rule!r}.", argument="rule")
    if rule == "strongly convex" and not strong_convexity > 0:
        raise InputError(
            f"Expected strong_convexity > 0 (or a ridge) for the strongly convex rule, got {strong_convexity}.",
            argument="strong_convexity",
        )
