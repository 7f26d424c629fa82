"""A long vector that is 0 but for a few runs of numbers, such as a sum of gradients of a large embedding table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class MostlyZero:
    """Runs of float64 numbers; NumPy takes it for the whole vector.

    Attributes:
        size: of the whole vector.
        ends: int64, where each run ends; ascending, and runs do not overlap.
        offsets: int64, one more: run r has the numbers from offsets[r] to offsets[r + 1].
        numbers: of all runs, one behind another.

    >>> np.asarray(MostlyZero(6, np.array([2, 5]), np.array([0, 1, 3]), np.array([7.0, 8.0, 9.0])))
    array([0., 7., 0., 8., 9., 0.])
    """

    size: int
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    numbers: Floats

    @classmethod
    def whole(cls, values: Floats) -> Self:
        """Return a vector as one run."""
        return cls(values.size, np.array([values.size]), np.array([0, values.size]), values.reshape(-1))

    @classmethod
    def of_rows(cls, rows: NDArray[np.int64], numbers: Floats, n_rows: int) -> Self:
        """Return a matrix that is 0 but for some rows, row by row.

        Args:
            rows: which rows, ascending.
            numbers: of these rows, of shape [rows, columns].
            n_rows: how many rows the matrix has.
        """
        width = numbers.shape[1]
        return cls(n_rows * width, (rows + 1) * width, np.arange(len(rows) + 1) * width, numbers.reshape(-1))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return vectors one behind another as one."""
        size, held, ends, offsets = 0, 0, [], [np.zeros(1, np.int64)]
        for part in parts:
            ends.append(part.ends + size)
            offsets.append(part.offsets[1:] + held)
            size, held = size + part.size, held + len(part.numbers)
        numbers = np.concatenate([part.numbers for part in parts])
        return cls(size, np.concatenate(ends), np.concatenate(offsets), numbers)

    def require(self) -> Self:
        """Return the same. Refuse runs that overlap, leave the vector, or are of the wrong kind."""
        arrays = (self.ends, np.int64), (self.offsets, np.int64), (self.numbers, np.float64)
        if any(held.dtype != kind or not held.flags.c_contiguous for held, kind in arrays):
            raise InputError("Expected contiguous int64 ends and offsets and float64 numbers.", argument="values")
        sizes = self.offsets[1:] - self.offsets[:-1]
        if len(sizes) != len(self.ends) or self.offsets[0] or self.offsets[-1] != len(self.numbers):
            raise InputError("Expected offsets from 0 to the number of numbers, one more than ends.", argument="values")
        starts = self.ends - sizes
        apart = not len(starts) or (starts[0] >= 0 and self.ends[-1] <= self.size)
        if not apart or (sizes < 0).any() or (starts[1:] < self.ends[:-1]).any():
            raise InputError("Expected runs one behind another within the vector.", argument="values")
        return self

    @property
    def shape(self) -> tuple[int]:
        """Of the whole vector."""
        return (self.size,)

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """Of the numbers."""
        return self.numbers.dtype

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the whole vector, always as a new array."""
        result = np.zeros(self.size, dtype or np.float64)
        lengths = np.diff(self.offsets)
        places = np.repeat(self.ends - self.offsets[1:], lengths) + np.arange(len(self.numbers))
        result[places] = self.numbers
        return result
