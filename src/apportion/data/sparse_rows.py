"""Sparse rows: features of many items. Each item has entries in a few of very many columns, which lie in groups.

Row i has the columns indices[indptr[i]:indptr[i+1]] with the matching values; no array of the size rows times columns
is ever made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.segments import protected
from apportion.errors import InputError


@dataclass(frozen=True)
class ColumnRange:
    """The columns first to last - 1, which belong together under one name."""

    name: str
    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of columns."""
        return self.last - self.first


@dataclass(frozen=True, eq=False, repr=False)
class SparseRows:
    """Rows of few entries each, in groups of columns; immutable.

    Attributes:
        indptr: int64, one more than there are rows.
        indices: int64, the column of each entry, ascending within a row, none twice.
        values: float32, the value of each entry.
        groups: ranges of columns, side by side from 0 to the last.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float32]
    groups: tuple[ColumnRange, ...]

    def __post_init__(self) -> None:
        edges = [0, *(group.last for group in self.groups)]
        if [group.first for group in self.groups] != edges[:-1]:
            raise InputError(f"Expected groups of columns side by side from 0, got {self.groups}.", argument="groups")
        if len(self.indices) and not (self.indices.min() >= 0 and self.indices.max() < self.n_columns):
            raise InputError(
                f"Expected columns from 0 to {self.n_columns - 1}, got {self.indices.max()}.", argument="indices"
            )
        for name in ("indptr", "indices", "values"):
            object.__setattr__(self, name, protected(getattr(self, name)))

    @classmethod
    def from_entries(
        cls, rows: ArrayLike, columns: ArrayLike, values: ArrayLike, n_rows: int, groups: Sequence[ColumnRange]
    ) -> SparseRows:
        """Build from entries in any order; entries of the same row and column are added."""
        row, column = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
        width = groups[-1].last if groups else 0
        cells, place = np.unique(row * max(width, 1) + column, return_inverse=True)
        summed = np.bincount(place, np.asarray(values, np.float64), minlength=len(cells))
        counts = np.bincount(cells // max(width, 1), minlength=n_rows)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(indptr, cells % max(width, 1), summed.astype(np.float32), tuple(groups))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __repr__(self) -> str:
        named = ", ".join(f"{group.name}: {group.size}" for group in self.groups)
        return f"SparseRows({len(self)} rows, {len(self.indices)} entries, {named or 'no columns'})"

    @property
    def n_columns(self) -> int:
        """The number of columns, used or not."""
        return self.groups[-1].last if self.groups else 0

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of entries of each row."""
        return np.diff(self.indptr)

    def owner(self) -> NDArray[np.int64]:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)

    def group_of_entry(self) -> NDArray[np.int64]:
        """Return the group of each entry, by position."""
        return np.searchsorted([group.last for group in self.groups], self.indices, side="right").astype(np.int64)

    def take(self, rows: ArrayLike) -> SparseRows:
        """Return the given rows, in that order; a row of -1 is empty."""
        wanted = np.asarray(rows, np.int64)
        known = wanted >= 0
        counts = np.where(known, self.counts[wanted], 0) if len(self) else np.zeros(len(wanted), np.int64)
        first = self.indptr[np.where(known, wanted, 0)] if len(self) else np.zeros(len(wanted), np.int64)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
        places = np.repeat(first, counts) + within
        return SparseRows(indptr, self.indices[places], self.values[places], self.groups)

    def averaged(self) -> SparseRows:
        """Return the rows with each group's values divided by the sum of their sizes in that row: averages of bags."""
        n_groups = max(len(self.groups), 1)
        bag = self.owner() * n_groups + self.group_of_entry()
        totals = np.bincount(bag, np.abs(self.values), minlength=len(self) * n_groups)
        values = self.values / np.maximum(totals[bag], 1e-12)
        return SparseRows(self.indptr, self.indices, values.astype(np.float32), self.groups)

    def beside(self, other: SparseRows) -> SparseRows:
        """Return rows of both, with the other's columns after these."""
        if len(other) != len(self):
            raise InputError(f"Expected {len(self)} rows, got {len(other)}.", argument="other")
        shift = self.n_columns
        moved = [ColumnRange(group.name, group.first + shift, group.last + shift) for group in other.groups]
        return SparseRows.from_entries(
            np.concatenate([self.owner(), other.owner()]),
            np.concatenate([self.indices, other.indices + shift]),
            np.concatenate([self.values, other.values]),
            len(self),
            (*self.groups, *moved),
        )

    def to_scipy(self, dtype: Any = np.float64) -> Any:
        """Return the same as a `scipy.sparse.csr_array`."""
        from scipy.sparse import csr_array

        shape = (len(self), self.n_columns)
        return csr_array((self.values.astype(dtype), self.indices, self.indptr), shape=shape)
