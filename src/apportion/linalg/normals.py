"""Standard normal numbers from a keyed cryptographic stream, for the noise of private releases.

The same key and counter give the same numbers, on any number of threads and any processor. For new numbers, take a
fresh key from the operating system; to continue, pass the counter that the last call returned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.errors import InputError
from apportion.linalg import chacha, kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import FLOATS
from apportion.linalg.mostly_zero import MostlyZero
from apportion.linalg.packed import FloatArray

_BATCHES = 512  # batches at a time in the NumPy path


def fill_normals(out: FloatArray, key: bytes, counter_start: int = 0, *, threads: int | None = None) -> int:
    """Fill `out` with independent standard normal numbers.

    Args:
        out: C-contiguous float32 or float64 array; float32 is the same stream, rounded.
        key: 32 bytes, secret and never used before with these counters.
        counter_start: the first block of the stream to use.
        threads: number of threads; None is all.

    Returns:
        The first block that was not used: the `counter_start` of the next call with the same key.
    """
    if len(key) != 32:
        raise InputError(f"Expected a key of 32 bytes, got {len(key)}.", argument="key")
    if out.dtype not in FLOATS or not (out.flags.c_contiguous and out.flags.writeable):
        raise InputError(
            f"Expected out to be contiguous, writeable float32 or float64, got {out.dtype}.", argument="out"
        )
    n_batches = -(-out.size // chacha.NORMALS_AT_A_TIME)
    counter_end = counter_start + n_batches * chacha.BLOCKS_AT_A_TIME
    if counter_start < 0 or counter_end > 2**64:
        raise InputError(f"Expected blocks below 2^64, got {counter_start} to {counter_end}.", argument="counter_start")
    if active_backend() == "compiled":
        kernel.fill_normals(out, bytes(key), counter_start, threads=threads)
    else:
        _fill_by_numpy(out.reshape(-1), bytes(key), counter_start)
    return counter_end


def add_normals(
    values: NDArray[np.float64] | MostlyZero,
    scale: float,
    step: float,
    key: bytes,
    dtype: DTypeLike = np.float64,
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> FloatArray:
    """Return values + scale · normal, rounded to multiples of a step, in one pass over memory.

    The numbers are those of `fill_normals`, and each operation is rounded as NumPy rounds it.

    Args:
        values: float64 numbers.
        scale: the standard deviation.
        step: a power of two that has an inverse in float64.
        key: 32 bytes, secret and never used before.
        dtype: float64, or float32 for the same numbers, rounded once more.
        out: of that dtype and shape, contiguous, to write to; None for a new array.
        threads: number of threads; None is all.
    """
    if len(key) != 32:
        raise InputError(f"Expected a key of 32 bytes, got {len(key)}.", argument="key")
    if dtype not in FLOATS:
        raise InputError(f"Expected dtype float32 or float64, got {dtype}.", argument="dtype")
    held = values.require() if isinstance(values, MostlyZero) else np.asarray(values, np.float64, order="C")
    if out is not None and (out.dtype != dtype or out.shape != held.shape or not out.flags.c_contiguous):
        raise InputError(f"Expected out contiguous, of {held.shape} {np.dtype(dtype)}, got {out.shape} {out.dtype}.",
                         argument="out")  # fmt: skip
    if active_backend() == "compiled":
        return kernel.add_normals(held, scale, step, bytes(key), dtype, out=out, threads=threads)
    drawn = np.empty(held.shape)
    _fill_by_numpy(drawn.reshape(-1), bytes(key), 0)
    drawn *= scale
    drawn += held
    drawn *= 1.0 / step
    np.rint(drawn, out=drawn)
    drawn *= step
    if out is None:
        return drawn.astype(dtype, copy=False)
    out[...] = drawn
    return out


def _fill_by_numpy(out: FloatArray, key: bytes, counter: int) -> None:
    step = _BATCHES * chacha.NORMALS_AT_A_TIME
    for first in range(0, out.size, step):
        part = out[first : first + step]
        n_batches = -(-part.size // chacha.NORMALS_AT_A_TIME)
        drawn = chacha.normals(key, counter, n_batches)
        part[:] = drawn.reshape(-1)[: part.size].astype(np.float64)
        counter += n_batches * chacha.BLOCKS_AT_A_TIME
