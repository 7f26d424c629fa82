"""How users' means depend on their sizes, and how a cap on sizes changes a mean, from released sums by size class.

In class k there are c_k users of size about s_k with the mean m_k. The released sums of z and of 1 - z there, times
1 - m and -m, add up to c_k (m_k - m) plus noise, where m is a first guess of the mean. The m_k lie near a line in the
octave of the size. The mean of a few users differs from it more than that of many. How steep the line may be is
averaged over priors of several widths, by how well they fit. One more released number may distinguish large users from
small ones. With weights min(s, h) instead of s, the mean has an error that is a known mix of the m_k. That error is
corrected, and the uncertainty of the m_k determines what is left of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.class_counts import LikelyCounts
from apportion.postprocessing.mixtures import Mixture

Floats = NDArray[np.float64]

_UNKNOWN = 0.2  # prior standard deviation of a mean on a scale from 0 to 1
_STEEP = (0.002, 0.01, 0.03, 0.08)  # prior standard deviations of what an octave of sizes changes
_EXPECTED = (0.7, 0.249, 0.05, 0.001)  # how likely each is, for estimates
_FEARED = (0.25, 0.35, 0.25, 0.15)  # the same for intervals
_BENT, _CURVED = 0.01, 0.015  # by how much the mean of a class is off the line: for estimates, for intervals
_OF_USERS, _OF_ROWS = 0.005, 0.08  # variance of users' means around the line, and that of rows around users' means
_USUAL = 2.0  # standard deviations within which most users lie
_TAILS = 2.0  # by which the variance of noise is larger in fits: Laplace noise is often far out
_CAUTION = 0.5  # part of what is feared that counts for the choice of a cap
_DOUBTED = 0.7  # power of how likely numbers of users are, for intervals
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

    def octave(self, cap: float = math.inf) -> float:
        """Return x, the mean octave, with users weighed by their sizes up to the cap."""
        weights = self.counts * np.minimum(self.sizes, cap)
        return float((weights * self.octaves).sum() / weights.sum())

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


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means of users by size class, on a scale from 0 to 1.

    Attributes:
        values: the estimated means.
        covariance: the covariance of their errors.
        feared: the same for intervals, more cautiously: one answer for each prior on the slope of the line.
    """

    values: Floats
    covariance: Floats
    feared: list[_Answer]

    def at(self, shares: Floats) -> tuple[float, float]:
        """Return the mean over classes with these shares, and its standard deviation."""
        return float(np.clip(shares @ self.values, 0, 1)), _root(float(shares @ self.covariance @ shares))

    def expected_miss(self, weights: Floats, taken: Floats) -> float:
        """Mean square of what a cap changes and a correction misses, over likely numbers of users with weights."""
        change = float(weights @ (taken @ self.values))
        expected = _Answer(1.0, self.values, self.covariance).missed(taken, change)
        feared = np.sum([each.weight * each.missed(taken, change) for each in self.feared], axis=0)
        return float(weights @ (expected + _CAUTION * (feared - expected)))

    def correction(self, classes: SizeClasses, cap: float) -> tuple[float, Mixture]:
        """What a cap changes, and what that may be off by, for an interval."""
        change = float((classes.shares() - classes.shares(cap)) @ self.values)
        shapes, _, taken = classes.likely(cap)
        doubted = shapes**_DOUBTED / (shapes**_DOUBTED).sum()
        weights = np.concatenate([each.weight * doubted for each in self.feared])
        missed = np.concatenate([each.missed(taken, change) for each in self.feared])
        return change, Mixture.of(weights, np.sqrt(missed))


@dataclass(frozen=True, eq=False)
class Tilt:
    """One released number: each user's clipped distance from a centre, times a weight of its size class.

    Attributes:
        weights: the weights of the classes.
        value: the released number, in units of the weights.
        variance: the variance of its noise.
    """

    weights: Floats
    value: float
    variance: float


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


def usual_distance(centre: float, sizes: Floats) -> Floats:
    """Return how far the means of users with this many rows usually lie from the centre, within what is possible."""
    variance = 2 * _OF_USERS + _OF_ROWS / sizes
    return np.minimum(_USUAL * np.sqrt(variance), max(centre, 1 - centre))


