"""An engine that makes a pass only when one of its sums is opened.

A resumed fit opens no sum that was released before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from apportion.data.users import UserParts
from apportion.engines.protocol import Engine
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution, Kernels, KeyCounts, KeyShares, PartialSums


class DeferredEngine:
    """Returns sums with their final shape and sensitivity, and adds up when the first one is opened.

    Shapes and sensitivities follow from contributions of no users. Counts of private keys are added up at once, because
    the number of keys depends on the users.

    Args:
        engine: the engine that makes the passes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def exact(self) -> bool:
        """Whether the engine that makes the passes is exact."""
        return self._engine.exact

    @property
    def kernels(self) -> Kernels:
        """The kernels of the engine that makes the passes."""
        return self._engine.kernels

    def add_up(self, users: UserParts, contributions: Sequence[Contribution]) -> list[BoundedSum]:
        """Return sums that are formed, in one pass, when the first of them is opened."""
        if any(isinstance(each, KeyCounts | KeyShares) for each in contributions):
            return self._engine.add_up(users, contributions)
        formed = cache(partial(self._engine.add_up, users, tuple(contributions)))
        empty = PartialSums.over(users.nobody(), contributions, self.kernels).sealed(contributions)
        return [each.deferred(_nth(formed, k)) for k, each in enumerate(empty)]


def _nth(formed: Callable[[], list[BoundedSum]], number: int) -> Callable[[], BoundedSum]:
    return lambda: formed()[number]
