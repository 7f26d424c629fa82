"""Intervals of numbers that are known because they passed a threshold with their noise.

Given that it passed τ, a number y = x + noise has the chance P(Y ≥ y) / P(Y ≥ τ) of lying at y or above, which rises
with x. The interval has the x for which that is between both tails of the level, so it holds with the level's
probability, given that y passed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS, _FAR = 60, 60.0  # of a bisection, and standard deviations that it begins with


def truncated_ends(noisy: Floats, stddev: float, threshold: float, level: float) -> Floats:
    """Both ends of each number's interval.

    >>> truncated_ends(np.array([100.0]), 1.0, 5.0, 0.95).round(2)
    array([[ 98.04, 101.96]])
    """
    tails = (1 - level) / 2, (1 + level) / 2
    return np.stack([_where(noisy, stddev, threshold, math.log(tail)) for tail in tails], axis=-1)


def _where(noisy: Floats, stddev: float, threshold: float, wanted: float) -> Floats:
    """The true number at which the logarithm of the chance of so large a noisy one is as wanted."""
    from scipy.special import log_ndtr

    low, high = noisy - _FAR * stddev, noisy + _FAR * stddev
    for _ in range(_STEPS):
        middle = (low + high) / 2
        chance = log_ndtr((middle - noisy) / stddev) - log_ndtr((middle - threshold) / stddev)
        low, high = np.where(chance < wanted, middle, low), np.where(chance < wanted, high, middle)
    return np.asarray((low + high) / 2)
