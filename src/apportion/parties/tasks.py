"""Rows of tasks that belong to different parties, in their original order and in blocks of tasks of similar size.

A block holds tasks whose rows fit in the same number of slots, so that one NumPy call serves many parties. A task's
block depends only on its own number of rows, and every operation works on one task at a time, so no bit of a party's
result depends on the other parties. For squared errors, a task with more rows than features is first reduced to as many
rows as features (by its QR factors), which loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_column, finite_matrix
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FOLDS = 5
"""Number of folds into which a party divides its own rows, to compare ways of learning."""

_PLACES = 8  # rows are padded with zeros to a multiple of this
_AT_A_TIME = 1 << 22  # number of entries of a block
_LARGEST = 1e100  # limit of a number, so that its square is finite
_ROUNDING = 1e-9  # sums closer to 0 than this, relative to the sum of absolute values, count as 0


@dataclass(frozen=True, eq=False)
class TaskRows:
    """All rows, task after task; those of task i lie between indptr[i] and indptr[i + 1].

    Attributes:
        ids: the tasks' ids, in order.
        features: one row per observation.
        labels: one label per row.
        indptr: offsets of the tasks.
        taken: number of parameters that every task has already fitted to its own rows.
    """

    ids: Vocabulary
    features: Floats
    labels: Floats
    indptr: Integers
    taken: int = 0

    @property
    def n_tasks(self) -> int:
        """The number of tasks."""
        return len(self.indptr) - 1

    @property
    def dimension(self) -> int:
        """The number of features."""
        return int(self.features.shape[1])

    def masked(self, mask: NDArray[np.bool_]) -> TaskRows:
        """Return the rows with zeros in the features that a task lacks."""
        kept = np.repeat(mask, np.diff(self.indptr), axis=0)
        return TaskRows(self.ids, np.where(kept, self.features, 0.0), self.labels, self.indptr)

    def of_tasks(self, tasks: Integers) -> TaskRows:
        """Return the rows of some tasks only, in this order."""
        sizes = np.diff(self.indptr)[tasks]
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.indptr[tasks] - indptr[:-1], sizes) + np.arange(indptr[-1])
        ids = Vocabulary.of_range(len(tasks), name="task")
        return TaskRows(ids, self.features[rows], self.labels[rows], indptr, self.taken)

    def parted(self, fold: int) -> tuple[TaskRows, TaskRows]:
        """Return the rows outside a fold, and those inside.

        A row's fold follows from the rank of its label in its task. So the order of the rows does not
        matter, and all folds have similar labels. A single row is never left out.
        """
        sizes = np.diff(self.indptr)
        whose = np.repeat(np.arange(self.n_tasks), sizes)
        order = np.lexsort((*self.features.T, self.labels, whose))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - self.indptr[:-1][whose]
        inside = (rank % FOLDS == fold) & (sizes[whose] > 1)
        return self._where(~inside), self._where(inside)

    def _where(self, kept: NDArray[np.bool_]) -> TaskRows:
        counts = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        return TaskRows(self.ids, self.features[kept], self.labels[kept], counts.astype(np.int64), self.taken)

    def centred(self) -> tuple[TaskRows, Floats, Floats]:
        """Return the rows with each task's own means subtracted, and the means of features and labels."""
        sizes = np.diff(self.indptr)
        whose = np.repeat(np.arange(self.n_tasks), sizes)
        feature_means, label_means = np.zeros((self.n_tasks, self.dimension)), np.zeros(self.n_tasks)
        filled = np.flatnonzero(sizes)
        if len(filled):
            starts, counts = self.indptr[filled], sizes[filled]
            feature_means[filled] = np.add.reduceat(self.features, starts, axis=0) / counts[:, None]
            label_means[filled] = np.add.reduceat(self.labels, starts) / counts
        rows = TaskRows(
            self.ids, self.features - feature_means[whose], self.labels - label_means[whose], self.indptr, taken=1
        )
        return rows, feature_means, label_means


@dataclass(frozen=True, eq=False)
class Block:
    """Tasks of one size class.

    Attributes:
        tasks: the positions of the tasks.
        rows: [tasks, places, features], each task's rows divided by their largest entry.
        labels: [tasks, places], likewise.
        sizes: number of rows of each task, minus the parameters already fitted to them: n rows that sum to 0 count as n
            - 1.
        present: [tasks, places], 1 where there is a row.
        rest: sum of squared labels outside the span of the rows.
        units: factors that convert a model to the units of the data.
    """

    tasks: Integers
    rows: Floats
    labels: Floats
    sizes: Floats
    present: Floats
    rest: Floats
    units: Floats


