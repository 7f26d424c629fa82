"""Columns of finite numbers from any source. Errors name anything else with its place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError


def finite_matrix(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return a matrix of finite float64 with at least one column. Name the first bad cell."""
    matrix = as_floats(values, name)
    if matrix.ndim != 2 or matrix.shape[1] < 1:
        raise InputError(
            f"Expected {name} as a matrix with at least one column, got shape {matrix.shape}.", argument=name
        )
    finite = np.isfinite(matrix)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"Expected finite numbers in {name}, got {matrix[row, column]} in row {row + 1}, column {column + 1} "
            "(counting from 1).",
            argument=name,
        )
    # another memory layout, which may depend on the other users, rounds differently
    return np.ascontiguousarray(matrix)


def finite_rows(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return the same; a single column may come as a vector."""
    array = as_floats(values, name)
    return finite_matrix(array[:, None] if array.ndim == 1 else array, name)


def finite_column(values: ArrayLike, name: str, n_rows: int) -> NDArray[np.float64]:
    """Return a vector of finite float64, one for each row of X."""
    column = as_floats(values, name)
    if column.shape != (n_rows,):
        raise InputError(
            f"Expected {name} to have {n_rows} rows, one per row of X, got shape {column.shape}.", argument=name
        )
    finite = np.isfinite(column)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"Expected finite numbers in {name}, got {column[row]} in row {row + 1} (counting from 1).", argument=name
        )
    return column


def as_floats(values: Any, name: str) -> NDArray[np.float64]:
    """Return an array of float64, or refuse in one sentence."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        why = str(problem).rstrip(".")
        raise InputError(f"Expected numbers in {name}, got something else: {why}.", argument=name) from problem
