"""Rows of users that are held out: those with the smallest hashes of (user, task) under a public key.

The compiled kernel and NumPy mark the same rows.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.keyed_words import keyed_words


def held_out_rows(
    key: bytes,
    users: NDArray[np.uint64],
    indptr: NDArray[np.int64],
    tasks: NDArray[np.int32],
    *,
    fraction: float,
    voters: float,
    most: int,
) -> NDArray[np.bool_]:
    """Return, for each row, whether it is held out. This depends on its own user's rows alone.

    Args:
        key: 32 bytes, public.
        users: two numbers for each user.
        indptr: offsets of users.
        tasks: the task of each row.
        fraction: rows whose hash is in this lowest fraction may be held out.
        voters: users whose hash is in this lowest fraction hold out rows.
        most: the most rows of one user; the row with the largest hash is never held out.
    """
    own, held = keyed_words(key, users), np.zeros(len(tasks), bool)
    if active_backend() == "compiled":
        limits = _Arguments(n_users=len(own), most=most, users_below=_end(voters), rows_below=_end(fraction))
        _mark_by_kernel(key, limits, indptr=indptr, tasks=np.ascontiguousarray(tasks, np.int32), users=own, held=held)
        return held
    voting = np.flatnonzero(_below(own, voters))
    sizes = np.diff(indptr)[voting]
    asked = np.arange(sizes.sum()) + np.repeat(indptr[voting] - np.cumsum(sizes) + sizes, sizes)
    asking = np.repeat(voting, sizes)
    hashes = keyed_words(key, np.stack([own[asking], tasks[asked].astype(np.uint64)], axis=1))
    low = np.flatnonzero(_below(hashes, fraction))  # all rows with a still smaller hash are among them
    low = low[np.lexsort((hashes[low], asking[low]))]
    small, owner = asked[low], asking[low]
    rank = np.arange(len(small)) - np.searchsorted(owner, owner)
    held[small[rank < np.minimum(most, np.diff(indptr) - 1)[owner]]] = True
    return held


def _mark_by_kernel(key: bytes, arguments: _Arguments, **arrays: NDArray[Any]) -> None:
    """Mark the rows in the array `held`."""
    for name, array in arrays.items():
        setattr(arguments, name, array.ctypes.data)
    kernel.held_out(key, arguments)


class _Arguments(ctypes.Structure):
    """`HeldOutArguments` of `_kernel.cpp`."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("n_users", "most")]
        + [(name, ctypes.c_void_p) for name in ("indptr", "tasks", "users", "held")]
        + [(name, ctypes.c_uint64) for name in ("users_below", "rows_below")]
    )


def _end(fraction: float) -> int:
    return math.floor(fraction * 2.0**53)


def _below(hashes: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Return which hashes are in the lowest fraction of all 64-bit numbers."""
    return np.asarray((hashes >> np.uint64(11)) < np.uint64(_end(fraction)))
