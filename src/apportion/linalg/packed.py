"""Packed symmetric matrices: the lower triangle, row by row.

Entry (r, c) with c <= r lies at r(r+1)/2 + c, so a d x d matrix takes d(d+1)/2 numbers. Any leading
dimensions are kept: a stack of matrices [..., d, d] packs to [..., d(d+1)/2].
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError

FloatArray = NDArray[np.floating[Any]]


def packed_size(dim: int) -> int:
    """Return the number of entries of a packed matrix of `dim` rows.

    >>> packed_size(3)
    6
    """
    return dim * (dim + 1) // 2


def packed_dim(size: int) -> int:
    """Return the number of rows of a packed matrix with `size` entries.

    >>> packed_dim(6)
    3
    """
    dim = (math.isqrt(8 * size + 1) - 1) // 2
    if size < 1 or packed_size(dim) != size:
        raise InputError(
            f"Expected a triangular number of packed entries (1, 3, 6, 10, ...), got {size}.", argument="size"
        )
    return dim


@lru_cache(maxsize=32)
def _positions(dim: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where packed entries lie in a flat d x d matrix, and where entries of that matrix lie packed."""
    rows, columns = np.tril_indices(dim)
    full = np.empty((dim, dim), dtype=np.int64)
    full[rows, columns] = full[columns, rows] = np.arange(rows.size)
    return rows * dim + columns, full.ravel()


def pack(full: FloatArray) -> FloatArray:
    """Pack the lower triangles of `full` [..., d, d]; entries above the diagonal are not read.

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    if full.ndim < 2 or full.shape[-1] != full.shape[-2] or full.shape[-1] == 0:
        raise InputError(f"Expected square matrices [..., d, d], got shape {full.shape}.", argument="full")
    dim = full.shape[-1]
    flat = full.reshape(*full.shape[:-2], dim * dim)
    return flat[..., _positions(dim)[0]]


def unpack(packed: FloatArray) -> FloatArray:
    """Return the symmetric matrices [..., d, d] of `packed` [..., d(d+1)/2].

    >>> unpack(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    if packed.ndim < 1:
        raise InputError(f"Expected packed matrices [..., d(d+1)/2], got shape {packed.shape}.", argument="packed")
    dim = packed_dim(packed.shape[-1])
    return packed[..., _positions(dim)[1]].reshape(*packed.shape[:-1], dim, dim)


def diagonal_positions(dim: int) -> NDArray[np.int64]:
    """Return the packed positions of the diagonal.

    >>> diagonal_positions(3)
    array([0, 2, 5])
    """
    rows = np.arange(dim, dtype=np.int64)
    return rows * (rows + 3) // 2


def frobenius_weights(dim: int) -> NDArray[np.float64]:
    """Return weights v with ||A||_F^2 = sum v a^2 over packed entries: 1 on the diagonal, 2 off it."""
    weights = np.full(packed_size(dim), 2.0)
    weights[diagonal_positions(dim)] = 1.0
    return weights
