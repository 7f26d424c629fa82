"""A running sum over users that clips each user's whole part before it is added, and ends as a `BoundedSum`.

The object that clips is the object that states the sensitivity, so the two cannot drift apart. Each user must be added
at most once; a user is one run of rows between consecutive offsets. Clipped parts are cut off towards zero to whole
numbers of a public step, and whole numbers are what is added: no order of additions changes the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import FloatArray, Hidden, Offsets, Parts
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, in_words, moved_by_user

_BITS = 32  # of a clip norm, in steps
_AT_A_TIME = 1 << 20  # rows whose steps add up to less than 2^53, so that doubles hold them exactly


class ClippedTotal(Hidden):
    """Sum of users' parts, each clipped to `clip_norm`.

    Args:
        clip_norm: norm to which a user's whole part is clipped.
        width: number of coordinates of a row.
        n_tasks: number of tasks that rows are added up by, or None to add up all rows.
        what: what a part is, for the statement.
        neighbours: the relation that the sensitivity is for.
    """

    __slots__ = ("_clip_norm", "_n_tasks", "_neighbours", "_step", "_total", "_what")

    def __init__(
        self, clip_norm: float, width: int, n_tasks: int | None, what: str, neighbours: Neighbours = ADD_REMOVE
    ) -> None:
        self._clip_norm = float(clip_norm)
        self._neighbours = neighbours
        self._n_tasks = n_tasks
        self._what = what
        self._step = linalg.step_below(clip_norm, _BITS)
        self._total = np.zeros((width, n_tasks) if n_tasks is not None else width, np.int64)

    def add_by_task(self, rows: FloatArray, indptr: Offsets, tasks: NDArray[np.int32]) -> None:
        """Add one row per observation to its task; a user's rows are clipped together.

        A user's tasks must be in ascending order, each once: two rows for one task would add up before their norm is
        taken.
        """
        starts = np.zeros(len(tasks) + 1, bool)
        starts[indptr] = True
        if not (starts[1:-1] | (np.diff(tasks) > 0)).all():
            raise InputError("Expected the tasks of every user in ascending order, each once.")
        whole = self._whole(Parts.clipped(rows, indptr, self._clip_norm))
        for first in range(0, len(tasks), _AT_A_TIME):
            part = slice(first, first + _AT_A_TIME)
            for column, sums in enumerate(self._total):
                sums += np.bincount(tasks[part], whole[part, column], minlength=len(sums)).astype(np.int64)

    def add_users(self, rows: FloatArray, present: NDArray[np.bool_]) -> None:
        """Add one row per user who is present."""
        whole = self._whole(Parts.clipped(rows, np.arange(len(rows) + 1), self._clip_norm))
        self._total += whole[present].astype(np.int64).sum(axis=0)

    def _whole(self, parts: Parts) -> FloatArray:
        return linalg.whole_steps(parts._values, self._step)

    def sealed(self) -> BoundedSum:
        """The sum so far, hidden, with the sensitivity that its clipping gives it."""
        value: NDArray[Any] = self._total if self._n_tasks is None else np.ascontiguousarray(self._total.T)
        text = f"{self._what}: each user's whole part clipped to norm {self._clip_norm:g}{in_words(self._neighbours)}"
        bound = self._clip_norm * moved_by_user(self._neighbours)
        return BoundedSum(_KEY, value.copy(), bound, text, neighbours=self._neighbours, step=self._step)
