"""An engine that makes a pass only when a sum of it is opened: a resumed fit opens none that was released before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from apportion.data.users import UserParts
from apportion.engines.protocol import Engine
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution, Kernels, KeyCounts, KeyShares, PartialSums


class DeferredEngine:
    """Returns sums with the shape and sensitivity that they will have, and adds up when the first one is opened.

    Shapes and sensitivities follow from contributions of nobody. Counts of private keys are added up at once, because
    how many keys there are follows from the users.

    Args:
        engine: makes the passes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def exact(self) -> bool:
        """As the engine that makes the passes."""
        return self._engine.exact

    @property
    def kernels(self) -> Kernels:
        """Those of the engine that makes the passes."""
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
