"""Sums by task of a weight times a bounded row (counts, moments and Gram matrices), and the same sums over users.

The squares of a user's weights sum to at most 1, so one user moves the sums of all tasks together by at most the norm
of one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, ObservationRows, Rows
from apportion.privacy.contributions.base import (
    Contribution,
    Kernels,
    LabelsOf,
    RowsOf,
    Sums,
    TaskOrder,
    UserRun,
    Weighting,
)
from apportion.privacy.contributions.distinct_tasks import require_distinct_tasks
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours

_WEIGHT_BITS = 32  # steps in a weight of 1
_AT_A_TIME = 1 << 20  # the steps of this many weights add up to less than 2^53, which doubles hold exactly


@dataclass(frozen=True, eq=False)
class TaskCounts(Contribution):
    """Σ_j w_ij for every task i."""

    weights: Weighting

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the weights in whole steps, added up by task."""
        sums, tasks, of_tasks = (
            np.zeros(users.n_tasks, np.int64),
            users.column("tasks"),
            self.weights.of_tasks(users.n_tasks),
        )
        if of_tasks is not None:
            threads = getattr(kernels, "threads", None)
            linalg.task_counts(users.indptr, tasks, of_tasks, self._step, sums, threads=threads)
            return (sums,)
        require_distinct_tasks(users)
        values = self.weights.of(users)._values
        for first in range(0, users.n_rows, _AT_A_TIME):
            part = slice(first, first + _AT_A_TIME)
            whole = linalg.whole_steps(values[part], self._step)
            sums += np.bincount(tasks[part], whole, minlength=users.n_tasks).astype(np.int64)
        return (sums,)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the counts. One user's part is the vector of its weights, of norm at most 1."""
        return (BoundedSum.counts(sums[0], self.weights, self._step),)

    @property
    def _step(self) -> float:
        return linalg.step_below(1.0, _WEIGHT_BITS)


@dataclass(frozen=True, eq=False)
class TaskMoments(Contribution):
    """Σ_j w_ij y_ij x_j for every task i, where x is the user's or the observation's row. Without labels, y is 1."""

    weights: Weighting
    rows: RowsOf
    labels: LabelsOf | None = None

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the moments of the rows, computed on the kernels' device."""
        require_distinct_tasks(users)
        rows, order = _rows(self.rows, users, kernels), kernels.by_task(users)
        coefficients = self.weights.of(users)._in_order(order, kernels.arranged)
        if self.labels is not None:
            labels = _labels(self.labels, users, kernels)._values
            coefficients = coefficients * kernels.arranged(labels, order.order)
        sums, _ = kernels.moments(order, _indices(order, rows), rows._values, coefficients, self._bound)
        return (sums,)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the moments. One user's part has norm at most the label bound times that of a row."""
        step = linalg.step_below(self._bound) if _whole(sums[0]) else None
        return (BoundedSum.moments(sums[0], self.weights, self.rows, self.labels, step),)

    @property
    def _bound(self) -> float:
        return self.rows.norm * (1.0 if self.labels is None else self.labels.bound)


@dataclass(frozen=True, eq=False)
class TaskGrams(Contribution):
    """Σ_j w_ij x_j x_jᵀ for every task i, packed lower triangles."""

    weights: Weighting
    rows: RowsOf

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the Gram matrices of the rows, computed on the kernels' device."""
        require_distinct_tasks(users)
        rows, order = _rows(self.rows, users, kernels), kernels.by_task(users)
        weights = self.weights.of(users)._in_order(order, kernels.arranged)
        return (kernels.grams(order, _indices(order, rows), rows._values, weights, self.rows.norm)[0],)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the matrices. One user's part has Frobenius norm at most the squared norm of a row."""
        return (BoundedSum.grams(sums[0], self.weights, self.rows, _gram_step(self.rows.norm, sums[0])),)


@dataclass(frozen=True, eq=False)
class UserTotal(Contribution):
    """Σ_j x_j over the users who have rows."""

    rows: RowsOf

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sum of the rows of users who are present."""
        return (kernels.total(_of_present(self.rows, users, kernels), self.rows.norm)[0],)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sum. One user's part is its row."""
        step = linalg.step_below(self.rows.norm) if _whole(sums[0]) else None
        return (BoundedSum.user_total(sums[0], self.rows, step),)


@dataclass(frozen=True, eq=False)
class UserGram(Contribution):
    """Σ_j x_j x_jᵀ over the users who have rows, packed."""

    rows: RowsOf
    neighbours: Neighbours = ADD_REMOVE

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the Gram matrix of the users who are present."""
        return (kernels.gram(_of_present(self.rows, users, kernels), self.rows.norm)[0],)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the matrix. One user's part has Frobenius norm at most the squared norm of its row."""
        step = _gram_step(self.rows.norm, sums[0])
        return (BoundedSum.user_gram(sums[0], self.rows, step, self.neighbours),)


def _rows(form: RowsOf, users: UserRun, kernels: Kernels) -> Rows:
    """Return the rows of these users. Check the declared bound, and that there is one per user or observation."""
    rows = form(users, kernels)
    if rows.norm != form.norm:
        raise TypeError(f"Expected rows of norm at most {form.norm}, as declared, got a bound of {rows.norm}.")
    wanted = users.n_rows if isinstance(rows, ObservationRows) else users.n_users
    if len(rows) != wanted:
        of = "observations" if isinstance(rows, ObservationRows) else "users"
        raise InputError(f"Expected one row for each of {wanted} {of}, got {len(rows)}.", argument=None)
    return rows


def _labels(form: LabelsOf, users: UserRun, kernels: Kernels) -> Labels:
    labels = form(users, kernels)
    if labels.bound != form.bound:
        raise TypeError(f"Expected labels of at most {form.bound}, as declared, got a bound of {labels.bound}.")
    if len(labels) != users.n_rows:
        raise InputError(
            f"Expected one label for each of {users.n_rows} observations, got {len(labels)}.", argument=None
        )
    return labels


def _of_present(form: RowsOf, users: UserRun, kernels: Kernels) -> Any:
    rows = _rows(form, users, kernels)
    if isinstance(rows, ObservationRows):  # one row per observation would add up to more than the bound
        raise InputError("Expected one row per user, got rows of observations.", argument=None)
    return rows._values[users.present]


def _indices(order: TaskOrder, rows: Rows) -> Any:
    """Return which row holds each observation's features, in task-major order: its user's row or its own."""
    if not isinstance(rows, ObservationRows):
        return order.indices
    own = order.order
    return own.astype(np.int32, copy=False) if isinstance(own, np.ndarray) else own


def _whole(sums: NDArray[Any]) -> bool:
    return sums.dtype == np.int64


def _gram_step(norm: float, sums: NDArray[Any]) -> float | None:
    return linalg.step_below(norm, linalg.FACTOR_BITS) ** 2 if _whole(sums) else None
