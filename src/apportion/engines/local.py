"""The engine for one machine's memory and processors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import DTypeLike

from apportion.data.users import UserParts, Users
from apportion.engines.processors import Processors
from apportion.errors import InputError
from apportion.linalg import active_backend
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution, Kernels, PartialSums


class LocalEngine:
    """Adds up on this machine's processors.

    Sums of clipped parts and of weights are always on a lattice. Gram matrices and moments are on a lattice only if
    `exact` is True. Releases with exact noise need that, and so do several runs of users.

    Args:
        dtype: precision of what users compute for themselves.
        threads: number of threads, or None for all that this process may use.
        chunk: rows processed at a time in NumPy.
        exact: whether every sum is on a lattice.
        runs: number of runs into which users are divided; the sums do not depend on it.

    Example:
        >>> from apportion.allocation import SplitEqually
        >>> from apportion.data import Interactions
        >>> from apportion.privacy.contributions import TaskCounts
        >>> data = Interactions.from_arrays(["ann", "ann", "bob"], [10, 20, 10])
        >>> LocalEngine().add_up(data.as_users, [TaskCounts(SplitEqually())])
        [BoundedSum(shape=(2,), l2_sensitivity=1, value hidden)]
    """

    def __init__(
        self,
        dtype: DTypeLike = np.float32,
        threads: int | None = None,
        chunk: int = 200_000,
        *,
        exact: bool = False,
        runs: int = 1,
    ) -> None:
        if runs < 1 or chunk < 1:
            raise InputError(
                f"Expected at least 1 run of users and 1 row per chunk, got {runs} and {chunk}.", argument=None
            )
        self.dtype = np.dtype(dtype)
        self.threads = threads
        self.chunk = chunk
        self.exact = exact or runs > 1
        self.runs = runs
        self.kernels: Kernels = self._make_kernels()

    @classmethod
    def in_whole_numbers(cls, dtype: DTypeLike = np.float32) -> LocalEngine:
        """Return an engine whose sums have the bits of those of a folder or a cluster, if the kernel is there."""
        return LocalEngine(dtype, exact=active_backend() == "compiled")

    def _make_kernels(self) -> Kernels:
        return Processors(self.dtype, self.threads, self.chunk, exact=self.exact)

    def add_up(self, users: UserParts, contributions: Sequence[Contribution]) -> list[BoundedSum]:
        """Make one pass over the users, one run at a time."""
        runs = (run for part in users.parts() for run in self._runs(part))
        partial = (PartialSums.over(run, contributions, self.kernels) for run in runs)
        return reduce(add, partial).sealed(contributions)

    def _runs(self, part: Users) -> Iterable[Users]:
        return [part] if self.runs == 1 else part.cut(self.runs)
