"""Nearest positive semidefinite matrices, for the few noisy Gram matrices whose Cholesky solve failed.

The nearest one in Frobenius norm clips the eigenvalues: A = V diag(e) V' becomes V diag(max(e, floor)) V'.
An eigendecomposition costs about twenty times a Cholesky solve, so call this only on the failures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from apportion.errors import InputError
from apportion.linalg.checks import checked_floats, refuse_non_finite
from apportion.linalg.packed import FloatArray, pack, packed_dim, unpack

MAX_ELEMENTS = 1 << 21


def project_psd(packed: ArrayLike, floor: ArrayLike = 0.0) -> FloatArray:
    """Return the nearest packed symmetric matrices with no eigenvalue below `floor`.

    Args:
        packed: float32 or float64 [s, d(d+1)/2].
        floor: smallest eigenvalue wanted, one for all or [s]; not negative.

    Returns:
        A new array of the same shape and dtype. Works in float64 inside.

    >>> project_psd(np.array([[1.0, 0.0, -2.0]]))
    array([[1., 0., 0.]])
    """
    matrices = checked_floats("packed", packed, ndim=2)
    refuse_non_finite(packed=matrices)
    floors = np.asarray(floor, dtype=np.float64)
    if floors.ndim > 1 or (floors.ndim == 1 and floors.size != matrices.shape[0]):
        raise InputError(f"Expected one floor or {matrices.shape[0]}, got shape {floors.shape}.", argument="floor")
    if floors.size and not floors.min() >= 0:
        raise InputError(f"Expected floor >= 0, got {floors.min()}.", argument="floor")
    floors = np.broadcast_to(floors, matrices.shape[0])
    out = np.empty_like(matrices)
    count = max(1, MAX_ELEMENTS // packed_dim(matrices.shape[1]) ** 2)
    for first in range(0, matrices.shape[0], count):
        part = slice(first, first + count)
        values, vectors = np.linalg.eigh(unpack(matrices[part].astype(np.float64)))
        values = np.maximum(values, floors[part, None])
        out[part] = pack(np.matmul(vectors * values[:, None, :], vectors.transpose(0, 2, 1)))
    return out
