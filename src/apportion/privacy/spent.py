"""What the releases of a session have cost so far, kept as numbers because a session may make very many releases."""

from __future__ import annotations

import math
import os

from apportion.errors import BudgetError
from apportion.privacy.statement import Release


class Spent:
    """Names, costs and parts of δ of all releases of a session.

    Args:
        worth: the size of the whole budget, in the unit of costs.
        keys_delta: the part of δ for lists of private keys.
    """

    def __init__(self, worth: float, keys_delta: float) -> None:
        self._worth = worth
        self._keys_delta = keys_delta
        self._names: set[str] = set()
        self._costs: list[float] = []  # a few numbers with the same exact sum as all costs
        self._deltas: list[float] = []
        self._process = os.getpid()

    def refuse_copy(self) -> None:
        """Refuse a process that was forked off: it has a copy of these numbers, and neither side sees the other's."""
        if os.getpid() != self._process:
            raise BudgetError(
                "This session was opened before the process was forked, and both would spend its budget; open a "
                "session in each process, on one account of a ledger if they share a budget."
            )

    def refuse_taken(self, name: str) -> None:
        """Refuse a name that an earlier release used."""
        if name in self._names:
            raise BudgetError(f"A release named {name!r} was already made in this session.")

    def refuse_beyond(self, record: Release, cost: float) -> None:
        """Refuse a release that costs more than is left of the budget."""
        if math.fsum([*self._deltas, record.delta, -self._keys_delta]) > 0:  # its sign is exact
            raise BudgetError(
                f"Release {record.name!r} asks for {record.delta:g} of delta for a list of private keys, but the "
                f"budget reserves {self._keys_delta:g} for such lists (keys_delta)."
            )
        if math.fsum([*self._costs, cost]) > self._worth:
            left = max(0.0, 1 - math.fsum(self._costs) / self._worth)
            raise BudgetError(
                f"Release {record.name!r} asks for {record.share:.6g} of the budget, but only {left:.6g} is left."
            )

    def take(self, record: Release, cost: float | None) -> None:
        """Record a release. The cost is None if all releases were fixed in advance."""
        self._names.add(record.name)
        if cost is not None:
            self._costs = _with_the_same_sum(self._costs, cost)
        if record.delta:
            self._deltas.append(record.delta)


def _with_the_same_sum(parts: list[float], one: float) -> list[float]:
    """Return numbers with the exact sum of the parts and one more, of which no two overlap (Shewchuk, 1997)."""
    kept, top = [], one
    for part in parts:
        large, small = (top, part) if abs(top) >= abs(part) else (part, top)
        top = large + small
        lost = small - (top - large)
        if lost:
            kept.append(lost)
    return [*kept, top]
