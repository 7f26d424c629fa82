"""Numbers of groups that were found, and their intervals at any level."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.ratio_intervals import NoisyRatio
from apportion.postprocessing.truncated_intervals import truncated_ends

Floats = NDArray[np.float64]


class Found(ABC):
    """One statistic of all groups, one row for each group.

    Attributes:
        values: the estimates; a column for each bin or rank where a group has several.
        noise: standard deviation of what privacy added to each.
    """

    values: Floats
    noise: Floats

    @abstractmethod
    def ends(self, level: float) -> Floats:
        """Both ends of each number's interval, on a last axis."""

    def simultaneous(self, level: float) -> Floats:
        """Both ends of intervals that hold all together."""
        return self.ends(1 - (1 - level) / max(self.values.size, 1))


@dataclass(frozen=True, eq=False)
class FoundNumbers(Found):
    """Numbers around which what is not known is about normal.

    Attributes:
        values: the estimates.
        noise: of privacy alone.
        stddev: of all that is not known.
        bounds: that every number lies within.
    """

    values: Floats
    noise: Floats
    stddev: Floats
    bounds: tuple[float, float]

    def ends(self, level: float) -> Floats:
        """So many standard deviations on both sides."""
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.stddev
        return np.clip(np.stack([self.values - reach, self.values + reach], axis=-1), *self.bounds)


@dataclass(frozen=True, eq=False)
class FoundRatios(Found):
    """Ratios that are not shrunk, each with an interval that holds for its group.

    Attributes:
        values: the estimates.
        noise: of privacy alone.
        ratios: of which they come, on a scale from 0 to 1.
        centre: where that scale's ratios are measured from.
        unsure: standard deviation of what else may be off.
        scale: (low, high) in the units of the data.
    """

    values: Floats
    noise: Floats
    ratios: tuple[NoisyRatio, ...]
    centre: float
    unsure: float
    scale: tuple[float, float]

    def ends(self, level: float) -> Floats:
        """Fieller's intervals."""
        low, high = self.scale
        found = np.array([each.interval(level, self.unsure, 0.0) for each in self.ratios]).reshape(-1, 2)
        return np.asarray(low + (high - low) * np.clip(self.centre + found, 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class FoundListed(Found):
    """Numbers of users of groups that were listed because their noisy counts passed a threshold.

    Attributes:
        values: the estimates.
        noise: of privacy alone.
        counts: as released.
        stddev: of their noise.
        threshold: that they passed.
        factor: users for each unit of a count.
        unsure: standard deviation of what else may be off, as a share of each number.
    """

    values: Floats
    noise: Floats
    counts: Floats
    stddev: float
    threshold: float
    factor: float
    unsure: float

    def ends(self, level: float) -> Floats:
        """Intervals given that the counts passed, widened by what else may be off."""
        found = np.maximum(truncated_ends(self.counts, self.stddev, self.threshold, level), 0.0) * self.factor
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.unsure * self.values
        below = np.hypot(np.maximum(self.values - found[:, 0], 0.0), reach)
        above = np.hypot(np.maximum(found[:, 1] - self.values, 0.0), reach)
        return np.stack([np.maximum(self.values - below, 0.0), self.values + above], axis=-1)


@dataclass(frozen=True, eq=False)
class FoundQuantiles(Found):
    """Quantiles from counts by bin: all bins in which a quantile may lie are its interval.

    Attributes:
        values: one column for each rank.
        noise: not a number: noise moves ranks.
        counts: noisy, one row for each group.
        stddev: of each count.
        ranks: which are wanted.
        lower: where bins begin.
        upper: where they end.
    """

    values: Floats
    noise: Floats
    counts: Floats
    stddev: float
    ranks: tuple[float, ...]
    lower: Floats
    upper: Floats

    def ends(self, level: float) -> Floats:
        """From the first to the last bin that is possible."""
        beyond = NormalDist().inv_cdf((1 + level) / 2)
        return np.stack([self._ends(rank, beyond, k) for k, rank in enumerate(self.ranks)], axis=1)

    def _ends(self, rank: float, beyond: float, column: int) -> Floats:
        excess, doubt = excess_of(self.counts, rank), beyond * self.stddev * doubts_of(self.counts.shape[1], rank)
        enough = excess >= -doubt
        before = np.concatenate([np.ones((len(excess), 1), bool), (excess <= doubt)[:, :-1]], axis=1)
        possible = enough & before
        first, last = possible.argmax(axis=1), possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
        value, none = self.values[:, column], ~possible.any(axis=1)
        low = np.where(none, value, np.minimum(self.lower[first], value))
        high = np.where(none, value, np.maximum(self.upper[last], value))
        return np.stack([low, high], axis=1)


def excess_of(counts: Floats, rank: float) -> Floats:
    """By how much the counts up to each bin exceed a share of all counts."""
    return np.asarray(np.cumsum(counts, axis=1) - rank * counts.sum(axis=1, keepdims=True))


def doubts_of(bins: int, rank: float) -> Floats:
    """Standard deviation of that, where each count has one of 1; not 0 at the last bin, whose excess is exact."""
    upto = np.arange(1, bins + 1)
    return np.sqrt(upto * (1 - rank) ** 2 + (bins - upto) * rank**2)
