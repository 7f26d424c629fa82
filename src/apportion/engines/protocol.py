"""What an engine must do: evaluate contributions on runs of users, add up, and hand out sealed sums.

An engine draws no noise, keeps no state of users between passes and never sees a budget. Whole numbers add up to the
same in any order and grouping, so that every engine returns the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from apportion.data.users import Users
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution, Kernels


class Engine(Protocol):
    """Adds up what users contribute."""

    @property
    def exact(self) -> bool:
        """Whether every sum is whole numbers of a public step."""

    @property
    def kernels(self) -> Kernels:
        """What users compute with."""

    def add_up(self, users: Users, contributions: Sequence[Contribution]) -> list[BoundedSum]:
        """One pass over the users: one sum for each output of each contribution, in order."""


def add_up_one(engine: Engine, users: Users, contribution: Contribution) -> BoundedSum:
    """The one sum of one contribution."""
    (found,) = engine.add_up(users, [contribution])
    return found
