"""One round on ratings: everything that a user computes and contributes, fused into one pass per user.

The compiled kernel works user by user, near the processor's caches; `rating_reference` does the same in NumPy. Both
give the same whole numbers: on every instruction set, for any number of threads, and however users are cut into runs.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.linalg import kernel, rating_reference
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import (
    FLOATS,
    check_order,
    checked_floats,
    checked_indptr,
    checked_integers,
    checked_sums,
    refuse_order,
)
from apportion.linalg.fixed_sums import MARGIN, Runs, clipped_steps
from apportion.linalg.rating_settings import RatingRound, TaskWeights

Whole = NDArray[np.int64]

_AT_A_TIME = 100_000  # observations of the NumPy path
_MOST_COPIES = 1 << 28  # bytes of sums that threads may have for themselves; beyond it they share one place


def rating_round(
    indptr: ArrayLike,
    tasks: ArrayLike,
    values: ArrayLike,
    weights: ArrayLike | TaskWeights,
    this_round: RatingRound,
    by_task: Whole,
    total: Whole,
    *,
    threads: int | None = None,
) -> None:
    """Add the parts of some users to the sums of a round, in whole steps.

    User j solves for (b, s, q), own bias, own factor on item biases and own taste, by a ridge regression of the labels
    on the features. Then it contributes the row w e (s, v q) · scales to each task i that it rated, where e is the
    residual, and s and q are the solution, *without* that task, and v is the weight of the task's vector. It also
    contributes a vote (1, s², e², clipped e², e, q qᵀ) on the moments that all tasks share. All rows of a user together
    are clipped to `clip_norm`, its vote to `summary_clip`. Both are truncated towards zero to whole steps. A user whose
    regression has no solution, or whose part is not finite, contributes zero.

    Each user's numbers depend on its own observations and on `this_round` alone, to the last bit. So the sums do not
    depend on the order of users, on threads or on how users are divided into calls.

    Args:
        indptr: int64[n + 1]: user j owns observations indptr[j] .. indptr[j + 1]; starts with 0.
        tasks: int32, one per observation, in ascending order within a user, each once.
        values: float32 or float64, one per observation.
        weights: one per observation, with squares that sum to at most 1 for each user; or `TaskWeights`, which the
            kernel turns into such weights.
        this_round: the public numbers of the round.
        by_task: the sums to which rows are added, int64 [n_tasks, width].
        total: the sum to which votes are added, int64 [summary_width].
        threads: number of threads; None is all.

    Raises:
        InputError: for arguments that do not fit together, or tasks that are out of order; nothing is added then.
    """
    starts = checked_indptr(indptr)
    picks = checked_integers("tasks", tasks, np.int32)
    if starts[-1] != picks.size:
        raise InputError(
            f"Expected indptr from 0 to {picks.size}, the number of observations, got {starts[-1]} last.",
            argument="indptr",
        )
    seen = checked_floats("values", values, shape=picks.shape)
    own = weights if isinstance(weights, TaskWeights) else checked_floats("weights", weights, shape=picks.shape)
    if isinstance(own, TaskWeights) and own.values.shape != (this_round.n_tasks,):
        raise InputError(
            f"Expected a weight for each of {this_round.n_tasks} tasks, got {own.values.size}.", argument="weights"
        )
    checked_sums(by_task, (this_round.n_tasks, this_round.width))
    checked_sums(total, (this_round.summary_width,))
    if active_backend() == "compiled":
        _by_kernel(starts, picks, seen, own, this_round, by_task, total, threads)
    else:
        _by_numpy(starts, picks, seen, own, this_round, by_task, total)


def _by_numpy(
    indptr: NDArray[np.int64],
    tasks: NDArray[np.int32],
    values: NDArray[Any],
    weights: NDArray[Any] | TaskWeights,
    this_round: RatingRound,
    by_task: Whole,
    total: Whole,
) -> None:
    """Process some users at a time."""
    check_order(indptr, tasks, this_round.n_tasks)
    for runs, part in Runs(indptr).some_at_a_time(_AT_A_TIME):
        picks, seen = tasks[part], np.asarray(values[part], np.float64)
        own = (
            weights.of_runs(runs, picks) if isinstance(weights, TaskWeights) else np.asarray(weights[part], np.float64)
        )
        rows, votes = rating_reference.rows_and_votes(runs, picks, seen, own, this_round)
        np.add.at(by_task, picks, clipped_steps(rows, runs, this_round.clip_norm, this_round.step).astype(np.int64))
        whole = rating_reference.clipped_votes(votes, this_round.summary_clip, this_round.summary_step)
        total += whole.astype(np.int64).sum(axis=0)


class _Arguments(ctypes.Structure):
    """`RatingArguments` of `_users.cpp`."""

    _fields_ = (
        [("n_users", ctypes.c_int64)]
        + [(name, ctypes.c_void_p) for name in ("indptr", "tasks", "values", "weights", "task_weights", "features")]
        + [(name, ctypes.c_void_p) for name in ("trust", "base", "base_rhs", "scales")]
        + [(name, ctypes.c_void_p) for name in ("vector_weights", "summary_scales")]
        + [(name, ctypes.c_void_p) for name in ("by_task", "total")]
        + [(name, ctypes.c_int64) for name in ("n_tasks", "dim", "most_copies")]
        + [(name, ctypes.c_int32) for name in ("double_values", "double_weights", "starting", "unused")]
        + [(name, ctypes.c_double) for name in ("low", "high", "centre", "unit", "most_leverage", "start_norm")]
        + [(name, ctypes.c_double) for name in ("shortest_taste", "full_vote", "least_weight", "least_weight_norm")]
        + [(name, ctypes.c_double) for name in ("weight_norm", "clip_norm", "inner_norm", "shortest_part", "per_step")]
        + [(name, ctypes.c_double) for name in ("summary_inner_norm", "summary_per_step")]
    )


def _by_kernel(
    indptr: NDArray[np.int64],
    tasks: NDArray[np.int32],
    values: NDArray[Any],
    weights: NDArray[Any] | TaskWeights,
    this_round: RatingRound,
    by_task: Whole,
    total: Whole,
    threads: int | None,
) -> None:
    arguments = _Arguments(
        n_users=len(indptr) - 1, n_tasks=this_round.n_tasks, dim=this_round.dim, starting=this_round.starting
    )
    arrays: dict[str, NDArray[Any]] = {"indptr": indptr, "tasks": tasks, "values": values}
    arrays |= {"by_task": by_task, "total": total}
    for name in ("features", "trust", "base", "base_rhs", "scales", "vector_weights", "summary_scales"):
        arrays[name] = getattr(this_round, name)
    if isinstance(weights, TaskWeights):
        arrays["task_weights"] = weights.values
        arguments.weight_norm, arguments.least_weight_norm = weights.norm, weights.least_norm
    else:
        arrays["weights"] = weights
        arguments.double_weights = weights.dtype == FLOATS[1]
    for name, array in arrays.items():
        setattr(arguments, name, array.ctypes.data)
    arguments.double_values, arguments.most_copies = values.dtype == FLOATS[1], _MOST_COPIES
    arguments.low, arguments.high = this_round.value_range
    for name in ("centre", "unit", "most_leverage", "start_norm", "shortest_taste", "full_vote", "least_weight"):
        setattr(arguments, name, getattr(this_round, name))
    arguments.clip_norm, arguments.shortest_part = this_round.clip_norm, this_round.shortest_part
    arguments.inner_norm, arguments.per_step = this_round.clip_norm * (1 - MARGIN), 1 / this_round.step
    arguments.summary_inner_norm, arguments.summary_per_step = (
        this_round.summary_clip * (1 - MARGIN),
        1 / this_round.summary_step,
    )
    if kernel.rating_round(arguments, threads=threads) is not None:
        refuse_order(this_round.n_tasks)
