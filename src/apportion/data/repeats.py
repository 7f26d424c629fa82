"""Several rows of one user for one task become one row: the last, the first, or one made of all of them.

The result for a user depends only on that user's rows. So two data sets that differ in one user's rows still differ
only in that user's rows. Values are added in ascending order, so a mean does not depend on the order of rows in a file,
or of files in a folder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.ordering import user_major_order

__all__ = ["REPEATS", "Repeats", "Rows", "combine_repeats"]

Repeats = Literal["last", "first", "mean", "sum", "count", "refuse"]
"""What to make of several rows of one user for one task."""

REPEATS: Final[tuple[Repeats, ...]] = ("last", "first", "mean", "sum", "count", "refuse")


@dataclass(frozen=True)
class Rows:
    """Columns of rows that were read, in their order; values and times may be absent, and so may parts of a second."""

    users: NDArray[np.int32]
    tasks: NDArray[np.int32]
    values: NDArray[np.float32] | None
    timestamps: NDArray[np.int64] | None
    nanoseconds: NDArray[np.int32] | None = None

    def at(self, places: NDArray[Any]) -> Rows:
        """Return some of the rows: by number, or by a mask over all of them."""
        values = None if self.values is None else self.values[places]
        timestamps = None if self.timestamps is None else self.timestamps[places]
        nanoseconds = None if self.nanoseconds is None else self.nanoseconds[places]
        return Rows(self.users[places], self.tasks[places], values, timestamps, nanoseconds)

    @property
    def strengths(self) -> NDArray[np.float32]:
        """The values; all ones if there is no column of them."""
        return np.ones(len(self.users), np.float32) if self.values is None else self.values


def combine_repeats(rows: Rows, rule: Repeats, n_users: int, n_tasks: int, *, by_row: bool = True) -> Rows:
    """Return rows in which no two have the same user and task.

    Args:
        rows: rows in the order of their source.
        rule: what to make of rows with the same user and task.
        n_users: number of codes of users.
        n_tasks: number of codes of tasks.
        by_row: whether rows have an order, so that the later of two rows of the same time is the last one.
    """
    if rule == "refuse":
        return rows
    order = user_major_order(rows.users, rows.tasks, n_users, n_tasks)
    sorted_rows = rows if order is None else rows.at(order)
    same = (sorted_rows.users[1:] == sorted_rows.users[:-1]) & (sorted_rows.tasks[1:] == sorted_rows.tasks[:-1])
    if not same.any():
        return _counted(sorted_rows, np.ones(len(rows.users))) if rule == "count" else rows
    begins = np.concatenate([[True], ~same])
    if rule in ("last", "first"):
        return sorted_rows.at(_chosen(sorted_rows, begins, rule, by_row=by_row))
    return _merged(sorted_rows, begins, rule)


def _chosen(rows: Rows, begins: NDArray[np.bool_], rule: Repeats, *, by_row: bool) -> NDArray[np.int64]:
    """Return the row that represents each pair: the first or last by time, then by row, otherwise by value."""
    pair = np.cumsum(begins) - 1
    ties = np.arange(len(pair)) if by_row else rows.strengths
    times = np.zeros(len(pair), np.int64) if rows.timestamps is None else rows.timestamps
    parts = () if rows.nanoseconds is None else (rows.nanoseconds,)
    within = np.lexsort((ties, *parts, times, pair))
    edges = np.flatnonzero(begins)
    return within[edges if rule == "first" else np.append(edges[1:], len(pair)) - 1]


def _merged(rows: Rows, begins: NDArray[np.bool_], rule: Repeats) -> Rows:
    """Return one row for each pair, with the mean, the sum or the number of its values, at its last time."""
    pair = np.cumsum(begins) - 1
    n_rows = np.bincount(pair)
    latest = rows.at(_chosen(rows, begins, "last", by_row=True))
    if rule == "count":
        return _counted(latest, n_rows)
    in_order = np.lexsort((rows.strengths, pair))
    totals = np.bincount(pair, weights=rows.strengths[in_order].astype(np.float64))  # adds one after the other
    with np.errstate(over="ignore"):  # an infinite sum is refused, with its name, like any other infinite value
        return replace(latest, values=(totals / n_rows if rule == "mean" else totals).astype(np.float32))


def _counted(rows: Rows, n_rows: NDArray[Any]) -> Rows:
    return replace(rows, values=n_rows.astype(np.float32))
