"""Weighted counts by task, fused: each user's weights are formed, bounded and added up in one pass."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.linalg import kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import check_order, checked_indptr, checked_integers, checked_sums, refuse_order
from apportion.linalg.fixed_sums import Runs
from apportion.linalg.rating_settings import TaskWeights

_AT_A_TIME = 1 << 20  # observations at a time in the NumPy path


def task_counts(
    indptr: ArrayLike,
    tasks: ArrayLike,
    weights: TaskWeights,
    step: float,
    sums: NDArray[np.int64],
    *,
    threads: int | None = None,
) -> None:
    """Add every user's weights to the sums of its tasks, in whole steps, truncated towards zero.

    Args:
        indptr: int64[n + 1]: user j owns observations indptr[j] .. indptr[j + 1]; starts with 0.
        tasks: int32, one per observation, in ascending order within a user, each once.
        weights: the weights of tasks; each user's weights are scaled so that their squares sum to at most 1.
        step: the step of the lattice, a power of two, at least 2^-50.
        sums: the sums to add to, int64, one per task.
        threads: number of threads; None is all.

    >>> sums = np.zeros(2, np.int64)
    >>> task_counts([0, 1, 3], [0, 0, 1], TaskWeights(np.ones(2)), 2.0**-10, sums)
    >>> sums  # nearly 1 + 1/√2 and 1/√2
    array([1747,  724])
    """
    starts, picks = checked_indptr(indptr), checked_integers("tasks", tasks, np.int32)
    if starts[-1] != picks.size:
        raise InputError(
            f"Expected indptr from 0 to {picks.size}, the number of observations, got {starts[-1]} last.",
            argument="indptr",
        )
    checked_sums(sums, weights.values.shape)
    if active_backend() == "compiled":
        _by_kernel(starts, picks, weights, step, sums, threads)
        return
    check_order(starts, picks, sums.size)
    for runs, part in Runs(starts).some_at_a_time(_AT_A_TIME):
        whole = np.trunc(weights.of_runs(runs, picks[part]) * (1 / step)).astype(np.int64)
        np.add.at(sums, picks[part], whole)


def tasks_in_order(indptr: NDArray[np.int64], tasks: NDArray[np.int32], *, threads: int | None = None) -> bool:
    """Return whether the tasks of every user are in ascending order, each once.

    >>> tasks_in_order(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32))
    True
    >>> tasks_in_order(np.array([0, 3]), np.array([0, 1, 1], np.int32))
    False
    """
    if active_backend() == "compiled" and tasks.dtype == np.int32 and tasks.flags.c_contiguous:
        arguments = _Arguments(n_users=len(indptr) - 1, n_tasks=np.iinfo(np.int64).max)
        arguments.indptr, arguments.tasks = indptr.ctypes.data, tasks.ctypes.data
        return kernel.out_of_order(arguments, threads=threads) is None
    starts = np.zeros(len(tasks) + 1, bool)
    starts[indptr] = True
    return bool((starts[1:-1] | (np.diff(tasks) > 0)).all())


class _Arguments(ctypes.Structure):
    """`CountArguments` of `_users.cpp`."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("n_users", "n_tasks")]
        + [(name, ctypes.c_void_p) for name in ("indptr", "tasks", "task_weights", "sums")]
        + [(name, ctypes.c_double) for name in ("weight_norm", "least_weight_norm", "per_step")]
    )


def _by_kernel(
    indptr: NDArray[np.int64],
    tasks: NDArray[np.int32],
    weights: TaskWeights,
    step: float,
    sums: NDArray[np.int64],
    threads: int | None,
) -> None:
    arguments = _Arguments(n_users=len(indptr) - 1, n_tasks=sums.size, per_step=1 / step)
    arguments.weight_norm, arguments.least_weight_norm = weights.norm, weights.least_norm
    arrays: dict[str, NDArray[Any]] = {"indptr": indptr, "tasks": tasks, "task_weights": weights.values, "sums": sums}
    for name, array in arrays.items():
        setattr(arguments, name, array.ctypes.data)
    if kernel.task_counts(arguments, threads=threads) is not None:
        refuse_order(sums.size)
