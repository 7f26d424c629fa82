"""How a budget is divided over rounds: equally, as a power of the round, or geometrically. All estimators use these.

Section 4.5 of the model-protection paper gives round t an ε_t ∝ t^α or ∝ Q^(-t). For Gaussian releases ε_t stands for
μ_t = sensitivity / noise, and what adds up is μ_t²: a round's share is proportional to t^(2α) or Q^(-2t).

The optimum follows from errors: a release with noise of scale 1/μ_t leaves an error of order μ_t^(-1/2) in round t. A
plain proximal method adds up Σ_t μ_t^(-1/2), an accelerated one Σ_t t μ_t^(-1/2). For a weight t^c the least sum under
Σ μ_t² = 1 has t^c μ_t^(-3/2) ∝ μ_t, so μ_t ∝ t^(2c/5): α = 0 without acceleration and 2/5 with it (Theorem 6). Under
strong convexity errors of early rounds are forgotten at rate Q₀ = 1 - 1/κ, or 1 - 1/√κ with acceleration (κ the
condition number), and the same calculation gives Q = Q₀^(2/5), or (1 - 1/√κ)^(1/5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from apportion.errors import InputError

__all__ = ["Geometric", "Power", "RoundSchedule", "Uniform", "recommended"]

_LARGEST_LOG = 600.0  # limit of the logarithm of the ratio of two shares, so that none vanishes


class RoundSchedule(Protocol):
    """Divides a budget over rounds."""

    def shares(self, rounds: int) -> list[float]:
        """Return fractions of μ², one for each round, that sum to 1."""


@dataclass(frozen=True)
class Uniform:
    """The same share for every round."""

    def shares(self, rounds: int) -> list[float]:
        """Return 1 / T for each."""
        return _normalised([0.0] * _checked(rounds))


@dataclass(frozen=True)
class Power:
    """μ_t ∝ t^α: later rounds get more if α is positive."""

    alpha: float

    def shares(self, rounds: int) -> list[float]:
        """Return shares proportional to t^(2α)."""
        return _normalised([2 * self.alpha * math.log(t) for t in range(1, _checked(rounds) + 1)])


@dataclass(frozen=True)
class Geometric:
    """μ_t ∝ Q^(-t): later rounds get more if Q is below 1."""

    ratio: float

    @classmethod
    def growing(cls, factor: float) -> Geometric:
        """Return the schedule in which each round gets `factor` times the share of the one before.

        >>> Geometric.growing(2.0).shares(2)  # doctest: +ELLIPSIS
        [0.333..., 0.666...]
        """
        if not (math.isfinite(factor) and factor > 0):
            raise InputError(
                f"Expected each round's share as a factor > 0 of the one before, got {factor}.", argument="factor"
            )
        return cls(factor**-0.5)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio) and self.ratio > 0):
            raise InputError(f"Expected a ratio above 0, got {self.ratio}.", argument="ratio")

    def shares(self, rounds: int) -> list[float]:
        """Return shares proportional to Q^(-2t)."""
        return _normalised([-2 * t * math.log(self.ratio) for t in range(_checked(rounds))])


def recommended(*, accelerated: bool, condition: float | None = None) -> RoundSchedule:
    """Return the schedule of Theorem 6.

    Args:
        accelerated: whether steps have momentum.
        condition: κ, largest over least curvature, if the loss is known to be strongly convex; otherwise None.

    >>> recommended(accelerated=True)
    Power(alpha=0.4)
    """
    if condition is None:
        return Power(0.4) if accelerated else Uniform()
    if not condition > 1:
        raise InputError(f"Expected a condition number above 1, got {condition}.", argument="condition")
    return Geometric((1 - condition**-0.5) ** 0.2 if accelerated else (1 - 1 / condition) ** 0.4)


def _checked(rounds: int) -> int:
    if rounds < 1:
        raise InputError(f"Expected at least 1 round, got {rounds}.", argument="rounds")
    return rounds


def _normalised(logs: list[float]) -> list[float]:
    """Return exp(logs) over their sum; the largest absorbs the rounding, so that they sum to 1."""
    largest = max(logs)
    if largest - min(logs) > _LARGEST_LOG:
        raise InputError(
            f"Expected a schedule whose rounds get shares above 0, got {largest - min(logs):.3g} in log.", argument=None
        )
    weights = [math.exp(log - largest) for log in logs]
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    at = logs.index(largest)
    shares[at] = 1.0 - math.fsum(shares[:at] + shares[at + 1 :])
    return shares
