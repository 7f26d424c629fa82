"""The kernels of this machine's processors: NumPy arrays and the segment kernels of `apportion.linalg`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.linalg.orders import take
from apportion.linalg.places import PROCESSORS, Place
from apportion.linalg.ranks import Ranked
from apportion.privacy.contributions.base import Floats, TaskOrder, UserRun

_RANKED_AT_ONCE = 512  # number of rows whose products with all columns are in memory at a time

Summed = tuple[NDArray[Any], float | None]


class Processors:
    """Segment sums and local regressions on this machine's processors.

    Released sums are added in float64. In float32, rounding would change a sum over a million users by a few per cent
    of the sensitivity when one user leaves.

    Args:
        dtype: precision of what users compute for themselves.
        threads: number of threads, or None for all that this process may use.
        rows_at_once: rows processed at a time in NumPy.
        exact: whether every sum is on a lattice. This needs the compiled kernel, in which no bit of one user's solution
            depends on other users.
    """

    def __init__(
        self,
        dtype: DTypeLike = np.float32,
        threads: int | None = None,
        rows_at_once: int = 200_000,
        *,
        exact: bool = False,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.threads = threads
        self.rows_at_once = rows_at_once
        self.exact = exact
        self._require_kernel()

    def _require_kernel(self) -> None:
        """Refuse exact sums without the compiled kernel. NumPy solves users in batches, which affects the last bits."""
        if self.exact and linalg.active_backend() != "compiled":
            raise InputError(
                "Exact sums need the compiled kernel, which was not built on this machine.", argument="exact"
            )

    @property
    def rows_travel(self) -> bool:
        """Whether rows are copied to a device. They are not."""
        return False

    @property
    def place(self) -> Place:
        """Where to compute from released values: here."""
        return PROCESSORS

    @property
    def on_processors(self) -> Processors:
        """Return these kernels."""
        return self

    def ranks(self, asked: Ranked) -> NDArray[np.int64]:
        """Return the rank of each pair, some rows at a time."""
        firsts = range(0, len(asked.left), _RANKED_AT_ONCE)
        parts = (asked.part(first, min(first + _RANKED_AT_ONCE, len(asked.left))) for first in firsts)
        return np.concatenate([np.zeros(0, np.int64), *(part.ranks() for part in parts)])

    def side_by_side(self, work: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[Any]:
        """Yield what `work` returns for each piece, in order; see `linalg.side_by_side`."""
        return linalg.side_by_side(work, pieces, self.threads)

    def by_task(self, users: UserRun) -> TaskOrder:
        """Return the rows of these users grouped by task."""
        return users.by_task

    def arranged(self, values: Any, order: NDArray[Any]) -> NDArray[np.float64]:
        """Return one number per row in another order, in float64."""
        held = take(np.asarray(values), order, dtype=np.float64, threads=self.threads)
        held.flags.writeable = False
        return held

    def moments(
        self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, coefficients: Floats, bound: float
    ) -> Summed:
        """Return Σ c x for every task."""
        if self.exact:
            step = linalg.step_below(bound)
            counts = linalg.lattice_moment(
                order.indptr, indices, rows, coefficients=coefficients, step=step, threads=self.threads
            )
            return counts, step
        sums = linalg.segment_moment(
            order.indptr, indices, rows, coefficients=coefficients, dtype=np.float64, threads=self.threads
        )
        return sums, None

    def grams(self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, weights: Floats, norm: float) -> Summed:
        """Return Σ w x xᵀ for every task, packed."""
        if self.exact:
            step = linalg.step_below(norm, linalg.FACTOR_BITS)
            counts = linalg.lattice_gram(order.indptr, indices, rows, weights=weights, step=step, threads=self.threads)
            return counts, step**2
        sums = linalg.segment_gram(order.indptr, indices, rows, weights=weights, dtype=np.float64, threads=self.threads)
        return sums, None

    def total(self, rows: Any, norm: float) -> Summed:
        """Return Σ x over rows, always on a lattice, which costs nothing here."""
        step = linalg.step_below(norm)
        whole = linalg.whole_steps(np.asarray(rows, np.float64), step)
        return whole.astype(np.int64).sum(axis=0), step

    def gram(self, rows: Any, norm: float) -> Summed:
        """Return Σ x xᵀ over rows, packed."""
        held = np.asarray(rows, np.float64)
        if not self.exact:
            return linalg.pack(held.T @ held), None
        step, everybody = linalg.step_below(norm, linalg.FACTOR_BITS), np.arange(len(held), dtype=np.int32)
        counts = linalg.lattice_gram([0, len(held)], everybody, held, step=step, threads=self.threads)
        return counts[0], step**2

    def total_of_users(self, users: UserRun, features: Any) -> NDArray[Any]:
        """Add up the features of each user's own tasks."""
        self._require_kernel()
        ones = np.ones(users.n_rows, self.dtype)
        return linalg.segment_moment(
            users.indptr, users.column("tasks"), self.asarray(features), coefficients=ones, threads=self.threads
        )

    def solve_users(
        self,
        users: UserRun,
        features: Any,
        labels: Any,
        base: Any,
        base_rhs: Any | None = None,
        weights: Any | None = None,
    ) -> NDArray[Any]:
        """Solve each user's own ridge regression; see `Kernels.solve_users`."""
        self._require_kernel()
        return linalg.segment_solve(
            users.indptr,
            users.column("tasks"),
            self.asarray(features),
            weights=None if weights is None else self.asarray(weights),
            labels=self.asarray(labels),
            base=self.asarray(base),
            base_rhs=None if base_rhs is None else self.asarray(base_rhs),
            unsolved="zero",  # a refusal would reveal something about one user's data
            threads=self.threads,
        )

    def rating_round(
        self,
        users: UserRun,
        weights: Floats | linalg.TaskWeights,
        this_round: linalg.RatingRound,
        by_task: NDArray[np.int64],
        total: NDArray[np.int64],
    ) -> None:
        """Add every user's part of a round on ratings; see `Kernels.rating_round`."""
        tasks, values = users.column("tasks"), users.column("values")
        linalg.rating_round(users.indptr, tasks, values, weights, this_round, by_task, total, threads=self.threads)

    def asarray(self, values: Any) -> NDArray[Any]:
        """Return values in this precision, contiguous."""
        return np.ascontiguousarray(values, dtype=self.dtype)
