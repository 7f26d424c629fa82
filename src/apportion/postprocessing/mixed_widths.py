"""Half-widths of intervals for errors that are partly Laplace noise and otherwise about normal."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.intervals import half_widths

Floats = NDArray[np.float64]

_GRID = np.linspace(0.0, 1.0, 33)  # grid of the Laplace part's share of the variance


def mixed_widths(level: float, stddev: Floats, laplace: Floats) -> Floats:
    """Return w with P(|error| ≤ w) about `level`, to three digits.

    Args:
        level: probability of each interval.
        stddev: the standard deviation of the whole error.
        laplace: the standard deviation of its Laplace part; 0 if there is none.

    >>> mixed_widths(0.95, np.array([1.0, 2**0.5]), np.array([0.0, 2**0.5])).round(3)
    array([1.96 , 2.996])
    """
    share = np.square(np.minimum(laplace, stddev) / np.maximum(stddev, 1e-300))
    return np.asarray(stddev * np.interp(share, _GRID, _unit_widths(level)))


@lru_cache(maxsize=64)
def _unit_widths(level: float) -> Floats:
    """Return half-widths of errors of variance 1, by the Laplace part's share of the variance."""
    return half_widths(level, np.sqrt(1 - _GRID), np.sqrt(_GRID / 2)[:, None])
