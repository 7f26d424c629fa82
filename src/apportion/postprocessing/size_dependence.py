"""Users by size class, as released sums by size class tell them, and what is usual for means of users.

In class k there are c_k users of size about s_k. A cap changes what each class weighs. How that changes a mean depends
on how values go with sizes (`stratified_means`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.class_counts import LikelyCounts

Floats = NDArray[np.float64]

_UNKNOWN = 0.2  # prior standard deviation of a mean on a scale from 0 to 1
OF_USERS, OF_ROWS = 0.005, 0.08  # variance of users' means around the line, and that of rows around users' means
_USUAL = 2.0  # standard deviations within which most users lie
_UNCOUNTED = 0.25  # users in a class next to the last counted ones that may have been missed


@dataclass(frozen=True, eq=False)
class SizeClasses:
    """Users by size.

    Attributes:
        counts: how many users are in each class; none negative, not all 0.
        sizes: the sizes that represent the classes.
        stddev: the standard deviation of the noise with which counts were released.
        shapes: other likely counts.
    """

    counts: Floats
    sizes: Floats
    stddev: float = 0.0
    shapes: LikelyCounts | None = None

    @classmethod
    def of(cls, shapes: LikelyCounts, sizes: Floats, stddev: float) -> SizeClasses:
        """Make it with at least one user, because noise may leave none, and a mean over no users is undefined."""
        counts = shapes.mean.copy()
        counts[0] += max(1 - float(counts.sum()), 0.0)
        return cls(counts, sizes, stddev, shapes)

    @property
    def n_users(self) -> float:
        """The number of users."""
        return float(self.counts.sum())

    def total(self, cap: float = math.inf) -> float:
        """Return the sum of all sizes, each at most the cap."""
        return float((self.counts * np.minimum(self.sizes, cap)).sum())

    def shares(self, cap: float = math.inf) -> Floats:
        """Return the weight of every class, with users weighed by their sizes up to the cap. The weights sum to 1."""
        weights = self.counts * np.minimum(self.sizes, cap)
        return np.asarray(weights / weights.sum())

    def moved(self, cap: float, means: Floats) -> Floats:
        """Return how one more user in each class changes the effect of a cap.

        The effect is the mean of the class means without the cap, less the mean with it.
        """
        ways = [
            np.minimum(self.sizes, most) * (means - self.shares(most) @ means) / self.total(most)
            for most in (math.inf, cap)
        ]
        return np.asarray(ways[0] - ways[1])

    @property
    def variances(self) -> Floats:
        """The variances of the counts: an estimate that allows for a few users who may have been missed."""
        last = int(np.flatnonzero(self.counts >= 0.5)[-1]) if (self.counts >= 0.5).any() else 0
        missed = np.where(np.arange(len(self.counts)) <= last + 2, _UNCOUNTED, 0.0)
        return np.minimum(self.stddev**2, self.counts + missed)

    def likely(self, cap: float) -> tuple[Floats, Floats, Floats]:
        """Return each likely shape's weight, its sum of sizes up to the cap, and what the cap takes from each class.

        The last has a row for each shape: the shares of classes without a cap, less the shares with it.
        """
        shapes = LikelyCounts(self.counts, self.counts[None], np.ones(1)) if self.shapes is None else self.shapes
        every, capped = shapes.each * self.sizes, shapes.each * np.minimum(self.sizes, cap)
        totals = np.maximum(capped.sum(axis=1), 1.0)
        taken = every / np.maximum(every.sum(axis=1), 1.0)[:, None] - capped / totals[:, None]
        return shapes.weights, totals, taken

    @property
    def octaves(self) -> Floats:
        """The octaves of the classes, relative to that of the mean user."""
        places = np.log2(self.sizes)
        return np.asarray(places - (self.counts * places).sum() / self.counts.sum())


def usual_distance(sizes: Floats) -> Floats:
    """Return how far the means of users with this many rows usually lie from that of all, on a scale from 0 to 1."""
    return np.asarray(_USUAL * np.sqrt(2 * OF_USERS + OF_ROWS / sizes))


def first_guess(high: Floats, low: Floats, noise_variance: float, counts: Floats) -> float:
    """Return the mean over users, with classes weighed by their numbers of users; near 1/2 if the noise is large."""
    above, below = float(counts @ high), float(counts @ low)
    total = max(above + below, float(counts @ counts))
    doubt = noise_variance / 2 * float(counts @ counts) / total**2
    return float(np.clip(0.5 + (above - below) / 2 / total * _UNKNOWN**2 / (_UNKNOWN**2 + doubt), 0.0, 1.0))


def balanced_tilt(classes: SizeClasses, clips: Floats) -> Floats:
    """Return weights from -1/clip for small users to 1/clip for large ones.

    They sum to 0 over users who are all alike.
    """
    places = np.arange(len(clips))
    low, high = -1.0, float(len(clips))
    for _ in range(60):
        middle = (low + high) / 2
        weights = np.clip(2 * (places - middle), -1.0, 1.0) / clips
        low, high = (middle, high) if classes.counts @ weights > 0 else (low, middle)
    return np.asarray(weights)
