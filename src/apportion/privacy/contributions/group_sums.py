"""Sums by group over users who may be in several groups: one vector over (group, statistic) per user, with one bound.

A user's rows in one group are a *cell*. Several statistics may be asked for at once. Each has moments: some numbers for
every cell. All cells of a user are scaled together to the cap C of the statistic, by one factor min(1, C / norm). So
nothing is dropped, and the cells keep their ratios. Each statistic's cells are divided by its cap. All statistics of a
user together are clipped to √(number of statistics), which bounds how far one user moves the sums
(docs/proofs/groups.md). For Laplace noise all norms are L1 norms, and the bound is the number of statistics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Offsets
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun
from apportion.privacy.contributions.clipped import Output, add_by_task, sealed_output, whole_rows
from apportion.privacy.neighbours import ADD_REMOVE

Floats = NDArray[np.float64]

_SMALLEST = 2.0**-120  # a smaller norm counts as 0


@dataclass(frozen=True, eq=False)
class Cells:
    """The rows of some users by group. The rows of one user in one group are a cell.

    Attributes:
        indptr: cells of user j lie between indptr[j] and indptr[j + 1].
        tasks: the group of each cell.
        starts: the first row of each cell.
        sizes: the number of rows in each cell.
    """

    indptr: Offsets
    tasks: NDArray[np.int32]
    starts: Offsets
    sizes: Offsets

    @classmethod
    def of(cls, users: UserRun) -> Cells:
        """Find the cells. Refuse users whose rows are not ordered by group."""
        tasks = users.column("tasks")
        first = np.zeros(users.n_rows + 1, bool)
        first[users.indptr] = True
        steps = np.diff(tasks)
        if (~first[1:-1] & (steps < 0)).any():
            raise InputError("Expected the rows of every user in the order of their groups.", argument=None)
        first[1:-1] |= steps > 0
        starts = np.flatnonzero(first[:-1])
        indptr = np.concatenate([[0], np.cumsum(first[:-1])])[users.indptr].astype(np.int64)
        return cls(indptr, tasks[starts], starts, np.diff(np.append(starts, users.n_rows)))

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.starts)

    @property
    def of_row(self) -> NDArray[np.int64]:
        """The cell of each row."""
        return np.repeat(np.arange(self.n_cells), self.sizes)

    def sums(self, values: Floats) -> Floats:
        """Return the sum of a column of rows in every cell."""
        return np.add.reduceat(values, self.starts) if self.n_cells else np.zeros(0)

    def norms(self, moments: Floats) -> Floats:
        """Return, for each user, the Euclidean norm of all its cells together."""
        owner = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        return np.sqrt(np.bincount(owner, np.square(moments).sum(axis=1), minlength=len(self.indptr) - 1))

    def totals(self, moments: Floats) -> Floats:
        """Return, for each user, the L1 norm of all its cells together."""
        owner = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        return np.asarray(np.bincount(owner, np.abs(moments).sum(axis=1), minlength=len(self.indptr) - 1), np.float64)

    def largest(self, moments: Floats) -> Floats:
        """The largest number of each user's cells; 0 where there is none above."""
        found = np.zeros(len(self.indptr) - 1)
        some = np.flatnonzero(np.diff(self.indptr))
        if len(some):
            found[some] = np.maximum(np.maximum.reduceat(moments.max(axis=1), self.indptr[some]), 0.0)
        return found

    def lengths(self, moments: Floats, *, taxicab: bool) -> Floats:
        """Return the L1 norms or the Euclidean norms."""
        return self.totals(moments) if taxicab else self.norms(moments)


MomentsOf = Callable[[Any, Cells], Floats]
"""(users, their cells) -> a row of numbers for every cell, each from the rows of its own cell alone."""


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """One statistic of cells.

    Attributes:
        moments: the function that computes the numbers of the cells.
        width: the number of numbers per cell.
        cap: the norm to which all cells of a user together are scaled down; public or released.
        size_cap: the norm to which the sizes of a user's cells, their last numbers, are scaled down before that, so
            that a user with many rows weighs less whatever its values are. None if the last number is not a size.
        whole: whether the numbers are whole numbers, such as counts.
    """

    moments: MomentsOf
    width: int
    cap: float = 1.0
    size_cap: float | None = None
    whole: bool = False

    def within(self, users: UserRun, cells: Cells, *, taxicab: bool = False) -> Floats:
        """Return the moments divided by the cap, after each user's moments were scaled down to the cap in that norm."""
        held = self.moments(users, cells)
        if self.size_cap is not None:
            sizes = cells.lengths(held[:, -1:], taxicab=taxicab)
            held = _times(held, self.size_cap / np.maximum(sizes, self.size_cap), cells)
        return _times(held, 1 / np.maximum(cells.lengths(held, taxicab=taxicab), self.cap), cells)

    @property
    def has_sizes(self) -> bool:
        """Whether the last number of a cell is its size."""
        return self.size_cap is not None


