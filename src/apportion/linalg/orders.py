"""The stable order of codes and of pairs of codes, in linear time, and rows in a given order.

The compiled kernel counts by the first code and sorts each run by the second. The NumPy path sorts by digits of 16
bits, as NumPy's stable sort of uint16 does. Both give the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.errors import InputError
from apportion.linalg import kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.threads import side_by_side

_DIGIT_BITS = 16
_MOST_PACKED = 1 << 32  # number of observations whose position fits beside a code in one word of the kernel
_TAKEN_AT_ONCE = 1 << 20  # rows that one thread takes at a time


def stable_order(
    codes: NDArray[np.int32],
    n_codes: int,
    seconds: NDArray[np.int32] | None = None,
    n_seconds: int = 1,
    *,
    threads: int | None = None,
) -> NDArray[np.int64]:
    """Return the positions sorted by code and then by second code; equal pairs stay in their order.

    Args:
        codes: from 0 to n_codes - 1.
        n_codes: how many there are.
        seconds: a second code for each, from 0 on; None if there is none.
        n_seconds: how many of these there are.
        threads: number of threads; None is all.

    >>> stable_order(np.array([1, 0, 1], np.int32), 2, np.array([1, 0, 0], np.int32), 2)
    array([1, 2, 0])
    """
    if seconds is not None and seconds.shape != codes.shape:
        raise InputError(f"Expected {codes.size} second codes, got {seconds.size}.", argument="seconds")
    if active_backend() != "compiled" or codes.size >= _MOST_PACKED:
        return _by_digits(codes, n_codes, seconds, n_seconds)
    if seconds is not None:
        seconds = np.ascontiguousarray(seconds, np.int32)
    order = kernel.order(np.ascontiguousarray(codes, np.int32), n_codes, seconds, threads=threads)
    if order is None:
        raise InputError(f"Expected codes from 0 to {n_codes - 1}.", argument="codes")
    return order


def take(
    values: NDArray[Any],
    positions: NDArray[Any],
    out: NDArray[Any] | None = None,
    *,
    dtype: DTypeLike | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return `values[positions]`, with several threads. The positions must be within the values; this is not checked.

    Args:
        values: one-dimensional.
        positions: the positions to take.
        out: where to write them; None for a new array.
        dtype: type of a new array; None for the type of the values.
        threads: number of threads; None is all.

    >>> take(np.array([5, 6, 7]), np.array([2, 0]))
    array([7, 5])
    """
    taken = np.empty(positions.size, dtype or values.dtype) if out is None else out

    def fill(first: int) -> None:
        rows = slice(first, first + _TAKEN_AT_ONCE)
        if taken.dtype == values.dtype:
            np.take(values, positions[rows], out=taken[rows], mode="clip")  # "raise" would copy, and hold Python's lock
        else:
            taken[rows] = np.take(values, positions[rows], mode="clip")

    if positions.size <= _TAKEN_AT_ONCE:
        fill(0)
        return taken
    for _ in side_by_side(fill, range(0, positions.size, _TAKEN_AT_ONCE), threads):
        pass
    return taken


def copied(values: NDArray[Any], *, threads: int | None = None) -> NDArray[Any]:
    """Return a copy, made with several threads."""
    if values.ndim != 1 or values.size <= _TAKEN_AT_ONCE:
        return values.copy()
    held = np.empty_like(values)

    def fill(first: int) -> None:
        rows = slice(first, first + _TAKEN_AT_ONCE)
        np.copyto(held[rows], values[rows])

    for _ in side_by_side(fill, range(0, values.size, _TAKEN_AT_ONCE), threads):
        pass
    return held


def chosen(values: NDArray[Any], mask: NDArray[np.bool_], *, threads: int | None = None) -> NDArray[Any]:
    """Return `values[mask]`, with several threads.

    >>> chosen(np.array([5, 6, 7]), np.array([True, False, True]))
    array([5, 7])
    """
    whole = values.flags.c_contiguous and mask.flags.c_contiguous and mask.shape == values.shape
    if active_backend() != "compiled" or not (_is_plain(values) and whole):
        return np.asarray(values[mask])
    found = np.empty(np.count_nonzero(mask), values.dtype)
    kernel.chosen(values, mask, found, threads=threads)
    return found


def without(values: NDArray[Any], positions: NDArray[np.int64], *, threads: int | None = None) -> NDArray[Any]:
    """Return the values except those at some positions, which ascend.

    >>> without(np.array([5, 6, 7]), np.array([1]))
    array([5, 7])
    """
    if active_backend() != "compiled" or not (_is_plain(values) and values.flags.c_contiguous):
        return np.delete(values, positions, axis=0)
    left = np.empty(len(values) - len(positions), values.dtype)
    kernel.without(values, np.ascontiguousarray(positions, np.int64), left, threads=threads)
    return left


def _is_plain(values: NDArray[Any]) -> bool:
    """Whether the kernel copies such values."""
    return values.ndim == 1 and values.itemsize in (4, 8) and values.dtype.kind in "fiu"


def _by_digits(
    codes: NDArray[np.int32], n_codes: int, seconds: NDArray[np.int32] | None, n_seconds: int
) -> NDArray[np.int64]:
    if seconds is not None:
        by_second = _by_digits(seconds, n_seconds, None, 1)
        return by_second[_by_digits(codes[by_second], n_codes, None, 1)]
    order = np.argsort(codes.astype(np.uint16), kind="stable")  # the cast keeps the low digit
    if n_codes > 1 << _DIGIT_BITS:
        high_digit = (codes[order] >> _DIGIT_BITS).astype(np.uint16)
        order = order[np.argsort(high_digit, kind="stable")]
    return order
