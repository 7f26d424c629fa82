"""Symmetric matrices stored as their lower triangle, row by row: entry (r, c ≤ r) at r(r+1)/2 + c."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def packed_size(width: int) -> int:
    """Number of entries of a packed matrix of this width."""
    return width * (width + 1) // 2


def width_of(size: int) -> int:
    """Width of the matrix that has this many packed entries."""
    width = (math.isqrt(8 * size + 1) - 1) // 2
    if packed_size(width) != size:
        raise ValueError(f"Expected a triangular number of packed entries, got {size}.")
    return width


def pack(full: Floats) -> Floats:
    """Keep the lower triangles of symmetric matrices, over any leading axes.

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    rows, columns = np.tril_indices(full.shape[-1])
    return np.ascontiguousarray(full[..., rows, columns])


def unpack(packed: Floats) -> Floats:
    """Rebuild whole symmetric matrices from their lower triangles."""
    width = width_of(packed.shape[-1])
    rows, columns = np.tril_indices(width)
    full = np.empty((*packed.shape[:-1], width, width), packed.dtype)
    full[..., rows, columns] = packed
    full[..., columns, rows] = packed
    return full
