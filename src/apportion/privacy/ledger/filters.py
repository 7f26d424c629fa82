"""Privacy filters in exact arithmetic: what an event costs, and whether an account can still cover it.

An account keeps one or several amounts, each the sum of what events cost. All are rationals. A float is a dyadic
rational, so μ² is exact, and a sum that just reaches the total differs from one that exceeds it. A charge is allowed
while at least one amount stays within its own total. Each filter has a theorem (docs/proofs/ledger.md):

    "gaussian"  Σ μ² ≤ μ_total²; a pure ε-DP release is charged the μ of the Gaussian curve below its own
    "pure"      Σ ε ≤ ε_total, at δ = 0
    "renyi"     `apportion.privacy.ledger.renyi`
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from apportion.errors import BudgetError, InputError
from apportion.privacy import gaussian
from apportion.privacy.budget import Budget
from apportion.privacy.ledger.events import Event, GaussianRelease, ListedRelease, PureRelease

Amounts = tuple[Fraction, ...]

_CLOSE = Fraction(1, 10**9)  # two machines may differ this much in what a budget is worth, but never in what was spent


class Filter(ABC):
    """What an account adds up, and the totals it may reach.

    Attributes:
        budget: the whole (ε, δ).
        totals: what each amount may reach.
        measures: what each amount is, in words.
    """

    kind: str

    def __init__(self, budget: Budget, totals: Amounts, measures: tuple[str, ...]) -> None:
        self.budget, self.totals, self.measures = budget, totals, measures

    @property
    def nothing(self) -> Amounts:
        """What is spent before the first charge."""
        return (Fraction(0),) * len(self.totals)

    def allows(self, spent: Amounts) -> bool:
        """Whether at least one amount is within its total."""
        return any(amount <= total for amount, total in zip(spent, self.totals, strict=True))

    @abstractmethod
    def cost(self, event: Event) -> Amounts:
        """Return what an event adds to each amount. Refuse an event that has no theorem."""

    @abstractmethod
    def spent_epsilon(self, spent: Amounts) -> float:
        """Return the ε, at the account's δ, of what was spent, rounded up."""

    @abstractmethod
    def gaussian_left(self, spent: Amounts) -> Fraction:
        """Return the μ² of the largest Gaussian release still allowed; 0 if none is."""

    @abstractmethod
    def spent_mu(self, spent: Amounts) -> float | None:
        """Return the Gaussian-DP parameter of what was spent, rounded up, if it is known."""

    def agrees_with(self, stored: Amounts) -> bool:
        """Whether totals written elsewhere match this budget and do not exceed it."""
        return len(stored) == len(self.totals) and all(
            abs(one - other) <= _CLOSE * abs(other) for one, other in zip(stored, self.totals, strict=True)
        )

    def budget_within(self, fraction: float, spent: Amounts) -> Budget:
        """Return the largest budget, at the account's δ, that takes at most this fraction of what is left."""
        allowed = Fraction(fraction) * self.gaussian_left(spent)
        if _worth(self.budget) <= allowed:
            return self.budget
        mu = root_below(allowed)
        epsilon = gaussian.epsilon_of(mu, self.budget.noise_delta)
        shrink = 1.0
        while epsilon > 0 and shrink > 0.5:
            budget = Budget(epsilon * shrink, self.budget.noise_delta)
            if _worth(budget) <= allowed:
                return budget
            shrink -= 2 * (1 - shrink) + 1e-13
        raise BudgetError(f"Too little is left for a session: mu {mu:.6g} at delta {self.budget.noise_delta:g}.")

    def covers(self, budget: Budget, spent: Amounts) -> bool:
        """Whether a session that spends all of this budget would fit: on Gaussian releases, at δ = 0 on pure ones."""
        if budget.pure:
            return self.allows(added(spent, self.cost(PureRelease(budget.epsilon))))
        return _worth(budget) <= self.gaussian_left(spent)

    def most(self, budget: Budget) -> Amounts | None:
        """Return the most that a session of this budget adds to each amount; None if that is not known beforehand.

        Several pure releases together cost at most what one with the sum of their ε does.
        """
        return self.cost(PureRelease(budget.epsilon)) if budget.pure else (_worth(budget),)


