"""Errors of which the standard deviation itself is in doubt, and intervals for them.

What a correction is off by is small under most ways in which released numbers may have come about, and large under a
few. A normal distribution of the same variance would be too wide in the middle: an interval follows the mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.intervals import half_width, tails

Floats = NDArray[np.float64]

_ENDS = (0.4, 0.6, 0.75, 0.85, 0.91, 0.95, 0.98)  # of parts of a mixture, by weight: finer where errors are large
_STEPS, _PRECISION = 40, 1e-4  # of the search for a width


@dataclass(frozen=True, eq=False)
class Mixture:
    """Normal errors around 0 with one of several standard deviations.

    Attributes:
        weights: how likely each is; together 1.
        stddevs: ascending.
    """

    weights: Floats
    stddevs: Floats

    @classmethod
    def of(cls, weights: Floats, stddevs: Floats) -> Mixture:
        """The mixture in a few parts: neighbouring ones together, each as wide as the mean of their squares says.

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
        """The w with P(|error| ≤ w) = level, for this error and independent normal and Laplace noise.

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
            moved = width + beyond * math.log(2 * beyond / (1 - level)) / density  # Newton's step for the logarithm
            if abs(moved - width) <= _PRECISION * width:
                return moved
            width = moved if low < moved < high else min((low + high) / 2, 2 * width)
        return high

    def times(self, factor: float) -> Mixture:
        """The errors times a factor of at least 0."""
        return Mixture(self.weights, factor * self.stddevs)

    def and_normal(self, stddev: float) -> Mixture:
        """The errors plus an independent normal one."""
        return Mixture(self.weights, np.hypot(self.stddevs, stddev))

    @classmethod
    def normal(cls, stddev: float) -> Mixture:
        """One standard deviation."""
        return cls(np.ones(1), np.array([stddev]))

    @property
    def stddev(self) -> float:
        """Of the whole."""
        return math.sqrt(float(self.weights @ np.square(self.stddevs)))
