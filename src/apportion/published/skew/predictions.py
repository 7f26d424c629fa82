"""Predictions from counts: how much weights that adapt to skew gain over equal weights, and which exponent is best.

All of it follows from the bound Σ_i 1/(ω_i² n_i^γ) with ω as in eq. 16, where γ = 1 for strongly convex losses (and
ridge) and γ = 0 for convex ones, whose bound is the square root of that sum. A balanced objective, the mean instead of
the sum over a task's users (App. A.6), divides each task's part by n_i: γ = 2 in both cases (docs/proofs/weights.md).
The counts are public or released; everything here is post-processing.

Equation numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError

_MISSED = 0.05  # probability that some released count is off by more than the slack


@dataclass(frozen=True)
class ExponentAdvice:
    """The best exponent predicted from the counts, and its expected gain.

    Attributes:
        exponent: μ of eq. 16 that minimises the bound.
        improvement: the bound with equal weights divided by the bound with this exponent; R0 or R1 of section 4, taken
            at the counts plus `slack`, which can only make R0 and R1 smaller.
        bound: Σ_i 1/(ω_i² n_i^γ) at that exponent.
        slack: s of eq. 19, in users: with probability 0.95 no released count is off by more.
        count_cost: the factor 1 + (2/m) Σ_i s/n_i by which the noise in the counts may raise the bound (eq. 21).
        beyond_unit: the fraction of tasks with ω_i > 1. Eq. 12 clips every user of such a task, which the bound leaves
            out; normalised weights (`Adaptive`) or `Joint` serve them better.
        sentence: all of this in words.
    """

    exponent: float
    improvement: float
    bound: float
    slack: float
    count_cost: float
    beyond_unit: float
    sentence: str


def improvement(counts: ArrayLike, *, strongly_convex: bool, balanced: bool = False) -> float:
    """Return R1 of section 4 (strongly convex) or R0 (convex).

    This is the bound of equal weights divided by that of the best weights. It is at least 1, and exactly 1 if all
    counts are equal.

    >>> round(improvement([1, 1, 1, 97], strongly_convex=True), 2)
    18.81
    """
    n = _positive(counts)
    gamma = _gamma(strongly_convex, balanced)
    ratio = float(n.sum() * (n**-gamma).sum() / np.square((n ** ((1 - gamma) / 2)).sum()))
    return max(1.0, ratio if strongly_convex else math.sqrt(ratio))


def excess_risk(counts: ArrayLike, exponent: float, gamma: float, n_users: float) -> float:
    """Return the bound Σ_i 1/(ω_i² n_i^γ) on excess risk, up to constants, with the weights of eq. 16 and c(n) = 1.

    ω_i = n_i^(−μ) / √(Σ_i' n_i'^(1 − 2μ) / n), so that users spend their unit on average. The bound is least at μ = (1
    + γ)/4.

    >>> risk = [excess_risk([10, 1000], mu, gamma=1, n_users=1000) for mu in (0.0, 0.5, 1.0)]
    >>> [round(r, 4) for r in risk]
    [0.102, 0.004, 0.102]
    """
    n = _positive(counts)
    if not n_users > 0:
        raise InputError(f"Expected a positive number of users, got {n_users}.", argument="n_users")
    return float((n ** (1 - 2 * exponent)).sum() / n_users * (n ** (2 * exponent - gamma)).sum())


def recommend_exponent(
    counts: ArrayLike, n_users: float, *, strongly_convex: bool, balanced: bool = False, count_stddev: float = 0.0
) -> ExponentAdvice:
    """Return the exponent that is best according to the counts, and its expected gain over equal weights.

    Args:
        counts: public or released numbers of users per task, none negative.
        n_users: public or released number of users.
        strongly_convex: whether losses are strongly convex (ridge is), or only convex.
        balanced: whether every task counts alike, however many users it has.
        count_stddev: standard deviation of the noise in the counts (`ReleasedCounts.users_stddev`); 0 if exact.

    >>> print(recommend_exponent([300, 500, 900, 280], 1000, strongly_convex=True).sentence)
    Exponent 0.5: the bound on excess risk is 1.24 times lower than with equal weights.
    """
    given = np.asarray(counts, np.float64)
    if not count_stddev >= 0:
        raise InputError(f"Expected a standard deviation >= 0, got {count_stddev}.", argument="count_stddev")
    slack = count_stddev * math.sqrt(2 * math.log(2 * max(given.size, 1) / _MISSED))
    n = _positive(given + slack)
    gamma = _gamma(strongly_convex, balanced)
    exponent = (1 + gamma) / 4
    bound = excess_risk(n, exponent, gamma, n_users)
    squares = n ** (-2 * exponent) / ((n ** (1 - 2 * exponent)).sum() / n_users)
    gain = improvement(n, strongly_convex=strongly_convex, balanced=balanced)
    cost = 1 + 2 * slack * float(np.mean(1 / np.maximum(given, 1.0)))
    beyond = float(np.mean(squares > 1))
    return ExponentAdvice(exponent, gain, bound, slack, cost, beyond, _in_words(exponent, gain, cost, beyond))


def _gamma(strongly_convex: bool, balanced: bool) -> float:
    return 2.0 if balanced else 1.0 if strongly_convex else 0.0


def _positive(counts: ArrayLike) -> NDArray[np.float64]:
    n = np.asarray(counts, np.float64)
    if n.ndim != 1 or not n.size or not (np.isfinite(n).all() and (n > 0).all()):
        raise InputError(
            "Expected a positive, finite count for every task; floor released counts first.", argument="counts"
        )
    return n


def _in_words(exponent: float, gain: float, cost: float, beyond: float) -> str:
    text = f"Exponent {exponent:g}: the bound on excess risk is {gain:.3g} times lower than with equal weights"
    if cost > 1:
        text += f"; noise in the counts may take back a factor of up to {cost:.3g}"
    if cost > gain:
        text += ", more than the skew gains"
    if beyond > 0:
        text += f"; {beyond:.0%} of tasks get more than one user's unit and will be clipped"
    return text + "."
