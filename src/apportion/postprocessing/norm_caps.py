"""Where to cap the norms of users, from a released histogram of these norms.

A user whose norm r is beyond the cap C is weighed down by C/r. A smaller cap means less noise. It also takes a share f
from totals, which is corrected as far as it is known: groups differ in f, and f comes from a noisy histogram. And it
shifts weights from large users to small ones, which moves a mean where values go with size. The cap has the least sum
of squared relative errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.class_counts import LikelyCounts

Floats = NDArray[np.float64]

UNSURE = 0.7  # by how much groups differ in what a cap takes from them, as a share of it
_UNSURE_MEANS = 0.45  # the same of means
_CLASS = 0.5  # octaves of a class
_WITHIN = 2  # points that stand for a class
_UNEVEN = 2.2  # mean square of the size of a group over the square of its mean
SLOPE = 0.015  # assumed change of a mean, as a share of its range, for an octave of users' size


@dataclass(frozen=True, eq=False)
class Norms:
    """Users by norm.

    Attributes:
        points: norms that stand for users.
        ends: the largest norm that each stands for.
        counts: how many users each stands for.
        ratio: mean of a user's L1 norm over its norm; it grows with the root of the norm. None where norms are L1
            norms.
        each: what the counts may be instead, a row each.
        weights: how likely each row is; together 1.
    """

    points: Floats
    ends: Floats
    counts: Floats
    ratio: float | None
    each: Floats
    weights: Floats

    @classmethod
    def of(cls, likely: LikelyCounts, edges: Floats, ratio: float | None, exact: int = 0) -> Norms:
        """From counts by class, each spread over its class of half an octave; fewer than half a user is nobody.

        Args:
            likely: how many users are in each class.
            edges: where classes begin.
            ratio: the mean ratio of L1 norms to norms.
            exact: the number of classes, from the first, in which all norms equal the edge.
        """
        within = 2.0 ** (_CLASS * (np.arange(_WITHIN) + 0.5) / _WITHIN)
        wide = (edges[exact:, None] * within).ravel()
        points = np.concatenate([edges[:exact], wide])
        ends = np.concatenate([edges[:exact], wide * 2 ** (0.5 * _CLASS / _WITHIN)])
        return cls(points, ends, _spread(likely.mean, exact), ratio, _spread(likely.each, exact), likely.weights)

    @property
    def totals(self) -> Floats:
        """The L1 norm of a user at each point."""
        if self.ratio is None:
            return self.points
        roots = np.sqrt(self.points)
        typical = float((self.counts * roots).sum() / max(float(self.counts.sum()), 1e-9))
        return np.asarray(self.points * self.ratio * roots / max(typical, 1e-9))

    def total(self, cap: float = math.inf) -> float:
        """Return the sum of all L1 norms, with users weighed down to the cap."""
        return float((self.counts * self.totals * np.minimum(cap / self.points, 1.0)).sum())

    def lost(self, cap: float) -> float:
        """Return f, the share of all L1 norms that the cap removes."""
        return 1 - self.total(cap) / max(self.total(), 1e-9)

    def off(self, cap: float) -> float:
        """Standard deviation of what is not known of the correction for f, as a share of a total.

        A part is how groups differ in f; the rest is what f may be, given the noisy counts.
        """
        kept = self.each @ (self.totals * np.minimum(cap / self.points, 1.0))
        lost = 1 - kept / np.maximum(self.each @ self.totals, 1e-9)
        spread = math.sqrt(float(self.weights @ np.square(lost - self.weights @ lost)))
        return math.hypot(UNSURE * self.lost(cap), spread)

    @property
    def largest_cell(self) -> float:
        """About how much of a user is in one group: its L1 norm, divided by the square of the ratio."""
        return self.total() / max(float(self.counts.sum()), 1e-9) / (self.ratio or 1.0) ** 2

    def seen_groups(self, noise: float, n_groups: int) -> float:
        """How many groups there are, or would be if each were as large as its noise: smaller ones cannot be seen."""
        typical = float((self.counts * self.points).sum()) / max(float(self.counts.sum()), 1e-9)
        return min(float(n_groups), max(self.total() / max(noise * typical, 1e-9), 1.0))

    def shift(self, cap: float) -> float:
        """Return by how many octaves the cap moves the mean octave, with users weighed by their L1 norms."""
        places, weights = np.log2(self.points), self.counts * self.totals
        lower = weights * np.minimum(cap / self.points, 1.0)
        return _mean(places, weights) - _mean(places, lower)


@dataclass(frozen=True, eq=False)
class Ratios:
    """Users by the ratio of their whole norm to the norm of their sizes, for means.

    Attributes:
        points: ratios that represent users, from 1 on.
        shares: the share of users at each point.
    """

    points: Floats
    shares: Floats

    @classmethod
    def of(cls, counts: Floats, edges: Floats) -> Ratios:
        """Make it from counts by class. A class is represented by its end, the last class by its beginning."""
        ends = np.append(edges[1:], edges[-1])
        held = np.maximum(counts, 0.0)
        return cls(ends, held / held.sum() if held.any() else np.full(len(ends), 1 / len(ends)))

    @property
    def squares(self) -> float:
        """The mean square of the distance from the centre, over the square of the size."""
        middles = (self.points + np.append(1.0, self.points[:-1])) / 2
        return float((self.shares * (np.square(middles) - 1)).sum())

    def taken(self, cap: float) -> float:
        """Return what a cap removes from distances to the centre, over sizes.

        In the worst case, all of it is on one side.
        """
        distances = np.sqrt(np.maximum(np.square(self.points) - 1, 0.0))
        return float((self.shares * np.maximum(1 - cap / self.points, 0.0) * distances).sum())


@dataclass(frozen=True)
class MeanCaps:
    """Caps for means.

    Attributes:
        size: the cap on the norm of a user's sizes.
        ratio: the cap on the ratio of the whole norm to that norm.
        unsure: the standard deviation of the change of a mean by both caps, as a share of the range.
        of_one: the variance of the mean of a group of size 1, whose rows the caps weigh down. It follows from the
            distances of users from the centre.
    """

    size: float
    ratio: float
    unsure: float
    of_one: float


def best_cap(norms: Norms, noise: float, n_groups: int) -> float:
    """The cap for totals with the least error; arguments as in `least_error`."""
    return least_error(norms, noise, n_groups)[1]


def least_error(norms: Norms, noise: float, n_groups: int) -> tuple[float, float]:
    """The least squared error of a total, relative to that of a typical group, and the cap that has it.

    Args:
        norms: the norms of users.
        noise: standard deviation of the noise in a number that one user moves by 1.
        n_groups: how many groups share the total.
    """
    seen = norms.seen_groups(noise, n_groups)
    return min((squared_error(noise * cap, seen, norms.total(cap), norms.off(cap)), cap) for cap in _tried(norms))


def squared_error(noise: float, n_groups: float, total: float, off: float) -> float:
    """The squared error of a typical group's total, as a share, if noise and what else may be off are these."""
    return (noise * n_groups / max(total, 1e-9)) ** 2 + _UNEVEN * off**2


