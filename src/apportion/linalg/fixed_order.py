"""Products and rankings that come out the same on every processor: one order of additions, ties by column.

`np.argpartition` would be shorter, but which of several equal scores it keeps depends on the width of the vector unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_A_TIME = 64  # of a block that stays in cache
_COLUMNS_AT_A_TIME = 2048


def top_columns(scores: NDArray[Any], depth: int) -> NDArray[np.int64]:
    """The columns of the `depth` largest scores in each row, largest first, ties by column; -1 for -inf.

    >>> top_columns(np.array([[1.0, 3.0, 3.0, -np.inf]]), 3)
    array([[1, 2, 0]])
    >>> top_columns(np.array([[1.0, -np.inf]]), 2)
    array([[ 0, -1]])
    """
    n_rows, n_columns = scores.shape
    threshold = np.partition(scores, n_columns - depth, axis=1)[:, n_columns - depth, None]
    chosen = scores > threshold
    at_threshold = scores == threshold
    n_wanted = depth - chosen.sum(axis=1)
    crowded = at_threshold.sum(axis=1) > n_wanted  # more ties than places: the lowest columns win
    ties = at_threshold[crowded]
    at_threshold[crowded] = ties & (np.cumsum(ties, axis=1) <= n_wanted[crowded, None])
    columns = np.nonzero(chosen | at_threshold)[1].reshape(n_rows, depth)
    best = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-best, axis=1, kind="stable")
    ranked = np.take_along_axis(columns, order, axis=1)
    return np.where(np.take_along_axis(best, order, axis=1) == -np.inf, -1, ranked)


def row_products(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Left @ right.T, every product added up in the order of the columns, so that no processor rounds it differently.

    A BLAS rounds by the place of an entry in its blocks: rows that are equal would get scores that are not.

    >>> row_products(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[11.,  2.]])
    """
    columns = np.ascontiguousarray(right.T)
    sums = np.zeros((len(left), columns.shape[1]), np.result_type(left, right))
    for rows in _runs(len(left), _ROWS_AT_A_TIME):
        for part in _runs(columns.shape[1], _COLUMNS_AT_A_TIME):
            block = np.zeros((rows.stop - rows.start, part.stop - part.start), sums.dtype)
            for factor, line in zip(left[rows].T, columns[:, part], strict=True):
                block += factor[:, None] * line
            sums[rows, part] = block
    return sums


def _runs(length: int, most: int) -> Iterator[slice]:
    return (slice(first, min(first + most, length)) for first in range(0, length, most))


def dot_rows(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Σ_k left[n, k] right[n, k] for every n, added up in the order of the columns.

    >>> dot_rows(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([11.])
    """
    sums = np.zeros(len(left), np.result_type(left, right))
    for column in range(left.shape[1]):
        sums += left[:, column] * right[:, column]
    return sums