@dataclass(frozen=True, eq=False)
class GroupSums(Contribution):
    """The moments of several statistics for every group, side by side.

    Attributes:
        statistics: the statistics.
        taxicab: whether the caps bound L1 norms, for Laplace noise.
    """

    statistics: tuple[GroupMoments, ...]
    taxicab: bool = False

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sums over these users, clipped and in whole steps."""
        output = self._output
        total = output.zeros(users.n_tasks)
        for run in users.runs(kernels.rows_at_once):
            cells = Cells.of(run)
            rows = np.concatenate([each.within(run, cells, taxicab=self.taxicab) for each in self.statistics], axis=1)
            add_by_task(total, whole_rows(rows, cells.indptr, output), cells.tasks)
        return (total,)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sums with the norm that each user's whole part was clipped to."""
        return (sealed_output(self._output, sums[0], ADD_REMOVE),)

    @property
    def _output(self) -> Output:
        many, width = len(self.statistics), sum(each.width for each in self.statistics)
        what = f"what a user is in its groups, {many} statistic{'s' * (many != 1)}"
        if self.taxicab:
            return Output(width, float(many), True, what, float(many))
        return Output(width, math.sqrt(many), True, what)


@dataclass(frozen=True, eq=False)
class NormClasses:
    """Counts of users by class of norm, one per statistic, and ratios of L1 norms to these norms; for `ClippedParts`.

    If the last number of a cell is its size, the norms are those of the sizes. A user is then also counted in the class
    of the ratio of the whole norm to the norm of the sizes.

    Attributes:
        statistics: the statistics whose norms are counted.
        edges: where the classes of norms begin; public.
        ratios: where the classes of ratios begin; public.
        most: the largest ratio of an L1 norm that counts; public.
        taxicab: whether the norms themselves are L1 norms; then their ratio to these is left out.
        boxed: whether users with a cell above 1 have classes of their own.
    """

    statistics: tuple[GroupMoments, ...]
    edges: tuple[float, ...]
    ratios: tuple[float, ...]
    most: float
    taxicab: bool = False
    boxed: bool = False

    @property
    def output(self) -> Output:
        """One to three groups of numbers for each statistic. A user adds at most 1 to each group."""
        ones = float(sum(1 + (not self.taxicab) + each.has_sizes for each in self.statistics))
        what = "one in the class of a user's norm, the ratio of its L1 norm to it, and one in the class of a ratio"
        width = sum(map(self.width_of, self.statistics))
        return Output(width, math.sqrt(ones), False, what, ones if self.taxicab else None)

    def width_of(self, statistic: GroupMoments) -> int:
        """How many numbers a statistic has."""
        classes = len(self.edges) * (1 + self.boxed)
        return classes + (not self.taxicab) + len(self.ratios) * statistic.has_sizes

    def __call__(self, users: UserRun, weights: Any) -> tuple[Floats]:
        """Return one row per user: classes and ratios, statistic after statistic."""
        cells = Cells.of(users)
        return (np.concatenate([part for each in self.statistics for part in self._of(each, users, cells)], axis=1),)

    def _of(self, statistic: GroupMoments, users: UserRun, cells: Cells) -> list[Floats]:
        held = statistic.moments(users, cells)
        sizes = held[:, -1:] if statistic.has_sizes else held
        norms = cells.lengths(sizes, taxicab=self.taxicab)
        some = np.maximum(norms, _SMALLEST)
        found = [_one_in(norms, self.edges)]
        if self.boxed:
            above = (cells.largest(held) > 1)[:, None]
            found = [found[0] * ~above, found[0] * above]
        if not self.taxicab:
            found.append(np.minimum(cells.totals(sizes) / some / self.most, 1.0)[:, None])
        if statistic.has_sizes:
            found.append(_one_in(cells.lengths(held, taxicab=self.taxicab) / some, self.ratios))
        return found


def _times(held: Floats, factors: Floats, cells: Cells) -> Floats:
    """Return all cells of each user, multiplied by the user's factor."""
    return held * np.repeat(factors, np.diff(cells.indptr))[:, None]


def _one_in(values: Floats, edges: tuple[float, ...]) -> Floats:
    """Return one row per value, with 1 in the class of the value.

    Values below the first edge are in the first class.
    """
    rows = np.zeros((len(values), len(edges)))
    rows[np.arange(len(values)), (np.searchsorted(edges, values, side="right") - 1).clip(0)] = 1.0
    return rows
