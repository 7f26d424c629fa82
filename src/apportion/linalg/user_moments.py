"""Each user's Gram matrix and moment of the features of its tasks, and its regression on them under several priors.

The compiled kernel computes them if it was built. On both paths, every user's numbers depend only on its own
observations. The two paths round Gram matrices and moments differently and solve in the same way.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.fixed_sums import Runs
from apportion.linalg.rating_reference import solved_with, user_moments
from apportion.linalg.segments import segment_gram, segment_moment

Floats = NDArray[np.float64]

_LARGEST = 1e50  # limit of features and weights for the kernel, which refuses sums that are not finite


def moments_of_users(
    indptr: NDArray[np.int64], tasks: NDArray[np.int32], features: Any, trust: Any, labels: Any
) -> tuple[Floats, Floats]:
    """Return Σ_i c_i f_i f_iᵀ, as its lower triangle, and Σ_i c_i y_i f_i, with one column for each user.

    The choice of the path depends on public numbers alone, so no user changes how another user's numbers are rounded.

    Args:
        indptr: offsets of users.
        tasks: the tasks of the observations.
        features: f, [n_tasks, d]; public.
        trust: c, one per task; public.
        labels: y, one per observation, within a public range.

    >>> ones = np.ones((2, 1))
    >>> moments_of_users(np.array([0, 2]), np.array([0, 1], np.int32), ones, ones[:, 0], np.array([1.0, 2.0]))
    (array([[2.]]), array([[3.]]))
    """
    held, own = np.asarray(features, np.float64), np.asarray(trust, np.float64)
    weights = own[tasks]
    if active_backend() != "compiled" or not (_is_plain(held) and _is_plain(own)):
        grams, moments = user_moments(Runs(indptr).sums(), list(held[tasks].T), weights, labels)
        return np.stack([entry for row in grams for entry in row]), np.stack(moments)
    packed = segment_gram(indptr, tasks, held, weights=weights)
    return np.ascontiguousarray(packed.T), np.ascontiguousarray(
        segment_moment(indptr, tasks, held, coefficients=weights * labels).T
    )


def solutions(base: Any, base_rhs: Any, grams: Floats, moments: Floats) -> Floats:
    """Return solutions of (base + Gram) x = base_rhs + moment, [d, n_users]; meaningless for a user who has none.

    >>> solutions(np.eye(1), np.zeros(1), np.array([[1.0, 3.0]]), np.array([[2.0, 2.0]]))
    array([[1. , 0.5]])
    """
    dim, n_users = moments.shape
    if active_backend() != "compiled":
        triangle = [list(grams[r * (r + 1) // 2 :][: r + 1]) for r in range(dim)]
        return np.stack(solved_with(base, base_rhs, triangle, list(moments))[1])
    solved = np.empty((dim, n_users))
    arguments = _Arguments(n_users=n_users, dim=dim)
    own = {"base": np.ascontiguousarray(base, np.float64), "base_rhs": np.ascontiguousarray(base_rhs, np.float64)}
    for name, array in (own | {"grams": grams, "moments": moments, "solutions": solved}).items():
        setattr(arguments, name, array.ctypes.data)
    kernel.solutions(arguments)
    return solved


class _Arguments(ctypes.Structure):
    """`SolutionsArguments` of `_users.cpp`."""

    _fields_ = [(name, ctypes.c_int64) for name in ("n_users", "dim")] + [
        (name, ctypes.c_void_p) for name in ("base", "base_rhs", "grams", "moments", "solutions")
    ]


def _is_plain(values: NDArray[np.float64]) -> bool:
    return values.size == 0 or bool(np.abs(values).max() <= _LARGEST)
