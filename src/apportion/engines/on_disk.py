"""The engine for users on disk: parts of the users are read one after another, in runs that fit in a given memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import DTypeLike

from apportion.data.on_disk.sizes import bytes_in
from apportion.data.users import Users
from apportion.engines.local import LocalEngine

_BYTES_OF_A_ROW = 256  # of a run, at most: its columns, its order by task, weights and users' vectors
_LEAST_ROWS = 10_000


class DiskEngine(LocalEngine):
    """Adds up users who are on disk, on this machine's processors.

    Every sum is on a lattice, so it is the same in every bit as that of `LocalEngine(exact=True)`.

    Args:
        memory: how much memory the users' rows may take, for instance `"2GiB"`. The program itself and the sums, which
            do not depend on the number of users, come on top. A user of very many rows is never divided.
        dtype: precision of what users compute for themselves.
        threads: number of threads, or None for all that this process may use.

    Example:
        >>> from apportion.data import Interactions
        >>> from apportion.allocation import SplitEqually
        >>> from apportion.privacy.contributions import TaskCounts
        >>> data = Interactions.from_arrays(["ann", "ann", "bob"], [10, 20, 10])
        >>> DiskEngine("64MiB").add_up(data.as_users, [TaskCounts(SplitEqually())])
        [BoundedSum(shape=(2,), l2_sensitivity=1, value hidden)]
    """

    def __init__(self, memory: str | int = "2GiB", dtype: DTypeLike = np.float32, threads: int | None = None) -> None:
        self.memory = memory
        self.rows_of_a_run = bytes_in(memory, least=_LEAST_ROWS * _BYTES_OF_A_ROW) // _BYTES_OF_A_ROW
        super().__init__(dtype, threads, min(200_000, self.rows_of_a_run), exact=True)

    def _runs(self, part: Users) -> Iterable[Users]:
        return part.runs(self.rows_of_a_run) if part.n_users else [part]