def rows_by_party(X: ArrayLike, y: ArrayLike, parties: ArrayLike) -> TaskRows:  # noqa: N803
    """Group rows into tasks by a column that names each row's party."""
    features = finite_matrix(X, "X")
    labels = finite_column(y, "y", len(features))
    grouping = group_rows(parties, len(features), single_user=True, column="parties", name="task")
    return TaskRows(grouping.ids, grouping.arranged(features), grouping.arranged(labels), grouping.indptr)


def rows_of_lists(X: Sequence[Any], y: Sequence[Any]) -> TaskRows:  # noqa: N803
    """Make tasks from one matrix and one label column each."""
    if len(X) != len(y) or not len(X):
        raise InputError(
            f"Expected as many columns of labels as matrices, at least one, got {len(y)} and {len(X)}.", argument="y"
        )
    matrices = [finite_matrix(x, f"X of task {i}") for i, x in enumerate(X)]
    widths = {matrix.shape[1] for matrix in matrices}
    if len(widths) > 1:
        raise InputError(
            f"Expected the same features in every task (zeros if a task lacks some), got {sorted(widths)}.",
            argument="X",
        )
    columns = [finite_column(c, f"y of task {i}", len(matrices[i])) for i, c in enumerate(y)]
    indptr = np.concatenate([[0], np.cumsum([len(m) for m in matrices])]).astype(np.int64)
    ids = Vocabulary.of_range(len(matrices), name="task")
    return TaskRows(ids, np.concatenate(matrices), np.concatenate(columns), indptr)


def blocks_of(data: TaskRows, *, turned: bool) -> list[Block]:
    """Return the tasks in blocks.

    Args:
        data: all rows.
        turned: whether a task with more rows than features is reduced to as many rows as features.
    """
    sizes = np.diff(data.indptr)
    held = np.minimum(sizes, data.dimension) if turned else sizes
    places = np.maximum(-(-held // _PLACES) * _PLACES, _PLACES)
    return [
        _block(data, chosen, int(size), turned)
        for size in np.unique(places)
        for chosen in _parts(np.flatnonzero(places == size), int(size) * data.dimension)
    ]


def _parts(chosen: Integers, entries: int) -> list[Integers]:
    count = max(1, _AT_A_TIME // max(1, entries))
    return [chosen[first : first + count] for first in range(0, len(chosen), count)]


def _block(data: TaskRows, tasks: Integers, places: int, turned: bool) -> Block:
    rows, labels = np.zeros((len(tasks), places, data.dimension)), np.zeros((len(tasks), places))
    present, rest, units = np.zeros((len(tasks), places)), np.zeros(len(tasks)), np.ones(len(tasks))
    taken = np.full(len(tasks), data.taken)
    for at, task in enumerate(tasks):
        part = slice(int(data.indptr[task]), int(data.indptr[task + 1]))
        x, feature_scale = _scaled(data.features[part])
        y, label_scale = _scaled(data.labels[part])
        units[at] = label_scale / feature_scale
        taken[at] = max(data.taken, int(turned and _centred(x) and _centred(y)))
        if turned and len(x) > data.dimension:
            x, y, rest[at] = _turned(x, y)
        rows[at, : len(x)], labels[at, : len(y)], present[at, : len(x)] = x, y, 1.0
    sizes = np.maximum(np.diff(data.indptr)[tasks] - taken, 0).astype(np.float64)
    return Block(tasks, rows, labels, sizes, present, rest, units)


def _scaled(values: Floats) -> tuple[Floats, float]:
    """Return the values divided by their maximum, and the maximum, so that squares cannot overflow."""
    clipped = np.clip(values, -_LARGEST, _LARGEST)
    largest = float(np.abs(clipped).max(initial=0.0))
    return (clipped / largest, largest) if largest > 1 / _LARGEST else (np.zeros_like(clipped), 1.0)


def _centred(values: Floats) -> bool:
    """Whether every column sums to 0, as it does after its party subtracted its own means."""
    return bool((np.abs(values.sum(axis=0)) <= _ROUNDING * np.abs(values).sum(axis=0)).all())


def _turned(x: Floats, y: Floats) -> tuple[Floats, Floats, float]:
    """Return R and Qᵀy of x = QR, and the squared length of the labels outside the span of Q."""
    q, r = np.linalg.qr(x)
    inside = q.T @ y
    outside = y - q @ inside
    return r, inside, float(outside @ outside)
