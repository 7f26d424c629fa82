"""Each user's Gram matrix and moment of the features of its tasks, by the compiled kernel where that was built.

Every user's numbers follow from its own observations alone, on both paths; they round them differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.backend import active_backend
from apportion.linalg.fixed_sums import Runs
from apportion.linalg.rating_reference import user_moments
from apportion.linalg.segments import segment_gram, segment_moment

_LARGEST = 1e50  # of features and weights for the kernel, which refuses sums that are not finite


def moments_of_users(
    indptr: NDArray[np.int64], tasks: NDArray[np.int32], features: Any, trust: Any, labels: Any
) -> tuple[list[list[Any]], list[Any]]:
    """Σ_i c_i f_i f_iᵀ, its lower triangle, and Σ_i c_i y_i f_i of every user; see `rating_reference.user_moments`.

    Which path is taken follows from public numbers alone: no user changes how another's are rounded.

    Args:
        indptr: offsets of users.
        tasks: of observations.
        features: f, [n_tasks, d]; public.
        trust: c, one per task; public.
        labels: y, one per observation, within a public range.

    >>> ones = np.ones((2, 1))
    >>> moments_of_users(np.array([0, 2]), np.array([0, 1], np.int32), ones, ones[:, 0], np.array([1.0, 2.0]))
    ([[array([2.])]], [array([3.])])
    """
    held, own = np.asarray(features, np.float64), np.asarray(trust, np.float64)
    weights = own[tasks]
    if active_backend() != "compiled" or not (_is_plain(held) and _is_plain(own)):
        return user_moments(Runs(indptr).sums(), list(held[tasks].T), weights, labels)
    packed = segment_gram(indptr, tasks, held, weights=weights)
    moments = segment_moment(indptr, tasks, held, coefficients=weights * labels)
    columns = [np.ascontiguousarray(column) for column in packed.T]
    starts = [r * (r + 1) // 2 for r in range(held.shape[1])]
    return [columns[at : at + r + 1] for r, at in enumerate(starts)], list(moments.T)


def _is_plain(values: NDArray[np.float64]) -> bool:
    return values.size == 0 or bool(np.abs(values).max() <= _LARGEST)
