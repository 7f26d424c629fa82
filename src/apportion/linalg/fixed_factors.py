"""Factors of one small matrix by elementary operations in a fixed order: the same bits on every processor.

LAPACK and BLAS choose their order of operations by the processor they run on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cholesky(matrix: Floats) -> Floats | None:
    """Return the lower L with matrix = L Lᵀ; None if the matrix is not positive definite.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    rest, lower = matrix.copy(), np.zeros_like(matrix)
    for k in range(len(matrix)):
        if not 0 < rest[k, k] < np.inf:
            return None
        lower[k:, k] = rest[k:, k] / np.sqrt(rest[k, k])
        rest[k + 1 :, k + 1 :] -= lower[k + 1 :, k, None] * lower[k + 1 :, k]
    return lower


def inverse_of_lower(lower: Floats) -> Floats:
    """Return the inverse of a lower triangular matrix.

    >>> inverse_of_lower(np.array([[2.0, 0.0], [1.0, 2.0]]))
    array([[ 0.5 ,  0.  ],
           [-0.25,  0.5 ]])
    """
    inverse = np.eye(len(lower))
    for k in range(len(lower)):
        inverse[k] /= lower[k, k]
        inverse[k + 1 :] -= lower[k + 1 :, k, None] * inverse[k]
    return inverse
