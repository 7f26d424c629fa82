"""A pseudo-random function: the number of a point under a secret key. It does not depend on other points.

A point is 128 bits, the counter and the nonce of a block of ChaCha20; its number is the first 64 bits of that block.
Without the key, the numbers of different points look independent and uniform.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import chacha, kernel
from apportion.linalg.backend import active_backend

_AT_A_TIME = 1 << 12  # for the NumPy path, so that the state stays in cache


def keyed_words(key: bytes, points: NDArray[np.uint64], *, threads: int | None = None) -> NDArray[np.uint64]:
    """Return a number of 64 bits for each point.

    Args:
        key: 32 bytes.
        points: [n, 2], a counter and a nonce each.
        threads: number of threads; None is all.
    """
    if len(key) != 32:
        raise InputError(f"Expected a key of 32 bytes, got {len(key)}.", argument="key")
    if points.dtype != np.uint64 or points.ndim != 2 or points.shape[1] != 2:
        raise InputError(
            f"Expected points as uint64 of shape [n, 2], got {points.dtype} of shape {points.shape}.", argument="points"
        )
    out = np.empty(len(points), np.uint64)
    if active_backend() == "compiled":
        kernel.keyed_words(bytes(key), np.ascontiguousarray(points), out, threads=threads)
        return out
    for first in range(0, len(points), _AT_A_TIME):
        part = points[first : first + _AT_A_TIME]
        words = chacha.chacha20_at(bytes(key), part[:, 0], part[:, 1]).astype(np.uint64)
        out[first : first + _AT_A_TIME] = words[:, 1] << np.uint64(32) | words[:, 0]
    return out
