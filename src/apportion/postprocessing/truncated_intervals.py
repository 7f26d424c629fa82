"""Intervals of numbers that are known because they passed a threshold with their noise.

Given that it passed τ, a number y = x + noise has the chance P(Y ≥ y) / P(Y ≥ τ) of lying at y or above, which rises
with x. The interval has the x for which that is between both tails of the level, so it holds with the level's
probability, given that y passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS, _FAR = 60, 60.0  # of a bisection, and standard deviations that it begins with


def truncated_ends(noisy: Floats, stddev: float, threshold: float, level: float, *, laplace: bool = False) -> Floats:
    """Both ends of each number's interval, with normal or Laplace noise of this standard deviation.

    >>> truncated_ends(np.array([100.0]), 1.0, 5.0, 0.95).round(2)
    array([[ 98.04, 101.96]])
    """
    tails = (1 - level) / 2, (1 + level) / 2
    law = _log_laplace if laplace else _log_normal
    return np.stack([_where(noisy, stddev, threshold, math.log(tail), law) for tail in tails], axis=-1)


def _where(noisy: Floats, stddev: float, threshold: float, wanted: float, law: Callable[[Floats], Floats]) -> Floats:
    """The true number at which the logarithm of the chance of so large a noisy one is as wanted."""
    low, high = noisy - _FAR * stddev, noisy + _FAR * stddev
    for _ in range(_STEPS):
        middle = (low + high) / 2
        chance = law((middle - noisy) / stddev) - law((middle - threshold) / stddev)
        low, high = np.where(chance < wanted, middle, low), np.where(chance < wanted, high, middle)
    return np.asarray((low + high) / 2)


def _log_normal(x: Floats) -> Floats:
    """The logarithm of the chance that standard normal noise is below x."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(x))


def _log_laplace(x: Floats) -> Floats:
    """The same of Laplace noise of variance 1."""
    scaled = math.sqrt(2) * x
    return np.where(scaled < 0, scaled - math.log(2), np.log1p(-0.5 * np.exp(-np.abs(scaled))))
