"""Segments: observations grouped by user or by task, in the form that the kernels of `apportion.linalg` take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.orders import stable_order, take


@dataclass(frozen=True, eq=False)
class Segments:
    """Observations grouped into segments: segment s holds positions indptr[s] to indptr[s+1].

    Attributes:
        indptr: int64, one more than there are segments.
        indices: int32, the other side of each observation (tasks in `by_user`, users in `by_task`).
        values: the value of each observation, in the order of `indices`.
        order: position of each observation in the user-major arrays; `None` if the order is the same.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    order: NDArray[np.int32] | NDArray[np.int64] | None = None

    @property
    def n_segments(self) -> int:
        """The number of segments, including empty ones."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of observations in each segment."""
        return np.diff(self.indptr)


def segments_by_user(
    users: NDArray[np.int32], tasks: NDArray[np.int32], values: NDArray[np.float32], n_users: int
) -> Segments:
    """Return segments of user-major arrays, which are shared, not copied."""
    indptr = np.searchsorted(users, np.arange(n_users + 1, dtype=np.int32)).astype(np.int64)
    return Segments(protected(indptr), tasks, values)


def segments_by_task(
    users: NDArray[np.int32], tasks: NDArray[np.int32], values: NDArray[np.float32] | None, n_tasks: int
) -> Segments:
    """Return the same observations by task, with users ascending within each task; without values if none are given."""
    order: NDArray[Any] = stable_order(tasks, n_tasks)
    if len(order) < 2**31:
        order = order.astype(np.int32)
    indptr = np.zeros(n_tasks + 1, np.int64)
    np.cumsum(np.bincount(tasks, minlength=n_tasks), out=indptr[1:])
    held = np.zeros(0, np.float32) if values is None else take(values, order)
    arrays = (indptr, take(users, order), held, order)
    return Segments(*(protected(array) for array in arrays))


def protected(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
