"""Stacks of small systems. A system without a solution gives zero and does not affect the others.

NumPy refuses a whole stack because of one singular matrix. If the matrices are users', that would reveal something
about one user's data; if they follow from released values, noise alone may make one singular.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

_LARGEST = 1e100  # limit of a solution's entry: beyond it there is none


def solve_or_zero(matrices: Floats, right: Floats) -> Floats:
    """Return A_k⁻¹ B_k for every k; zero if A_k has no inverse, or the solution is not finite or above 1e100.

    Every bit of a solution depends only on its own matrix and right-hand side.

    Args:
        matrices: [..., d, d].
        right: [..., d, columns], with the same leading dimensions.

    >>> solve_or_zero(np.array([[[2.0]], [[0.0]]]), np.array([[[3.0]], [[3.0]]]))[:, 0, 0]
    array([1.5, 0. ])
    """
    return _each(np.linalg.solve, matrices, right)


def inverse_or_zero(matrices: Floats) -> Floats:
    """Return A_k⁻¹ for every k, and zero if there is none; see `solve_or_zero`."""
    return _each(np.linalg.inv, matrices)


def _each(operation: Callable[..., Floats], *stacks: Floats) -> Floats:
    with np.errstate(all="ignore"):
        try:
            solved = operation(*stacks)
        except np.linalg.LinAlgError:
            solved = _one_by_one(operation, *stacks)
        largest = np.abs(solved).max(axis=(-1, -2), initial=0.0)
    unsolved = ~(largest <= _LARGEST)  # NaN is not
    if unsolved.any():
        solved[unsolved] = 0
    return solved


def _one_by_one(operation: Callable[..., Floats], *stacks: Floats) -> Floats:
    """Do the same, one matrix at a time; NaN if one is singular."""
    solved = np.full(stacks[-1].shape, np.nan, np.result_type(*stacks))
    for place in np.ndindex(stacks[0].shape[:-2]):
        try:
            solved[place] = operation(*(stack[place] for stack in stacks))
        except np.linalg.LinAlgError:
            continue
    return solved
