"""How users' means go with their sizes, and what a cap on sizes does to a mean, from released sums by size class.

In class k there are c_k users of size about s_k with the mean m_k. The released sums of z and of 1 - z there, times
1 - m and -m, add up to c_k (m_k - m) plus noise, where m is a first guess of the mean. The m_k lie about a line in the
octave of the size; a few users differ from it more than many. How steep the line may be is averaged over priors of
several widths, by how well they fit. One more released number may tell large users from small ones. With weights
min(s, h) instead of s, the mean is off by a known mix of the m_k: that is corrected, and how well the m_k are known
says what is left.
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

    def shares(self, cap: float = math.inf) -> Floats:
        """The weight of every class, users weighed by their sizes up to the cap; together 1."""
        weights = self.counts * np.minimum(self.sizes, cap)
        return np.asarray(weights / weights.sum())

    def moved(self, cap: float, means: Floats) -> Floats:
        """By how much one more user in a class changes what a cap makes of class means, without a cap less with it."""
        ways = [
            np.minimum(self.sizes, most) * (means - self.shares(most) @ means) / self.total(most)
            for most in (math.inf, cap)
        ]
        return np.asarray(ways[0] - ways[1])

    @property
    def variances(self) -> Floats:
        """Of the counts; an estimate, with a few users who may have been missed."""
        last = int(np.flatnonzero(self.counts >= 0.5)[-1]) if (self.counts >= 0.5).any() else 0
        missed = np.where(np.arange(len(self.counts)) <= last + 2, _UNCOUNTED, 0.0)
        return np.minimum(self.stddev**2, self.counts + missed)

    def likely(self, cap: float) -> tuple[Floats, Floats, Floats]:
        """For each likely shape its weight, all sizes together up to the cap, and what a cap takes from each class.

        The last has a row for each shape: the shares of classes without a cap, less those with it.
        """
        shapes = LikelyCounts(self.counts, self.counts[None], np.ones(1)) if self.shapes is None else self.shapes
        every, capped = shapes.each * self.sizes, shapes.each * np.minimum(self.sizes, cap)
        totals = np.maximum(capped.sum(axis=1), 1.0)
        taken = every / np.maximum(every.sum(axis=1), 1.0)[:, None] - capped / totals[:, None]
        return shapes.weights, totals, taken

    @property
    def octaves(self) -> Floats:
        """Octaves of the classes from that of the mean user."""
        places = np.log2(self.sizes)
        return np.asarray(places - (self.counts * places).sum() / self.counts.sum())


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means of users by size class, on a scale from 0 to 1.

    Attributes:
        values: what they are expected to be.
        covariance: how well they are known.
        feared: the same for intervals: one answer for each prior on how steep the line is.
    """

    values: Floats
    covariance: Floats
    feared: list[_Answer]

    def at(self, shares: Floats) -> tuple[float, float]:
        """The mean over classes with these shares, and its standard deviation."""
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
        weights: of the classes.
        value: what was released, in units of the weights.
        variance: of its noise.
    """

    weights: Floats
    value: float
    variance: float


def balanced_tilt(classes: SizeClasses, clips: Floats) -> Floats:
    """Weights from -1/clip for small users to 1/clip for large ones; users who are all alike add up to 0."""
    places = np.arange(len(clips))
    low, high = -1.0, float(len(clips))
    for _ in range(60):
        middle = (low + high) / 2
        weights = np.clip(2 * (places - middle), -1.0, 1.0) / clips
        low, high = (middle, high) if classes.counts @ weights > 0 else (low, middle)
    return np.asarray(weights)


def usual_distance(centre: float, sizes: Floats) -> Floats:
    """How far means of users with so many rows are from the centre, with few exceptions; at most what can be."""
    variance = 2 * _OF_USERS + _OF_ROWS / sizes
    return np.minimum(_USUAL * np.sqrt(variance), max(centre, 1 - centre))


@dataclass(frozen=True, eq=False)
class _Answer:
    """What one prior makes of released sums: how well it fits, class means, and how well they are known."""

    weight: float
    values: Floats
    covariance: Floats

    def missed(self, taken: Floats, change: float) -> Floats:
        """Mean square by which a change is off, for each row of what a cap takes from the classes; never below 0."""
        spread = ((taken @ self.covariance) * taken).sum(axis=1)
        return np.asarray(np.maximum(spread, 0.0) + np.square(taken @ self.values - change))


def _root(variance: float) -> float:
    """The square root of a variance, which rounding may leave below 0 after an absurd histogram."""
    return math.sqrt(max(variance, 0.0))


def class_means(
    high: Floats, low: Floats, noise_variance: float, classes: SizeClasses, tilt: Tilt | None = None
) -> ClassMeans:
    """Means by class from released sums of z and of 1 - z.

    Args:
        high: noisy sums of z of the users in each class.
        low: the same of 1 - z.
        noise_variance: of each.
        classes: how many users they have.
        tilt: how large users differ from small ones, where that was released around `first_guess`.
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
    """The mean over users, classes weighed by how many they have; near 1/2 where noise is large."""
    above, below = float(counts @ high), float(counts @ low)
    total = max(above + below, float(counts @ counts))
    doubt = noise_variance / 2 * float(counts @ counts) / total**2
    return float(np.clip(0.5 + (above - below) / 2 / total * _UNKNOWN**2 / (_UNKNOWN**2 + doubt), 0.0, 1.0))


def _answers(
    sums: Floats, seen: Floats, noise: Floats, classes: SizeClasses, likely: tuple[float, ...], bent: float
) -> list[_Answer]:
    """What each prior on the steepness of the line makes of noisy sums of class means around the first guess.

    Args:
        sums: as released.
        seen: one row for each: how it depends on the class means.
        noise: variance of each.
        classes: how many users they have.
        likely: how likely each prior is.
        bent: by how much the mean of a class is off the line.
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
