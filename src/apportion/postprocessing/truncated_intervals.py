"""Intervals of numbers that are known because they passed a threshold with their noise.

Given that y = x + noise passed τ, the probability of a number at or above y is P(Y ≥ y) / P(Y ≥ τ), which rises with x.
The interval consists of the x for which this probability lies between both tails of the level. So, given that y passed,
it contains the true number with the probability of the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS, _FAR = 60, 60.0  # steps of a bisection, and the standard deviations with which it begins


def truncated_ends(noisy: Floats, stddev: float, threshold: float, level: float, *, laplace: bool = False) -> Floats:
    """Return both ends of each number's interval, for normal or Laplace noise of this standard deviation.

    >>> truncated_ends(np.array([100.0]), 1.0, 5.0, 0.95).round(2)
    array([[ 98.04, 101.96]])
    """
    tails = (1 - level) / 2, (1 + level) / 2
    law = _log_laplace if laplace else _log_normal
    return np.stack([_where(noisy, stddev, threshold, math.log(tail), law) for tail in tails], axis=-1)


def _where(noisy: Floats, stddev: float, threshold: float, wanted: float, law: Callable[[Floats], Floats]) -> Floats:
    """Return the true number at which a noisy number this large has the wanted log probability."""
    low, high = noisy - _FAR * stddev, noisy + _FAR * stddev
    for _ in range(_STEPS):
        middle = (low + high) / 2
        chance = law((middle - noisy) / stddev) - law((middle - threshold) / stddev)
        low, high = np.where(chance < wanted, middle, low), np.where(chance < wanted, high, middle)
    return np.asarray((low + high) / 2)


def _log_normal(x: Floats) -> Floats:
    """Return the logarithm of the probability that standard normal noise is below x."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(x))


def _log_laplace(x: Floats) -> Floats:
    """Return the same for Laplace noise of variance 1."""
    scaled = math.sqrt(2) * x
    return np.where(scaled < 0, scaled - math.log(2), np.log1p(-0.5 * np.exp(-np.abs(scaled))))
