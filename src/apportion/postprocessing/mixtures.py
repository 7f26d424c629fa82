"""Errors whose standard deviation is itself uncertain, and intervals for them.

The error of a correction is small under most explanations of the released numbers, and large under a few. A normal
distribution with the same variance would be too wide in the middle, so the interval is that of the mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.intervals import half_width, tails

Floats = NDArray[np.float64]

# cumulated weights at which the parts of a mixture end; finer where errors are large
_ENDS = (0.4, 0.6, 0.75, 0.85, 0.91, 0.95, 0.98)
_STEPS, _PRECISION = 40, 1e-4  # steps and relative precision of the search for a width


@dataclass(frozen=True, eq=False)
class Mixture:
    """Normal errors around 0 with one of several standard deviations.

    Attributes:
        weights: the probability of each; they sum to 1.
        stddevs: the standard deviations, ascending.
    """

    weights: Floats
    stddevs: Floats

    @classmethod
    def of(cls, weights: Floats, stddevs: Floats) -> Mixture:
        """Return the mixture in a few parts. Neighbours are merged, with the mean of their variances.

        >>> Mixture.of(np.array([1.0, 3.0]), np.array([0.2, 0.1])).stddevs
        array([0.1, 0.2])
        """
        order = np.argsort(stddevs, kind="stable")
        weights, squares = weights[order] / weights.sum(), np.square(stddevs[order])
        part = np.searchsorted(_ENDS, np.cumsum(weights) - weights / 2)
        total = np.asarray(np.bincount(part, weights), np.float64)
        kept = total > 0
        return cls(total[kept], np.sqrt(np.bincount(part, weights * squares)[kept] / total[kept]))

    def half_width(self, level: float, normal: float, laplace: Floats) -> float:
        """Return the w with P(|error| ≤ w) = level, for this error plus independent normal and Laplace noise.

        >>> round(Mixture.normal(0.6).half_width(0.95, 0.8, np.zeros(1)), 4)
        1.96
        """
        stddevs = np.hypot(self.stddevs, normal)
        if len(stddevs) == 1:
            return half_width(level, float(stddevs[0]), laplace)
        width = -NormalDist().inv_cdf((1 - level) / 2) * math.hypot(normal, self.stddev, *(math.sqrt(2) * laplace))
        low, high = 0.0, math.inf
        for _ in range(_STEPS):
            beyond, density = (float(self.weights @ each) for each in tails(width, stddevs, laplace))
            low, high = (width, high) if beyond > (1 - level) / 2 else (low, width)
            moved = _newton(width, beyond, density, level)
            if abs(moved - width) <= _PRECISION * width:
                return moved
            width = moved if low < moved < high else min((low + high) / 2, 2 * width)
        return high

    def times(self, factor: float) -> Mixture:
        """Return the errors times a factor of at least 0."""
        return Mixture(self.weights, factor * self.stddevs)

    def and_normal(self, stddev: float) -> Mixture:
        """Return the errors plus an independent normal error."""
        return Mixture(self.weights, np.hypot(self.stddevs, stddev))

    @classmethod
    def normal(cls, stddev: float) -> Mixture:
        """Return a mixture with one standard deviation."""
        return cls(np.ones(1), np.array([stddev]))

    @property
    def stddev(self) -> float:
        """The standard deviation of the whole mixture."""
        return math.sqrt(float(self.weights @ np.square(self.stddevs)))


def _newton(width: float, beyond: float, density: float, level: float) -> float:
    """Return the next width by Newton's step for the logarithm of the tail; -inf where the tail is lost in rounding."""
    if not (beyond > 0 and density > 0):
        return -math.inf
    return width + beyond * math.log(2 * beyond / (1 - level)) / density