class GaussianFilter(Filter):
    """Σ μ² ≤ μ_total²."""

    kind = "gaussian"

    def __init__(self, budget: Budget) -> None:
        if budget.pure:
            raise InputError("Expected a delta above 0 for an account of kind 'gaussian', got 0.", argument="delta")
        super().__init__(budget, (_worth(budget),), ("mu^2",))

    def cost(self, event: Event) -> Amounts:
        """Return μ², exactly."""
        match event:
            case GaussianRelease(mu):
                return (Fraction(mu) ** 2,)
            case PureRelease(epsilon):
                return (Fraction(gaussian.mu_of_pure(epsilon)) ** 2,)
            case ListedRelease():
                raise no_keys()
            case _:
                raise _no_theorem(self.kind)

    def spent_epsilon(self, spent: Amounts) -> float:
        """Return ε by the exact profile of Gaussian DP."""
        return gaussian.epsilon_of(root_above(spent[0]), self.budget.noise_delta)

    def spent_mu(self, spent: Amounts) -> float | None:
        """Return √Σμ²."""
        return root_above(spent[0])

    def gaussian_left(self, spent: Amounts) -> Fraction:
        """Return μ_total² − Σμ²."""
        return max(Fraction(0), self.totals[0] - spent[0])


class PureFilter(Filter):
    """Σ ε ≤ ε_total."""

    kind = "pure"

    def __init__(self, budget: Budget) -> None:
        if not budget.pure:
            raise InputError(
                f"Expected a delta of 0 for an account of kind 'pure', got {budget.noise_delta:g}.", argument="delta"
            )
        super().__init__(budget, (Fraction(budget.epsilon),), ("epsilon",))

    def cost(self, event: Event) -> Amounts:
        """Return ε, exactly."""
        match event:
            case PureRelease(epsilon):
                return (Fraction(epsilon),)
            case GaussianRelease():
                raise BudgetError(
                    "An account of kind 'pure' has a delta of 0, which rules out Gaussian noise; open one of kind "
                    "'gaussian' for it."
                )
            case ListedRelease():
                raise no_keys()
            case _:
                raise _no_theorem(self.kind)

    def spent_epsilon(self, spent: Amounts) -> float:
        """Return Σ ε."""
        return above(spent[0])

    def spent_mu(self, spent: Amounts) -> float | None:
        """Return None: μ is not counted here."""
        return None

    def gaussian_left(self, spent: Amounts) -> Fraction:
        """Return 0: no Gaussian release fits a delta of 0."""
        return Fraction(0)

    def budget_within(self, fraction: float, spent: Amounts) -> Budget:
        """Return that fraction of the ε that is left."""
        epsilon = below(Fraction(fraction) * (self.totals[0] - spent[0]))
        if epsilon <= 0:
            raise BudgetError(f"Nothing is left of epsilon {self.budget.epsilon:g}.")
        return Budget(epsilon, 0.0)

    def covers(self, budget: Budget, spent: Amounts) -> bool:
        """Whether its ε would fit in what is left."""
        return not budget.pure or Fraction(budget.epsilon) <= self.totals[0] - spent[0]

    def most(self, budget: Budget) -> Amounts | None:
        """Return its ε. No Gaussian release would be charged at all."""
        return (Fraction(budget.epsilon),) if budget.pure else None


def added(one: Amounts, other: Amounts) -> Amounts:
    """Return the exact sum."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


def to_text(amounts: Sequence[Fraction]) -> list[str]:
    """Return amounts as the ledger stores them: whole numbers, or fractions such as 1/3."""
    return [str(amount) for amount in amounts]


def from_text(texts: Sequence[str]) -> Amounts:
    """Read back what `to_text` wrote."""
    return tuple(Fraction(text) for text in texts)


def above(exact: Fraction) -> float:
    """Return the least float that is not below an exact number."""
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def below(exact: Fraction) -> float:
    """Return the largest float that is not above an exact number."""
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


def root_above(square: Fraction) -> float:
    """Return the least float whose square is not below an exact number."""
    near = math.sqrt(above(square))
    while near and Fraction(math.nextafter(near, 0.0)) ** 2 >= square:
        near = math.nextafter(near, 0.0)
    while Fraction(near) ** 2 < square:
        near = math.nextafter(near, math.inf)
    return near


def root_below(square: Fraction) -> float:
    """Return the largest float whose square is not above an exact number."""
    up = root_above(square)
    return up if Fraction(up) ** 2 <= square else math.nextafter(up, 0.0)


def _worth(budget: Budget) -> Fraction:
    return Fraction(budget.mu) ** 2


def no_keys() -> BudgetError:
    """Return the error of an account that reserves no δ for lists of private keys."""
    return BudgetError(
        "This account keeps no part of its delta for lists of private keys. Open one that does (`ledger init "
        "--keys-delta`), or declare the list public."
    )


def _no_theorem(kind: str) -> BudgetError:
    return BudgetError(
        f"An account of kind {kind!r} cannot be charged for releases on samples of the users, or for "
        "selections: its sum has no theorem for them. Open an account of kind 'renyi'."
    )
