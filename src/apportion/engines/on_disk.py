"""The engine for users on disk: parts of the users are read one after another, in runs that fit in a given memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import DTypeLike

from apportion.data.users import Users
from apportion.engines.local import LocalEngine
from apportion.errors import InputError

_BYTES_OF_A_ROW = 256  # of a run, at most: its columns, its order by task, weights and users' vectors
_LEAST_ROWS = 10_000
_UNITS = {"B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9}


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
        self.rows_of_a_run = max(bytes_in(memory) // _BYTES_OF_A_ROW, 1)
        if self.rows_of_a_run < _LEAST_ROWS:
            least = _LEAST_ROWS * _BYTES_OF_A_ROW / (1 << 20)
            raise InputError(f"Expected memory of at least {least:.3g} MiB, got {memory!r}.", argument="memory")
        super().__init__(dtype, threads, min(200_000, self.rows_of_a_run), exact=True)

    def _runs(self, part: Users) -> Iterable[Users]:
        return part.runs(self.rows_of_a_run) if part.n_users else [part]


def bytes_in(size: str | int) -> int:
    """Return the bytes of a size: a number, or a number with a unit.

    >>> bytes_in("1.5GiB")
    1610612736
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?\s*", str(size).upper())
    if found is None or (found[2] or "B") not in _UNITS:
        raise InputError(f"Expected a size such as '2GiB' or '500MB', got {size!r}.", argument="memory")
    return int(float(found[1]) * _UNITS[found[2] or "B"])
