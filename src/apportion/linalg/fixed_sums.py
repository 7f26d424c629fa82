"""Sums over a user's observations in a fixed order, and parts that are clipped and truncated by such sums.

A sum over observations consists of eight partial sums, each over every eighth observation in order. They are added up
as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). The compiled kernel adds in the same order at any vector width, so that it
and NumPy agree in every bit; `np.add.reduceat` and BLAS add in an order of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LANES = 8
MARGIN = 1e-6  # relative to a norm; covers all rounding

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Runs:
    """Runs of observations, one per user: user j owns observations indptr[j] .. indptr[j + 1]."""

    indptr: NDArray[np.int64]

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.indptr) - 1

    @property
    def owner(self) -> NDArray[np.int64]:
        """For each observation, the position of its user."""
        return np.repeat(np.arange(self.n_users), np.diff(self.indptr))

    def some_at_a_time(self, observations: int) -> Iterator[tuple[Runs, slice]]:
        """Yield a few users at a time, with about this many observations, and the slice of these.

        A user is never split.

        >>> [part for _, part in Runs(np.array([0, 2, 3, 9])).some_at_a_time(4)]
        [slice(0, 3, None), slice(3, 9, None)]
        """
        first = 0
        while first < self.n_users:
            reach = int(np.searchsorted(self.indptr, self.indptr[first] + observations, side="right")) - 1
            last = max(reach, first + 1)
            begin, end = int(self.indptr[first]), int(self.indptr[last])
            yield Runs(self.indptr[first : last + 1] - begin), slice(begin, end)
            first = last

    def sums(self) -> FixedSums:
        """Return sums over these runs."""
        owner = self.owner
        place = np.arange(len(owner)) - self.indptr[:-1][owner]
        return FixedSums(self.n_users, owner * LANES + place % LANES)


@dataclass(frozen=True)
class FixedSums:
    """Sums per user. `lane` says to which of its user's eight partial sums each observation is added."""

    n_users: int
    lane: NDArray[np.int64]

    def __call__(self, values: Floats) -> Floats:
        """Return the sum of each user's values.

        >>> Runs(np.array([0, 2, 3])).sums()(np.array([1.0, 2.0, 4.0]))
        array([3., 4.])
        """
        parts = np.bincount(self.lane, values, minlength=LANES * self.n_users).reshape(-1, LANES)
        halves = parts[:, :4] + parts[:, 4:]
        quarters = halves[:, :2] + halves[:, 2:]
        return np.asarray(quarters[:, 0] + quarters[:, 1])


def dot(left: Sequence[Any], right: Sequence[Any]) -> Any:
    """Return the sum of products of arrays, pair by pair, starting with the first.

    >>> dot([np.ones(2), np.arange(2)], [np.ones(2), np.ones(2)])
    array([1., 2.])
    """
    total = left[0] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        total = total + a * b
    return total


def squared_lengths(rows: Any) -> Any:
    """Return the sum of squares of each row, added up in the order of its columns.

    >>> squared_lengths(np.array([[3.0, 4.0]]))
    array([25.])
    """
    with np.errstate(all="ignore"):
        columns = [rows[:, c] for c in range(rows.shape[1])]
        return dot(columns, columns)


def clip_factors(lengths: Any, norm: float, arrays: Any = np) -> Any:
    """Return the factor that brings each length below `norm`, by a margin that covers rounding; 1 for shorter ones."""
    inner = norm * (1 - MARGIN)
    return inner / arrays.where(lengths > inner, lengths, inner)


def clipped_steps(rows: Any, runs: Any, norm: float, step: float, arrays: Any = np) -> Any:
    """Return each user's rows in whole steps, clipped together to `norm` and truncated towards zero.

    A user contributes zero if its rows, or the squares of their lengths, are not finite.

    Args:
        rows: [n, width], one per observation, or one per user with runs of length 1.
        runs: the users' runs of rows.
        norm: the bound on the norm of all rows of a user together.
        step: the step of the lattice, a power of two.
        arrays: NumPy, or torch if rows are tensors.

    >>> clipped_steps(np.array([[3.0, -4.0], [0.25, 0.0]]), Runs(np.array([0, 1, 2])), 1.0, 0.125)
    array([[ 4., -6.],
           [ 2.,  0.]])
    """
    squares = runs.sums()(squared_lengths(rows))
    finite = arrays.isfinite(squares)
    lengths = arrays.sqrt(arrays.where(finite, squares, 0.0))
    per_row = arrays.where(finite, clip_factors(lengths, norm, arrays), 0.0)[runs.owner][:, None]
    return arrays.trunc(arrays.where(per_row > 0, rows, 0.0) * per_row * (1 / step))
