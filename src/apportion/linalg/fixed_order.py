"""Products and rankings that are the same on every processor: one order of additions, ties by column.

A score is a product of two rows, added in the order of their columns. A BLAS rounds depending on the position of an
entry in its blocks, so equal rows could get different scores. `np.argpartition` chooses among equal scores depending on
the width of the vector unit. The compiled kernel and NumPy agree here in every bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import FLOATS, checked_indptr, checked_integers

_ROWS_AT_A_TIME = 64  # size of a block that stays in cache
_COLUMNS_AT_A_TIME = 2048
_ROWS_RANKED_AT_A_TIME = 1024  # size for the NumPy path

Excluded = tuple[NDArray[np.int64], NDArray[np.int32]]


def top_columns(scores: NDArray[Any], depth: int) -> NDArray[np.int64]:
    """Return the columns of the `depth` largest scores in each row, largest first, ties by column; -1 for -inf.

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
    crowded = at_threshold.sum(axis=1) > n_wanted  # if there are more ties than places, the lowest columns win
    ties = at_threshold[crowded]
    at_threshold[crowded] = ties & (np.cumsum(ties, axis=1) <= n_wanted[crowded, None])
    columns = np.nonzero(chosen | at_threshold)[1].reshape(n_rows, depth)
    best = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-best, axis=1, kind="stable")
    ranked = np.take_along_axis(columns, order, axis=1)
    return np.where(np.take_along_axis(best, order, axis=1) == -np.inf, -1, ranked)


def row_products(left: NDArray[Any], right: NDArray[Any], *, threads: int | None = None) -> NDArray[Any]:
    """Return left @ right.T with every product added in the order of the columns, the same on every processor.

    >>> row_products(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[11.,  2.]])
    """
    dtype = np.result_type(left, right)
    if active_backend() != "compiled" or dtype not in FLOATS:
        return _products_by_numpy(left, right)
    scores = np.empty((len(left), len(right)), dtype)
    _by_kernel(left.astype(dtype, copy=False), right.astype(dtype, copy=False), 0, 0.0, None, None, scores, threads)
    return scores


def top_products(
    left: NDArray[Any],
    right: NDArray[Any],
    depth: int,
    *,
    offset: float = 0.0,
    excluded: Excluded | None = None,
    threads: int | None = None,
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the `depth` largest entries of left @ right.T + offset in each row, largest first, ties by column.

    It never makes an array of all products. The rows must be finite.

    Args:
        left: float32 or float64 [n, d], for instance users' vectors.
        right: [m, d] of the same dtype, for instance items' vectors.
        depth: how many to choose, at most m.
        offset: a number that is added to every product.
        excluded: columns to leave out, as (indptr, columns): row j leaves out columns[indptr[j]:indptr[j + 1]], which
            are in ascending order; None to leave out none.
        threads: number of threads; None for all.

    Returns:
        Columns int32 [n, depth] and their scores; -1 and -inf if fewer than `depth` columns were left.

    >>> top_products(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [0.0, 1.0], [3.0, 4.0]]), 2)
    (array([[0, 2]], dtype=int32), array([[11., 11.]]))
    """
    if left.dtype not in FLOATS or left.dtype != right.dtype or left.ndim != 2 or right.shape[1:] != left.shape[1:]:
        raise InputError(
            f"Expected rows of one width and of one float type, got {left.dtype} of shape {left.shape} and "
            f"{right.dtype} of shape {right.shape}.",
            argument=None,
        )
    if not 1 <= depth <= len(right):
        raise InputError(
            f"Expected a depth from 1 to {len(right)}, the number of columns, got {depth}.", argument="depth"
        )
    checked = None if excluded is None else _checked_excluded(excluded, len(left), len(right))
    if active_backend() != "compiled":
        return _top_by_numpy(left, right, depth, offset, checked)
    columns, scores = np.empty((len(left), depth), np.int32), np.empty((len(left), depth), left.dtype)
    _by_kernel(left, right, depth, offset, checked, columns, scores, threads)
    return columns, scores


def _checked_excluded(excluded: Excluded, n_rows: int, n_columns: int) -> Excluded:
    indptr = checked_indptr(excluded[0])
    columns = checked_integers("excluded columns", excluded[1], np.int32, below=n_columns, what="columns")
    if indptr.size != n_rows + 1 or indptr[-1] != columns.size:
        raise InputError(
            f"Expected offsets of {n_rows} rows, from 0 to {columns.size}, got {indptr.size - 1} rows.",
            argument="excluded",
        )
    falls = np.diff(columns) < 0
    falls[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < columns.size)] - 1] = False
    if falls.any():
        raise InputError("Expected the excluded columns of every row in ascending order.", argument="excluded")
    return indptr, columns


class _Arguments(ctypes.Structure):
    """`RankingArguments` of `_users.cpp`."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("n_left", "n_right", "dim", "depth")]
        + [(name, ctypes.c_void_p) for name in ("left", "right", "indptr", "excluded", "columns", "scores")]
        + [("offset", ctypes.c_double)]
    )


