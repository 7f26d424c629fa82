"""Standard normal numbers from a keyed cryptographic stream, for the noise of private releases.

The same key and counter give the same numbers, on any number of threads and any processor. For new numbers, take a
fresh key from the operating system; to continue, pass the counter that the last call returned.
"""

from __future__ import annotations

import numpy as np

from apportion.errors import InputError
from apportion.linalg import chacha, kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import FLOATS
from apportion.linalg.packed import FloatArray

_BATCHES = 512  # of the NumPy path at a time


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


def _fill_by_numpy(out: FloatArray, key: bytes, counter: int) -> None:
    step = _BATCHES * chacha.NORMALS_AT_A_TIME
    for first in range(0, out.size, step):
        part = out[first : first + step]
        n_batches = -(-part.size // chacha.NORMALS_AT_A_TIME)
        drawn = chacha.normals(key, counter, n_batches)
        part[:] = drawn.reshape(-1)[: part.size].astype(np.float64)
        counter += n_batches * chacha.BLOCKS_AT_A_TIME
