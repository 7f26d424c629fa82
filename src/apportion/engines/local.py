"""The engine of one machine: NumPy arrays and the segment kernels of `apportion.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion import linalg
from apportion.data import Interactions
from apportion.engines.protocol import (
    Floats,
    Part,
    UserChunk,
    check_layout,
    refuse_observation_rows,
    rows_by_task,
    user_chunks,
)
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, Rows, Weights
from apportion.privacy.clipped_total import ClippedTotal
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours

_WEIGHT_BITS = 32  # of a weight of 1, in steps
_AT_A_TIME = 1 << 20  # weights whose steps add up to less than 2^53, so that doubles hold them exactly
_NUMBERS_AT_ONCE = 1 << 23  # of users' own rows, however wide they are


class LocalEngine:
    """Sums on this machine's processors.

    Whatever is released is summed in float64: in float32 the rounding of a sum over a million users moves it by a few
    per cent of the sensitivity when one of them leaves. Sums of whole parts and of weights are on a lattice; Gram
    matrices and moments are on one where `exact` says so, as releases with exact noise need them.

    Args:
        dtype: precision of what users compute for themselves.
        threads: number of threads, or None for all that this process may use.
        chunk: observations worked on at once where parts are formed in NumPy.
        exact: whether every sum is to be on a lattice; this needs the compiled kernel, whose solutions for one user do
            not depend on the others in any bit.
    """

    def __init__(
        self,
        dtype: DTypeLike = np.float32,
        threads: int | None = None,
        chunk: int = 200_000,
        *,
        exact: bool = False,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.threads = threads
        self.chunk = chunk
        self.exact = exact
        self._require_kernel()

    def _require_kernel(self) -> None:
        """Refuse to be exact where the kernel is not: NumPy takes users in batches, which move their last bits."""
        if self.exact and linalg.active_backend() != "compiled":
            raise InputError("Expected the compiled kernel for exact sums; it was not built on this machine.")

    def counts(self, data: Interactions, weights: Weights) -> BoundedSum:
        """Σ_j w_ij for every task i."""
        check_layout(data, weights)
        step = linalg.step_below(1.0, _WEIGHT_BITS)
        sums = np.zeros(data.n_tasks, np.int64)
        for first in range(0, data.n_observations, _AT_A_TIME):
            part = slice(first, first + _AT_A_TIME)
            whole = linalg.whole_steps(weights._values[part], step)
            sums += np.bincount(data.tasks[part], whole, minlength=data.n_tasks).astype(np.int64)
        return BoundedSum.counts(sums, weights, step)

    def moments(self, data: Interactions, weights: Weights, rows: Rows, labels: Labels | None = None) -> BoundedSum:
        """Σ_j w_ij y_ij x_j for every task i; labels of 1 if none are given."""
        check_layout(data, weights, rows, labels)
        by_task = data.by_task
        coefficients = weights._in_order(by_task.order)
        if labels is not None:
            coefficients = coefficients * labels._values[by_task.order]
        if self.exact:
            step = linalg.step_below(rows.norm * (1.0 if labels is None else labels.bound))
            counts = linalg.lattice_moment(
                by_task.indptr,
                rows_by_task(data, rows),
                rows._values,
                coefficients=coefficients,
                step=step,
                threads=self.threads,
            )
            return BoundedSum.moments(counts, weights, rows, labels, step)
        sums = linalg.segment_moment(
            by_task.indptr,
            rows_by_task(data, rows),
            rows._values,
            coefficients=coefficients,
            dtype=np.float64,
            threads=self.threads,
        )
        return BoundedSum.moments(sums, weights, rows, labels)

    def grams(self, data: Interactions, weights: Weights, rows: Rows) -> BoundedSum:
        """Σ_j w_ij x_j x_jᵀ for every task i, packed lower triangles."""
        check_layout(data, weights, rows)
        by_task = data.by_task
        if self.exact:
            step = _factor_step(rows)
            counts = linalg.lattice_gram(
                by_task.indptr,
                rows_by_task(data, rows),
                rows._values,
                weights=weights._in_order(by_task.order),
                step=step,
                threads=self.threads,
            )
            return BoundedSum.grams(counts, weights, rows, step**2)
        sums = linalg.segment_gram(
            by_task.indptr,
            rows_by_task(data, rows),
            rows._values,
            weights=weights._in_order(by_task.order),
            dtype=np.float64,
            threads=self.threads,
        )
        return BoundedSum.grams(sums, weights, rows)

    def user_total(self, data: Interactions, rows: Rows) -> BoundedSum:
        """Σ_j x_j over the users who have data."""
        step = linalg.step_below(rows.norm)
        whole = linalg.whole_steps(_present(data, rows), step).astype(np.int64)
        return BoundedSum.user_total(whole.sum(axis=0), rows, step)

    def user_gram(self, data: Interactions, rows: Rows, neighbours: Neighbours = ADD_REMOVE) -> BoundedSum:
        """Σ_j x_j x_jᵀ over the users who have data, packed."""
        present = _present(data, rows)
        if not self.exact:
            return BoundedSum.user_gram(linalg.pack(present.T @ present), rows, neighbours=neighbours)
        step, everybody = _factor_step(rows), np.arange(len(present), dtype=np.int32)
        counts = linalg.lattice_gram([0, len(present)], everybody, present, step=step, threads=self.threads)
        return BoundedSum.user_gram(counts[0], rows, step**2, neighbours)

    def user_sum(
        self,
        data: Interactions,
        part: Callable[[UserChunk], Floats],
        width: int,
        clip_norm: float,
        what: str,
        neighbours: Neighbours = ADD_REMOVE,
    ) -> BoundedSum:
        """Add up per-user rows, each clipped to `clip_norm`; users without data contribute nothing."""
        self._require_kernel()
        total = ClippedTotal(clip_norm, width, None, what, neighbours)
        for chunk in user_chunks(data, self.chunk):
            total.add_users(part(chunk), np.diff(chunk.indptr) > 0)
        return total.sealed()

    def part_sums(
        self,
        data: Interactions,
        weights: Weights,
        part: Part,
        widths: tuple[int, int],
        clip_norms: tuple[float, float],
        what: str,
    ) -> tuple[BoundedSum, BoundedSum]:
        """Add up rows by task, and rows by user, from one pass over the users."""
        self._require_kernel()
        check_layout(data, weights)
        by_task = ClippedTotal(clip_norms[0], widths[0], data.n_tasks, what, weights.neighbours)
        over_users = ClippedTotal(clip_norms[1], widths[1], None, what, weights.neighbours)
        at_once = max(_NUMBERS_AT_ONCE // widths[1], 1)
        for chunk in user_chunks(data, self.chunk, weights._values, at_once):
            rows, summary = part(chunk)
            by_task.add_by_task(rows, chunk.indptr, chunk.tasks)
            over_users.add_users(summary, _one_row_each(chunk, len(summary)))
        return by_task.sealed(), over_users.sealed()

    def total_of_users(self, data: Interactions, features: Any) -> NDArray[Any]:
        """Add up the features of every user's own tasks."""
        self._require_kernel()
        by_user = data.by_user
        return linalg.segment_moment(
            by_user.indptr,
            by_user.indices,
            self.asarray(features),
            coefficients=np.ones(data.n_observations, self.dtype),
            threads=self.threads,
        )

    def solve_users(
        self,
        data: Interactions,
        features: Any,
        labels: Any,
        base: Any,
        base_rhs: Any | None = None,
        weights: Any | None = None,
    ) -> NDArray[Any]:
        """Solve every user's own ridge regression; see `Engine.solve_users`."""
        self._require_kernel()
        by_user = data.by_user
        return linalg.segment_solve(
            by_user.indptr,
            by_user.indices,
            self.asarray(features),
            weights=None if weights is None else self.asarray(weights),
            labels=self.asarray(labels),
            base=self.asarray(base),
            base_rhs=None if base_rhs is None else self.asarray(base_rhs),
            unsolved="zero",  # a refusal would tell of one user's data
            threads=self.threads,
        )

    def asarray(self, values: Any) -> NDArray[Any]:
        """Bring values to this engine's precision, contiguous."""
        return np.ascontiguousarray(values, dtype=self.dtype)


def _factor_step(rows: Rows) -> float:
    """The step of the factors of a Gram matrix of these rows, with weights of at most 1."""
    return linalg.step_below(rows.norm, linalg.FACTOR_BITS)


def _present(data: Interactions, rows: Rows) -> NDArray[np.float64]:
    """Rows of the users who have data; a user without any contributes nothing, as if absent."""
    refuse_observation_rows(rows)
    check_layout(data, rows=rows)
    return np.asarray(rows._values[np.diff(data.by_user.indptr) > 0], dtype=np.float64)


def _one_row_each(chunk: UserChunk, n_rows: int) -> NDArray[np.bool_]:
    """Which of the rows per user count: those of users taking part, who are all that there are rows for, or some of it.

    Any other number of rows would be several for one user, each clipped by itself.
    """
    taking_part = chunk.taking_part
    if n_rows == len(taking_part):
        return taking_part
    if n_rows == int(taking_part.sum()):
        return np.ones(n_rows, bool)
    raise InputError("Expected a row for each user, or for each that is taking part, got another number of rows.")
