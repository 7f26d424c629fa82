"""How users' means go with their sizes, and what a cap on sizes does to a mean, from released sums by size class.

In class k, of c_k users whose sizes are about s_k, the released sum is c_k (a + b x_k) plus noise, where x_k counts
octaves from the middle user's size. The line is fitted by weighted least squares, b with a prior around 0 that is as
wide as the data ask for. With weights min(s, h) instead of s, octaves average to x(h) instead of x, so that the mean is
off by b (x - x(h)): that is corrected, and how well b is known says what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_UNKNOWN = 0.25  # prior standard deviation of a mean on a scale from 0 to 1
_SLOPE = 0.003  # the same of b where nothing shows
SLOPE_UNSEEN = 0.02  # of b where nothing was released that could show it: for intervals
_CURVED = 0.005  # what a straight line may miss, an octave
_BETWEEN = 0.03  # variance of users' means


@dataclass(frozen=True, eq=False)
class SizeClasses:
    """Users by size.

    Attributes:
        counts: how many there are in each class; none negative, not all 0.
        sizes: that stand for the classes.
    """

    counts: Floats
    sizes: Floats

    @property
    def n_users(self) -> float:
        """How many users there are."""
        return float(self.counts.sum())

    def total(self, cap: float = math.inf) -> float:
        """All sizes together, each at most the cap."""
        return float((self.counts * np.minimum(self.sizes, cap)).sum())

    def octave(self, cap: float = math.inf) -> float:
        """x: the mean octave, users weighed by their sizes up to the cap."""
        weights = self.counts * np.minimum(self.sizes, cap)
        return float((weights * self.octaves).sum() / weights.sum())

    @property
    def octaves(self) -> Floats:
        """Octaves of the classes from that of the mean user."""
        places = np.log2(self.sizes)
        return np.asarray(places - (self.counts * places).sum() / self.counts.sum())


@dataclass(frozen=True, eq=False)
class SizeLine:
    """A mean that goes with size, a + b x, on a scale from 0 to 1 with 1/2 in the middle.

    Attributes:
        level: a.
        slope: b.
        covariance: of both.
    """

    level: float
    slope: float
    covariance: Floats

    def at(self, octave: float) -> tuple[float, float]:
        """The mean at an octave, and its standard deviation."""
        there = np.array([1.0, octave])
        return float(np.clip(0.5 + self.level + self.slope * octave, 0, 1)), math.sqrt(there @ self.covariance @ there)

    def missed(self, octaves: float) -> tuple[float, float]:
        """What so many octaves change, and its standard deviation."""
        return self.slope * octaves, abs(octaves) * math.hypot(math.sqrt(self.covariance[1, 1]), _CURVED)


UNSEEN = SizeLine(0.0, 0.0, np.diag([_UNKNOWN**2, SLOPE_UNSEEN**2]))
"""The line where nothing was released of it."""


def fitted_line(sums: Floats, noise_variance: float, classes: SizeClasses) -> SizeLine:
    """The line through released sums of (mean - 1/2) by size class."""
    design = np.stack([classes.counts, classes.counts * classes.octaves], axis=1)
    weights = 1 / (noise_variance + _BETWEEN * classes.counts)
    gram, moments = design.T @ (weights[:, None] * design), design.T @ (weights * sums)
    rough = np.linalg.inv(gram + np.diag([_UNKNOWN**-2, 1e-9]))
    shown = float((rough @ moments)[1]) ** 2 - 2 * rough[1, 1]
    covariance = np.linalg.inv(gram + np.diag([_UNKNOWN**-2, 1 / (_SLOPE**2 + max(shown, 0.0))]))
    level, slope = covariance @ moments
    return SizeLine(float(level), float(slope), np.asarray(covariance, np.float64))
