"""Popularity slices: tasks in groups of equal size, rarest first.

Quality is reported overall and in each slice, because privacy costs the tail far more than the head. Slices use exact
counts of the training data: results by slice belong on an internal page.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError


@dataclass(frozen=True, eq=False)
class PopularitySlices:
    """The slice of each task; slice 0 holds the rarest tasks."""

    of_task: NDArray[np.int64]
    n_slices: int

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each slice, for tables."""
        return slice_labels(self.n_slices)

    @classmethod
    def whole(cls, n_tasks: int) -> PopularitySlices:
        """Return a single slice that holds every task."""
        return cls(np.zeros(n_tasks, np.int64), 1)


def slice_labels(n_slices: int, rarest: str = "rarest", most_popular: str = "most popular") -> tuple[str, ...]:
    """Return a name for each slice; the words for the first and the last can be chosen.

    >>> slice_labels(4, "rare", "top")
    ('rare 25 %', '25-50 %', '50-75 %', 'top 25 %')
    """
    edges = [round(100 * edge / n_slices) for edge in range(n_slices + 1)]
    names = [f"{low}-{high} %" for low, high in itertools.pairwise(edges)]
    if n_slices > 1:
        names[0], names[-1] = f"{rarest} {edges[1]} %", f"{most_popular} {100 - edges[-2]} %"
    return tuple(names)


def popularity_slices(counts: ArrayLike, n_slices: int = 5) -> PopularitySlices:
    """Divide the tasks into slices of equal size (within one) by their counts, ties by code.

    Args:
        counts: how often each task occurs, for instance `train.by_task.counts`.
        n_slices: the number of slices.

    Example:
        >>> popularity_slices([7, 0, 3, 3], n_slices=2).of_task
        array([1, 0, 0, 1])
    """
    popularity = np.asarray(counts)
    if popularity.ndim != 1 or not np.isfinite(popularity).all():
        raise InputError(f"Expected one finite count per task, got shape {popularity.shape}.", argument="counts")
    if not 1 <= n_slices <= len(popularity):
        raise InputError(
            f"Expected from 1 to {len(popularity)} slices (one task each), got {n_slices}.", argument="n_slices"
        )
    of_task = np.empty(len(popularity), np.int64)
    for number, tasks in enumerate(np.array_split(np.argsort(popularity, kind="stable"), n_slices)):
        of_task[tasks] = number
    of_task.flags.writeable = False
    return PopularitySlices(of_task, n_slices)
