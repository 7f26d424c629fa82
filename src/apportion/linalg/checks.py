"""Argument checks of `apportion.linalg`: shapes, types and ranges are checked here, once, before any arithmetic.

Values are not scanned for NaN on the way in. Every result is checked to be finite. Only if one is not, the code
searches for the number that caused it and names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.linalg.packed import FloatArray

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True)
class SegmentedRows:
    """Segment s owns observations indptr[s] .. indptr[s+1]; observation k is row indices[k] of features."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    features: FloatArray

    @property
    def n_segments(self) -> int:
        """Number of segments."""
        return int(self.indptr.size) - 1

    @property
    def n_observations(self) -> int:
        """Number of observations in all segments together."""
        return int(self.indices.size)

    @property
    def dim(self) -> int:
        """Number of columns of the features."""
        return int(self.features.shape[1])


def checked_segments(indptr: ArrayLike, indices: ArrayLike, features: ArrayLike) -> SegmentedRows:
    """Return the three arrays in the form that the kernels read, or refuse in one sentence."""
    rows = checked_floats("features", features, ndim=2)
    if rows.shape[1] == 0:
        raise InputError(f"Expected features with at least one column, got shape {rows.shape}.", argument="features")
    starts = checked_indptr(indptr)
    picks = checked_integers("indices", indices, np.int32, below=rows.shape[0], what="rows of features")
    if starts[-1] != picks.size:
        raise InputError(
            f"Expected indptr from 0 to {picks.size}, the number of indices, got {starts[-1]} last.", argument="indptr"
        )
    return SegmentedRows(starts, picks, rows)


def checked_indptr(indptr: ArrayLike) -> NDArray[np.int64]:
    """Return boundaries of segments, int64, that start with 0 and never decrease."""
    starts = checked_integers("indptr", indptr, np.int64)
    if starts.size < 1 or starts[0] != 0:
        raise InputError(f"Expected indptr to start with 0, got {starts[:1].tolist()}.", argument="indptr")
    falls = np.flatnonzero(np.diff(starts) < 0)
    if falls.size:
        at = int(falls[0])
        got = f"{starts[at]} then {starts[at + 1]} at position {at + 1}"
        raise InputError(f"Expected indptr that does not decrease, got {got}.", argument="indptr")
    return starts


def checked_integers(
    name: str, values: ArrayLike, dtype: type[np.integer[Any]], *, below: int | None = None, what: str = ""
) -> NDArray[Any]:
    """Return a contiguous one-dimensional array of whole numbers, all from 0 to `below` if that is given."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"Expected {name} to have one dimension, got shape {array.shape}.", argument=name)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"Expected integers in {name}, got dtype {array.dtype}.", argument=name)
    if below is not None and array.size and (array.min() < 0 or array.max() >= below):
        raise InputError(
            f"Expected {name} within the {below} {what}, got {array.min()} to {array.max()}.", argument=name
        )
    return np.ascontiguousarray(array, dtype=dtype)


def checked_floats(
    name: str,
    values: ArrayLike,
    *,
    ndim: int | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> FloatArray:
    """Return a contiguous float32 or float64 array of the wanted shape.

    Args:
        name: what to call it in an error.
        values: the array.
        ndim: wanted number of dimensions.
        shape: wanted shape.
        dtype: what to convert to; None keeps float32 and float64 and refuses the rest.
    """
    array = np.asarray(values)
    if dtype is None and array.dtype not in FLOATS:
        raise InputError(f"Expected {name} to be float32 or float64, got {array.dtype}.", argument=name)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise InputError(f"Expected numbers in {name}, got dtype {array.dtype}.", argument=name)
    if np.issubdtype(array.dtype, np.complexfloating):
        raise InputError(f"Expected real numbers in {name}, got dtype {array.dtype}.", argument=name)
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"Expected {name} to have {ndim} dimensions, got shape {array.shape}.", argument=name)
    if shape is not None and array.shape != shape:
        raise InputError(f"Expected {name} of shape {shape}, got {array.shape}.", argument=name)
    return np.ascontiguousarray(array, dtype=dtype)


def checked_symmetric(name: str, values: ArrayLike, dim: int, dtype: np.dtype[Any]) -> FloatArray:
    """Return a symmetric [dim, dim] matrix of finite numbers."""
    matrix = checked_floats(name, values, shape=(dim, dim), dtype=dtype)
    refuse_non_finite(**{name: matrix})
    skew = np.abs(matrix - matrix.T)
    if skew.max() > 1e-5 * np.abs(matrix).max():
        r, c = np.unravel_index(int(skew.argmax()), skew.shape)
        got = f"{matrix[r, c]} and {matrix[c, r]} at ({r}, {c})"
        raise InputError(f"Expected {name} to be symmetric, got {got}.", argument=name)
    return matrix


def checked_out(out: FloatArray | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> FloatArray:
    """Return `out` if it fits; a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if out.shape != shape or out.dtype != dtype:
        raise InputError(f"Expected out of shape {shape} and {dtype}, got {out.shape} and {out.dtype}.", argument="out")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise InputError("Expected out to be C-contiguous and writeable.", argument="out")
    return out


def all_finite(array: FloatArray) -> bool:
    """Whether no entry is NaN or infinite (one fast sum in the usual case)."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def first_non_finite(**arrays: FloatArray | None) -> str | None:
    """Name the first NaN or infinity in `arrays`, for example "weights[3] is nan"; None if there is none."""
    for name, array in arrays.items():
        if array is None or all_finite(array):
            continue
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        return f"{name}[{', '.join(map(str, at))}] is {array[at]}"
    return None


def refuse_non_finite(**arrays: FloatArray | None) -> None:
    """Raise an InputError that names the first NaN or infinity in `arrays`."""
    bad = first_non_finite(**arrays)
    if bad is not None:
        raise InputError(f"Expected finite numbers, but {bad}.", argument=None)


def checked_sums(sums: NDArray[np.int64], shape: tuple[int, ...]) -> None:
    """Refuse sums that cannot be added to in place."""
    if sums.shape != shape or sums.dtype != np.int64 or not (sums.flags.c_contiguous and sums.flags.writeable):
        raise InputError(
            f"Expected writeable int64 sums of shape {shape}, got {sums.dtype} of shape {sums.shape}.", argument=None
        )


def check_order(indptr: NDArray[np.int64], tasks: NDArray[np.int32], n_tasks: int) -> None:
    """Refuse tasks that are not in ascending order within each user, each once."""
    starts = np.zeros(len(tasks) + 1, bool)
    starts[indptr] = True
    ordered = (starts[1:-1] | (np.diff(tasks) > 0)).all()
    if not (ordered and (tasks.size == 0 or (tasks.min() >= 0 and tasks.max() < n_tasks))):
        refuse_order(n_tasks)


def refuse_order(n_tasks: int) -> None:
    """Raise an error that states the expected order."""
    raise InputError(
        f"Expected the tasks of every user in ascending order, each once, all below {n_tasks}.", argument="tasks"
    )
