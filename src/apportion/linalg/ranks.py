"""Ranks of columns in the order of products of rows, in the same fixed order of additions as `fixed_order`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.fixed_order import row_products


@dataclass(frozen=True, eq=False)
class Ranked:
    """Pairs of a row and a column, whose ranks are asked for.

    Attributes:
        left: [n, d] rows, for instance users' vectors.
        right: [m, d] columns, for instance items' vectors.
        indptr: row j does not count excluded[indptr[j]:indptr[j + 1]].
        excluded: those columns.
        rows: the row of each pair, ascending.
        columns: the column of each pair.
    """

    left: NDArray[Any]
    right: NDArray[Any]
    indptr: NDArray[np.int64]
    excluded: NDArray[np.int64]
    rows: NDArray[np.int32]
    columns: NDArray[np.int64]

    def part(self, first: int, last: int) -> Ranked:
        """Return the pairs of rows first to last."""
        excluded = self.excluded[self.indptr[first] : self.indptr[last]]
        indptr = self.indptr[first : last + 1] - self.indptr[first]
        pairs = slice(*np.searchsorted(self.rows, [first, last]).tolist())
        return Ranked(
            self.left[first:last], self.right, indptr, excluded, self.rows[pairs] - first, self.columns[pairs]
        )

    @property
    def owner(self) -> NDArray[np.int64]:
        """The row that leaves out each of the excluded columns."""
        return np.repeat(np.arange(len(self.left)), np.diff(self.indptr))

    def ranks(self) -> NDArray[np.int64]:
        """Return, for each pair, how many columns that count have a larger product with the row than its column has.

        >>> items, first = np.array([[1.0], [2.0], [3.0]]), np.zeros(1, np.int64)
        >>> Ranked(np.ones((1, 1)), items, np.array([0, 1]), np.array([2]), rows=first, columns=first).ranks()
        array([1])
        """
        scores = row_products(self.left, self.right)
        scores[self.owner, self.excluded] = -np.inf
        return np.asarray((scores[self.rows] > scores[self.rows, self.columns][:, None]).sum(axis=1))