@dataclass(frozen=True, eq=False)
class _Answer:
    """The answer of one prior to the released sums: how well it fits, the class means, and their covariance."""

    weight: float
    values: Floats
    covariance: Floats

    def missed(self, taken: Floats, change: float) -> Floats:
        """Return the mean square error of a change, for each row of what a cap takes from the classes; at least 0."""
        spread = ((taken @ self.covariance) * taken).sum(axis=1)
        return np.asarray(np.maximum(spread, 0.0) + np.square(taken @ self.values - change))


def _root(variance: float) -> float:
    """Return the square root of a variance. After an absurd histogram, rounding may leave the variance below 0."""
    return math.sqrt(max(variance, 0.0))


def class_means(
    high: Floats, low: Floats, noise_variance: float, classes: SizeClasses, tilt: Tilt | None = None
) -> ClassMeans:
    """Return means by class from released sums of z and of 1 - z.

    Args:
        high: noisy sums of z over the users in each class.
        low: noisy sums of 1 - z.
        noise_variance: the variance of the noise of each sum.
        classes: the classes, with their numbers of users.
        tilt: how large users differ from small ones, if that was released, around `first_guess`.
    """
    guess = first_guess(high, low, noise_variance, classes.counts)
    sums = (1 - guess) * high - guess * low
    variance = np.full(len(sums), _TAILS * noise_variance * ((1 - guess) ** 2 + guess**2))
    seen = np.diag(classes.counts)
    if tilt is not None:
        sums, variance = np.append(sums, tilt.value), np.append(variance, tilt.variance)
        seen = np.vstack([seen, classes.counts * tilt.weights])
    expected = _answers(sums, seen, variance, classes, _EXPECTED, _BENT)
    values = np.asarray(sum(each.weight * each.values for each in expected))
    apart = [each.values - values for each in expected]
    covariance = sum(
        each.weight * (each.covariance + np.outer(off, off)) for each, off in zip(expected, apart, strict=True)
    )
    feared = [
        _Answer(each.weight, guess + each.values, each.covariance)
        for each in _answers(sums, seen, variance, classes, _FEARED, _CURVED)
    ]
    return ClassMeans(guess + values, np.asarray(covariance), feared)


def first_guess(high: Floats, low: Floats, noise_variance: float, counts: Floats) -> float:
    """Return the mean over users, with classes weighed by their numbers of users; near 1/2 if the noise is large."""
    above, below = float(counts @ high), float(counts @ low)
    total = max(above + below, float(counts @ counts))
    doubt = noise_variance / 2 * float(counts @ counts) / total**2
    return float(np.clip(0.5 + (above - below) / 2 / total * _UNKNOWN**2 / (_UNKNOWN**2 + doubt), 0.0, 1.0))


def _answers(
    sums: Floats, seen: Floats, noise: Floats, classes: SizeClasses, likely: tuple[float, ...], bent: float
) -> list[_Answer]:
    """Return the answer of each prior on the slope of the line to noisy sums of class means around the first guess.

    Args:
        sums: the released sums.
        seen: one row for each sum: how it depends on the class means.
        noise: the variance of each sum's noise.
        classes: the classes, with their numbers of users.
        likely: the probability of each prior.
        bent: the deviation of the mean of a class from the line.
    """
    counts, octaves = classes.counts, classes.octaves
    level = _UNKNOWN**2 + np.diag(bent**2 + (_OF_USERS + _OF_ROWS / classes.sizes) / np.maximum(counts, 1.0))
    found = []
    for steep, weight in zip(_STEEP, likely, strict=True):
        prior = level + steep**2 * np.outer(octaves, octaves)
        cross = prior @ seen.T
        spread = seen @ cross + np.diag(noise)
        solved = np.linalg.solve(spread, np.column_stack([sums, cross.T]))
        fit = math.log(weight) - (sums @ solved[:, 0] + np.linalg.slogdet(spread)[1]) / 2
        found.append((fit, cross @ solved[:, 0], prior - cross @ solved[:, 1:]))
    weights = np.exp([fit - max(each[0] for each in found) for fit, _, _ in found])
    weights = weights / weights.sum()
    return [_Answer(float(weight), mean, left) for weight, (_, mean, left) in zip(weights, found, strict=True)]