def best_mean_caps(norms: Norms, ratios: Ratios, noise: float, n_groups: int, weight: float) -> MeanCaps:
    """Return the caps for means with the least error.

    Args:
        norms: the norms of users' sizes.
        ratios: the ratios of whole norms to these norms.
        noise: standard deviation of the noise in a number that one user moves by 1.
        n_groups: how many groups share the total.
        weight: the weight of a size relative to a distance from the centre.
    """
    found, of_row = [], weight * ratios.squares * norms.largest_cell
    for size in _tried(norms):
        # sizes count rows that were weighed down, so there are more rows than that
        of_one = of_row * (1 - norms.lost(size))
        spread = noise * size * n_groups / max(norms.total(size), 1e-9) * weight
        for ratio in ratios.points.tolist():
            unsure = math.hypot(SLOPE * norms.shift(size), weight * _UNSURE_MEANS * ratios.taken(ratio))
            found.append((math.hypot(spread * ratio, unsure), MeanCaps(size, ratio, unsure, of_one)))
    return min(found, key=lambda each: each[0])[1]


def _tried(norms: Norms) -> list[float]:
    """Return the ends of the points that have users."""
    return [float(end) for end in (norms.ends[norms.counts > 0] if norms.counts.any() else norms.ends[:1])]


def _spread(counts: Floats, exact: int) -> Floats:
    """Counts by class over the points that stand for a class."""
    held = np.where(counts >= 0.5, counts, 0.0)
    return np.concatenate([held[..., :exact], np.repeat(held[..., exact:] / _WITHIN, _WITHIN, axis=-1)], axis=-1)


def _mean(values: Floats, weights: Floats) -> float:
    return float((weights * values).sum() / max(float(weights.sum()), 1e-9))
