"""The total privacy cost allowed per user (`Budget`), and how it is divided (`Share`, `Plan`).

A budget (ε, δ) buys μ² of Gaussian DP. μ² adds up over releases, so a share is a fraction of μ², and a plan is a set of
shares that sum to at most 1. A budget with δ = 0 is pure: there ε itself adds up, and a share is a fraction of ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from apportion.errors import BudgetError, InputError
from apportion.privacy import gaussian

_KEPT_BACK = 1e-12  # keeps the rounded sum of all shares from exceeding the whole budget


@dataclass(frozen=True)
class Budget:
    """The (ε, δ) that everything made from one user's data must stay within; δ = 0 is pure differential privacy.

    Attributes:
        epsilon: ε.
        delta: δ.
        keys_delta: the part of δ that is reserved for lists of private keys; the rest is for noise. If it is all of δ,
            noise must be pure (docs/proofs/keys.md).

    Example:
        >>> Budget(epsilon=1.0, delta=1e-5).mu  # doctest: +ELLIPSIS
        0.268...
    """

    epsilon: float
    delta: float
    keys_delta: float = 0.0
    _mu: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "keys_delta"):  # as float64: float16 rounding would carry over into mu
            object.__setattr__(self, name, _number(getattr(self, name), name))
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"Expected a finite epsilon > 0, got {self.epsilon}.", argument="epsilon")
        if not (self.delta == 0 or 1e-300 < self.delta < 1):
            raise InputError(f"Expected a delta of 0, or above 1e-300 and below 1, got {self.delta}.", argument="delta")
        if not 0 <= self.keys_delta <= self.delta:
            raise InputError(
                f"Expected a part for keys from 0 to delta = {self.delta}, got {self.keys_delta}.", argument="delta"
            )
        object.__setattr__(self, "_mu", gaussian.mu_of(self.epsilon, self.noise_delta) if self.noise_delta else None)

    @property
    def noise_delta(self) -> float:
        """The δ that is left for noise, rounded down."""
        return math.nextafter(self.delta - self.keys_delta, 0.0) if self.keys_delta else self.delta

    @property
    def pure(self) -> bool:
        """Whether no δ is left for noise."""
        return self._mu is None

    @property
    def mu(self) -> float:
        """The Gaussian-DP parameter that the budget buys. A pure budget has none."""
        if self._mu is None:
            problem = f"Expected a delta above 0, because Gaussian noise needs one, got {self.noise_delta}."
            raise InputError(problem, argument="delta")
        return self._mu


@dataclass(frozen=True)
class Share:
    """A fraction of a budget: of its μ², or of its ε if the budget is pure."""

    fraction: float
    of: Budget

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", float(self.fraction))
        if not 0 < self.fraction <= 1:
            raise BudgetError(f"Expected a share of the budget in (0, 1], got {self.fraction}.")

    @property
    def mu(self) -> float:
        """The μ of one Gaussian release that takes the whole share."""
        return self.of.mu * math.sqrt(self.fraction)

    @property
    def pure_epsilon(self) -> float:
        """The ε of one pure release that takes the whole share, never more than its Gaussian-DP bound allows."""
        return self.of.epsilon * self.fraction if self.of.pure else gaussian.pure_of_mu(self.mu)

    def split(self, **fractions: float) -> dict[str, Share]:
        """Divide this share. The fractions are relative to this share and must sum to at most 1."""
        scale = _scale_to_whole(fractions, available=1.0)
        return {name: Share(self.fraction * part * scale, self.of) for name, part in fractions.items()}


class Plan(Mapping[str, "Share | tuple[Share, ...]"]):
    """Named shares of one budget. `plan.one(name)` returns a single share, `plan.several(name)` a tuple of shares."""

    def __init__(self, shares: Mapping[str, Share | tuple[Share, ...]]) -> None:
        self._shares = dict(shares)

    def __getitem__(self, name: str) -> Share | tuple[Share, ...]:
        return self._shares[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shares)

    def __len__(self) -> int:
        return len(self._shares)

    def one(self, name: str) -> Share:
        """Return the share planned under a name that stands for a single release."""
        share = self._shares[name]
        if not isinstance(share, Share):
            raise KeyError(f"{name!r} is a sequence of {len(share)} shares; use several({name!r}).")
        return share

    def several(self, name: str) -> tuple[Share, ...]:
        """Return the shares planned under a name that stands for several rounds."""
        share = self._shares[name]
        if isinstance(share, Share):
            raise KeyError(f"{name!r} is one share; use one({name!r}).")
        return share


def make_plan(budget: Budget, available: float, fractions: Mapping[str, float | Sequence[float]]) -> Plan:
    """Turn fractions of a budget into shares. Refuse fractions that sum to more than is available."""
    flat = {
        f"{name}[{k}]" if isinstance(parts, Sequence) else name: part
        for name, parts in fractions.items()
        for k, part in enumerate(parts if isinstance(parts, Sequence) else [parts])
    }
    scale = _scale_to_whole(flat, available)
    return Plan(
        {
            name: tuple(Share(part * scale, budget) for part in parts)
            if isinstance(parts, Sequence)
            else Share(parts * scale, budget)
            for name, parts in fractions.items()
        }
    )


def _scale_to_whole(fractions: Mapping[str, float], available: float) -> float:
    """Check that the fractions fit, and return the factor that absorbs the rounding of their sum."""
    for name, part in fractions.items():
        if not (math.isfinite(part) and part > 0):
            raise BudgetError(f"Expected the share of {name!r} to be positive and finite, got {part}.")
    asked = math.fsum(fractions.values())
    if asked > available * (1 + 1e-9):
        listed = ", ".join(f"{name}={part:g}" for name, part in fractions.items())
        raise BudgetError(f"The plan asks for {asked:.6g} of the budget, but only {available:.6g} is left ({listed}).")
    return (1 - _KEPT_BACK) * min(1.0, available / asked) if asked else 1.0


def _number(given: object, name: str) -> float:
    try:
        return float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        argument = "delta" if name == "keys_delta" else name
        raise InputError(f"Expected {name} as a number, got {given!r}.", argument=argument) from None
