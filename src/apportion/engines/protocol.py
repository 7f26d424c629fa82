"""The engine protocol: evaluate contributions on runs of users, add up, and return sealed sums.

An engine draws no noise, keeps no state of users between passes and never sees a budget. Whole numbers have the same
sum in any order and grouping, so every engine returns the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from apportion.data.users import UserParts
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution, Kernels


class Engine(Protocol):
    """Adds up the contributions of users."""

    @property
    def exact(self) -> bool:
        """Whether every sum counts whole numbers of a public step."""

    @property
    def kernels(self) -> Kernels:
        """The kernels with which users compute."""

    def add_up(self, users: UserParts, contributions: Sequence[Contribution]) -> list[BoundedSum]:
        """Make one pass over the users. Return one sum for each output of each contribution, in order."""


def add_up_one(engine: Engine, users: UserParts, contribution: Contribution) -> BoundedSum:
    """Return the one sum of one contribution."""
    (result,) = engine.add_up(users, [contribution])
    return result
