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

from apportion.postprocessing.class_counts import LikelyCounts

Floats = NDArray[np.float64]

_UNKNOWN = 0.25  # prior standard deviation of a mean on a scale from 0 to 1
_SLOPE = 0.006  # the same of b where nothing shows
_SLOPE_FEARED = 0.03  # the same for intervals
_BENT, _CURVED = 0.001, 0.004  # what a straight line misses an octave: as expected, and for intervals
_BETWEEN = 0.03  # variance of users' means
_STRIKING = 9.0  # squared standard deviations of a slope that is believed
_STEEPEST = 0.08  # prior standard deviation of a slope, at most: no mean goes from one end of its range to the other
_UNCOUNTED = 0.25  # users in a class next to the last counted ones that may have been missed


@dataclass(frozen=True, eq=False)
class SizeClasses:
    """Users by size.

    Attributes:
        counts: how many there are in each class; none negative, not all 0.
        sizes: that stand for the classes.
        stddev: of the noise that counts were released with.
        shapes: what else the counts may be.
    """

    counts: Floats
    sizes: Floats
    stddev: float = 0.0
    shapes: LikelyCounts | None = None

    @classmethod
    def of(cls, shapes: LikelyCounts, sizes: Floats, stddev: float) -> SizeClasses:
        """At least one user: noise may leave nobody, and a mean over nobody is not a number."""
        counts = shapes.mean.copy()
        counts[0] += max(1 - float(counts.sum()), 0.0)
        return cls(counts, sizes, stddev, shapes)

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

    def below(self, cap: float) -> tuple[float, float]:
        """By how many octaves the mean octave at the cap is below that without one, and the standard deviation."""
        every, capped = self.octave(), self.octave(cap)
        moved = self.sizes * (self.octaves - every) / self.total()
        moved = moved - np.minimum(self.sizes, cap) * (self.octaves - capped) / self.total(cap)
        last = int(np.flatnonzero(self.counts >= 0.5)[-1]) if (self.counts >= 0.5).any() else 0
        missed = np.where(np.arange(len(self.counts)) <= last + 2, _UNCOUNTED, 0.0)
        variances = np.minimum(self.stddev**2, self.counts + missed)
        return every - capped, float(np.sqrt((np.square(moved) * variances).sum()))

    def likely(self, cap: float) -> tuple[Floats, Floats, Floats]:
        """For each likely shape its weight, all sizes together up to the cap, and by how many octaves that is below."""
        shapes = LikelyCounts(self.counts, self.counts[None], np.ones(1)) if self.shapes is None else self.shapes
        places, capped = np.log2(self.sizes), np.minimum(self.sizes, cap)
        totals = np.maximum(shapes.each @ capped, 1.0)
        every = shapes.each @ (self.sizes * places) / np.maximum(shapes.each @ self.sizes, 1.0)
        return shapes.weights, totals, every - shapes.each @ (capped * places) / totals

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
        feared: standard deviation of the slope around b for intervals, with a prior that expects more of it.
    """

    level: float
    slope: float
    covariance: Floats
    feared: float

    def at(self, octave: float) -> tuple[float, float]:
        """The mean at an octave, and its standard deviation."""
        there = np.array([1.0, octave])
        return float(np.clip(0.5 + self.level + self.slope * octave, 0, 1)), math.sqrt(there @ self.covariance @ there)

    def expected_miss(self, weights: Floats, octaves: Floats) -> float:
        """Mean square of what octaves change that are known by several likely numbers, with these weights."""
        of_slope = float(self.covariance[1, 1]) + _BENT**2
        apart = np.square(octaves - weights @ octaves)
        return float(weights @ (of_slope * np.square(octaves) + self.slope**2 * apart))

    def feared_miss(self, octaves: float, doubt: float) -> float:
        """Standard deviation of what so many octaves change, given that of the octaves; as feared, for an interval."""
        return self._unsure(octaves, doubt, math.hypot(self.feared, _CURVED))

    def _unsure(self, octaves: float, doubt: float, of_slope: float) -> float:
        return math.hypot(octaves * of_slope, math.hypot(self.slope, of_slope) * doubt)


UNSEEN = SizeLine(0.0, 0.0, np.diag([_UNKNOWN**2, _SLOPE**2]), _SLOPE_FEARED)
"""The line where nothing was released of it."""


def fitted_line(sums: Floats, noise_variance: float, classes: SizeClasses) -> SizeLine:
    """The line through released sums of (mean - 1/2) by size class."""
    design = np.stack([classes.counts, classes.counts * classes.octaves], axis=1)
    weights = 1 / (noise_variance + _BETWEEN * classes.counts)
    gram, moments = design.T @ (weights[:, None] * design), design.T @ (weights * sums)
    rough = np.linalg.inv(gram + np.diag([_UNKNOWN**-2, _STEEPEST**-2]))
    shown = min(max(float((rough @ moments)[1]) ** 2 - _STRIKING * rough[1, 1], 0.0), _STEEPEST**2)
    covariance, careful = (
        np.linalg.inv(gram + np.diag([_UNKNOWN**-2, 1 / (prior**2 + shown)])) for prior in (_SLOPE, _SLOPE_FEARED)
    )
    level, slope = (float(number) for number in covariance @ moments)
    feared = math.hypot(math.sqrt(careful[1, 1]), float((careful @ moments)[1]) - slope)
    return SizeLine(level, slope, np.asarray(covariance, np.float64), feared)
