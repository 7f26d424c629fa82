"""Where to cap the norms of users, from a released histogram of them.

A user whose norm r is beyond the cap C is weighed down by C/r. A smaller cap means less noise. It also takes a share f
from totals, which is corrected as far as it is known. And it shifts weights from large users to small ones, which moves
a mean where values go with size. The cap has the least sum of squared relative errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNSURE = 0.7  # of a correction of totals, as a share of it
_UNSURE_MEANS = 0.45  # the same of means
_CLASS = 0.5  # octaves of a class
_WITHIN = 2  # points that stand for a class
_UNEVEN = 2.2  # mean square of the size of a group over the square of its mean
_SLOPE = 0.015  # by how much of its range a mean goes with an octave of users' size, as feared


@dataclass(frozen=True, eq=False)
class Norms:
    """Users by norm.

    Attributes:
        points: norms that stand for users.
        ends: the largest norm that each stands for.
        counts: how many users each stands for.
        ratio: mean of a user's L1 norm over its norm; it grows with the root of the norm. None where norms are L1
            norms.
    """

    points: Floats
    ends: Floats
    counts: Floats
    ratio: float | None

    @classmethod
    def of(cls, counts: Floats, edges: Floats, ratio: float | None, exact: int = 0) -> Norms:
        """From counts by class, each spread over its class of half an octave; fewer than half a user is nobody.

        Args:
            counts: how many users are in each class.
            edges: where classes begin.
            ratio: of L1 norms to norms.
            exact: so many classes, the first ones, have no other norm than their edge.
        """
        counts = np.where(counts >= 0.5, counts, 0.0)
        within = 2.0 ** (_CLASS * (np.arange(_WITHIN) + 0.5) / _WITHIN)
        wide = (edges[exact:, None] * within).ravel()
        points = np.concatenate([edges[:exact], wide])
        ends = np.concatenate([edges[:exact], wide * 2 ** (0.5 * _CLASS / _WITHIN)])
        held = np.concatenate([counts[:exact], np.repeat(counts[exact:] / _WITHIN, _WITHIN)])
        return cls(points, ends, held, ratio)

    @property
    def totals(self) -> Floats:
        """L1 norm of a user at each point."""
        if self.ratio is None:
            return self.points
        roots = np.sqrt(self.points)
        typical = float((self.counts * roots).sum() / max(float(self.counts.sum()), 1e-9))
        return np.asarray(self.points * self.ratio * roots / max(typical, 1e-9))

    def total(self, cap: float = math.inf) -> float:
        """All L1 norms together, users weighed down to the cap."""
        return float((self.counts * self.totals * np.minimum(cap / self.points, 1.0)).sum())

    def lost(self, cap: float) -> float:
        """f: the share of all L1 norms that the cap takes away."""
        return 1 - self.total(cap) / max(self.total(), 1e-9)

    @property
    def largest_cell(self) -> float:
        """About how much of a user is in one group: its L1 norm over the square of that over its norm."""
        return self.total() / max(float(self.counts.sum()), 1e-9) / (self.ratio or 1.0) ** 2

    def shift(self, cap: float) -> float:
        """By how many octaves the cap moves the mean octave, users weighed by their L1 norms."""
        places, weights = np.log2(self.points), self.counts * self.totals
        lower = weights * np.minimum(cap / self.points, 1.0)
        return _mean(places, weights) - _mean(places, lower)


@dataclass(frozen=True, eq=False)
class Ratios:
    """Users by the ratio of their whole norm to that of their sizes, for means.

    Attributes:
        points: ratios that stand for users, from 1 on.
        shares: of users at each.
    """

    points: Floats
    shares: Floats

    @classmethod
    def of(cls, counts: Floats, edges: Floats) -> Ratios:
        """From counts by class; a class is stood for by its end, the last by its beginning."""
        ends = np.append(edges[1:], edges[-1])
        held = np.maximum(counts, 0.0)
        return cls(ends, held / held.sum() if held.any() else np.full(len(ends), 1 / len(ends)))

    @property
    def squares(self) -> float:
        """Mean square of the distance from the centre, over the square of the size."""
        middles = (self.points + np.append(1.0, self.points[:-1])) / 2
        return float((self.shares * (np.square(middles) - 1)).sum())

    def taken(self, cap: float) -> float:
        """What a cap takes from distances to the centre, over sizes; one side may lose all of it."""
        distances = np.sqrt(np.maximum(np.square(self.points) - 1, 0.0))
        return float((self.shares * np.maximum(1 - cap / self.points, 0.0) * distances).sum())


@dataclass(frozen=True)
class MeanCaps:
    """Caps for means.

    Attributes:
        size: of the norm of a user's sizes.
        ratio: of the whole norm to that.
        unsure: standard deviation of what both may do to a mean, as a share of the range.
        of_one: variance of the mean of a group of size 1, whose rows the caps weighed down, from how far users lie from
            the centre.
    """

    size: float
    ratio: float
    unsure: float
    of_one: float


def best_cap(norms: Norms, noise: float, n_groups: int) -> float:
    """The cap for totals with the least error.

    Args:
        norms: of users.
        noise: standard deviation of the noise in a number that one user moves by 1.
        n_groups: how many groups share the total.
    """
    tried = _tried(norms)
    errors = [
        (noise * cap * n_groups / max(norms.total(cap), 1e-9)) ** 2 + _UNEVEN * (UNSURE * norms.lost(cap)) ** 2
        for cap in tried
    ]
    return tried[int(np.argmin(errors))]


def best_mean_caps(norms: Norms, ratios: Ratios, noise: float, n_groups: int, weight: float) -> MeanCaps:
    """The caps for means with the least error.

    Args:
        norms: of users' sizes.
        ratios: of whole norms to them.
        noise: standard deviation of the noise in a number that one user moves by 1.
        n_groups: how many groups share the total.
        weight: of a size beside a distance from the centre.
    """
    found, of_row = [], weight * ratios.squares * norms.largest_cell
    for size in _tried(norms):
        of_one = of_row * (1 - norms.lost(size))  # sizes are of rows weighed down: there are more rows than that
        spread = noise * size * n_groups / max(norms.total(size), 1e-9) * weight
        for ratio in ratios.points.tolist():
            unsure = math.hypot(_SLOPE * norms.shift(size), weight * _UNSURE_MEANS * ratios.taken(ratio))
            found.append((math.hypot(spread * ratio, unsure), MeanCaps(size, ratio, unsure, of_one)))
    return min(found, key=lambda each: each[0])[1]


def _tried(norms: Norms) -> list[float]:
    """Ends of what each point with users stands for."""
    return [float(end) for end in (norms.ends[norms.counts > 0] if norms.counts.any() else norms.ends[:1])]


def _mean(values: Floats, weights: Floats) -> float:
    return float((weights * values).sum() / max(float(weights.sum()), 1e-9))
