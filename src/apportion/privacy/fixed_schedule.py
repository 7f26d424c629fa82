"""Sessions that fix all their releases before the first one: those of one planned mechanism, and Gaussian ones.

No filter theorem is as tight for them as numerical composition, and that must know all releases in advance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from apportion.errors import BudgetError
from apportion.privacy import accounting
from apportion.privacy.budget import Budget
from apportion.privacy.mechanisms import Gaussian, PlannedMechanism, PlannedShare
from apportion.privacy.statement import Release

_CLOSE = 1e-9  # parts of a release add up to 1 within this


@lru_cache(maxsize=256)  # repeated fits with one budget ask the same question, and each answer takes a second
def noise_beside(mus: tuple[float, ...], mechanism: PlannedMechanism, steps: int, budget: Budget) -> float:
    """Return the noise multiplier of `steps` planned releases that fit the budget beside Gaussian ones of these μ."""
    fixed = [accounting.Gaussian(1 / mu) for mu in mus]
    return accounting.calibrate(lambda z: [*fixed, mechanism.part(z, steps)], budget)


@lru_cache(maxsize=256)
def cost_of_all(mus: tuple[float, ...], share: PlannedShare[Any], made: int, budget: Budget) -> float:
    """Return the ε of Gaussian releases of these μ and `made` planned ones, at the budget's δ."""
    parts: list[accounting.Part] = [accounting.Gaussian(1 / mu) for mu in mus]
    if made:
        parts.append(share.mechanism.part(share.noise_multiplier, made))
    return accounting.epsilon_of(parts, budget.noise_delta, accounting.interval_for(budget)) if parts else 0.0


@dataclass
class FixedSchedule:
    """What a session with planned releases may still do. All of it was fixed before the first release."""

    gaussian: Counter[float]
    planned: PlannedShare[Any]
    made: int = 0
    begun: float = 0.0  # the part of a planned release that was made, if its other part must follow

    def take(self, record: Release, share: PlannedShare[Any] | None) -> None:
        """Count one of the planned releases. Refuse one that is not in the plan, or more than were planned."""
        if share is None:
            self._take_gaussian(record)
            return
        if (share.of or share) != self.planned or not 0 < share.part <= 1:
            raise BudgetError(f"Expected a share that a plan of this session made, got {share}.")
        if self.begun:
            self._take_rest(share)
            return
        if self.made >= share.steps:
            raise BudgetError(f"All {share.steps} planned releases of this session have been made.")
        self.made += 1
        self.begun = 0.0 if share.of is None else share.part

    def _take_rest(self, share: PlannedShare[Any]) -> None:
        if share.of is None or abs(self.begun + share.part - 1) > _CLOSE:
            raise BudgetError(f"Expected the other part of a release of which {self.begun:g} was made, got {share}.")
        self.begun = 0.0

    def _take_gaussian(self, record: Release) -> None:
        if record.mechanism != Gaussian.key or record.mu is None or self.gaussian[record.mu] < 1:
            raise BudgetError(f"Release {record.name!r} is not part of this session's plan.")
        self.gaussian[record.mu] -= 1

    def spent_epsilon(self, releases: Sequence[Release], budget: Budget) -> float:
        """Return the ε of what was released, including planned releases."""
        mus = tuple(r.mu for r in releases if r.mu is not None and r.mechanism == Gaussian.key)
        return cost_of_all(mus, self.planned, self.made, budget)