def _by_kernel(
    left: NDArray[Any],
    right: NDArray[Any],
    depth: int,
    offset: float,
    excluded: Excluded | None,
    columns: NDArray[np.int32] | None,
    scores: NDArray[Any],
    threads: int | None,
) -> None:
    arguments = _Arguments(n_left=len(left), n_right=len(right), dim=left.shape[1], depth=depth, offset=offset)
    arrays = {"left": np.ascontiguousarray(left), "right": np.ascontiguousarray(right), "scores": scores}
    if excluded is not None:
        arrays["indptr"], arrays["excluded"] = excluded
    if columns is not None:
        arrays["columns"] = columns
    for name, array in arrays.items():
        setattr(arguments, name, array.ctypes.data)
    kernel.ranking(arguments, doubles=scores.dtype == FLOATS[1], threads=threads)


def _products_by_numpy(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    columns = np.ascontiguousarray(right.T)
    sums = np.zeros((len(left), columns.shape[1]), np.result_type(left, right))
    for rows in _runs(len(left), _ROWS_AT_A_TIME):
        for part in _runs(columns.shape[1], _COLUMNS_AT_A_TIME):
            block = np.zeros((rows.stop - rows.start, part.stop - part.start), sums.dtype)
            for factor, line in zip(left[rows].T, columns[:, part], strict=True):
                block += factor[:, None] * line
            sums[rows, part] = block
    return sums


def _top_by_numpy(
    left: NDArray[Any], right: NDArray[Any], depth: int, offset: float, excluded: Excluded | None
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    columns, scores = np.empty((len(left), depth), np.int32), np.empty((len(left), depth), left.dtype)
    for rows in _runs(len(left), _ROWS_RANKED_AT_A_TIME):
        block = _products_by_numpy(left[rows], right)
        block += left.dtype.type(offset)
        if excluded is not None:
            indptr = excluded[0][rows.start : rows.stop + 1]
            owners = np.repeat(np.arange(len(block)), np.diff(indptr))
            block[owners, excluded[1][indptr[0] : indptr[-1]]] = -np.inf
        columns[rows] = top_columns(block, depth)
        scores[rows] = np.take_along_axis(block, np.maximum(columns[rows], 0), axis=1)
        scores[rows][columns[rows] < 0] = -np.inf
    return columns, scores


def _runs(length: int, most: int) -> Iterator[slice]:
    return (slice(first, min(first + most, length)) for first in range(0, length, most))


def dot_rows(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return Σ_k left[n, k] right[n, k] for every n, added in the order of the columns.

    >>> dot_rows(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([11.])
    """
    sums = np.zeros(len(left), np.result_type(left, right))
    for column in range(left.shape[1]):
        sums += left[:, column] * right[:, column]
    return sums
