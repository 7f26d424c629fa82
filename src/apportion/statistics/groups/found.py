"""Numbers of groups that were found, and their intervals at any level."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.box_widths import box_widths
from apportion.postprocessing.deconvolution import Deconvolved
from apportion.postprocessing.mixed_widths import mixed_widths
from apportion.postprocessing.mixtures import Mixture
from apportion.postprocessing.ratio_intervals import NoisyRatio
from apportion.postprocessing.truncated_intervals import truncated_ends
from apportion.privacy.mechanisms.box import unit_stddev

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
    """Numbers around which what is not known is about normal, or Laplace noise in part.

    Attributes:
        values: the estimates.
        noise: of privacy alone.
        stddev: of all that is not known.
        laplace: standard deviation of the part of it that is Laplace noise.
        bounds: that every number lies within.
    """

    values: Floats
    noise: Floats
    stddev: Floats
    laplace: Floats
    bounds: tuple[float, float]

    def ends(self, level: float) -> Floats:
        """So many standard deviations on both sides."""
        reach = mixed_widths(level, self.stddev, self.laplace)
        return np.clip(np.stack([self.values - reach, self.values + reach], axis=-1), *self.bounds)


@dataclass(frozen=True, eq=False)
class FoundBoxed(Found):
    """Numbers with noise for a box, around which what else is not known is about normal.

    Attributes:
        values: the estimates.
        noise: of privacy alone, before groups borrow from one another.
        stddev: of all that is not known.
        of_noise: standard deviation of the part of it that is noise.
        bounds: that every number lies within.
        size: number of groups that the noise was drawn for.
    """

    values: Floats
    noise: Floats
    stddev: Floats
    of_noise: Floats
    bounds: tuple[float, float]
    size: int

    def ends(self, level: float) -> Floats:
        """So much on both sides."""
        normal = np.sqrt(np.maximum(np.square(self.stddev) - np.square(self.of_noise), 0.0))
        reach = box_widths(level, self.size, self.of_noise / unit_stddev(self.size), normal)
        return np.clip(np.stack([self.values - reach, self.values + reach], axis=-1), *self.bounds)


@dataclass(frozen=True, eq=False)
class FoundTotals(Found):
    """Totals of many groups that are not negative, from posteriors of any shape.

    Attributes:
        values: the estimates.
        noise: of privacy alone.
        posteriors: of all totals.
        unsure: standard deviation of what else may be off, as a share of each total.
    """

    values: Floats
    noise: Floats
    posteriors: Deconvolved
    unsure: float

    def ends(self, level: float) -> Floats:
        """Between quantiles of the posterior, widened by what else may be off."""
        found = self.posteriors.ends(level)
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.unsure * self.values
        below = np.hypot(np.maximum(self.values - found[:, 0], 0.0), reach)
        above = np.hypot(np.maximum(found[:, 1] - self.values, 0.0), reach)
        return np.stack([np.maximum(self.values - below, 0.0), self.values + above], axis=-1)


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
        found = np.array([each.interval(level, Mixture.normal(self.unsure)) for each in self.ratios]).reshape(-1, 2)
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
        laplace: whether it is Laplace noise.
    """

    values: Floats
    noise: Floats
    counts: Floats
    stddev: float
    threshold: float
    factor: float
    unsure: float
    laplace: bool = False

    def ends(self, level: float) -> Floats:
        """Intervals given that the counts passed, widened by what else may be off."""
        held = truncated_ends(self.counts, self.stddev, self.threshold, level, laplace=self.laplace)
        found = np.maximum(held, 0.0) * self.factor
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
        laplace: whether noise is Laplace noise.
        ranks: which are wanted.
        lower: where bins begin.
        upper: where they end.
    """

    values: Floats
    noise: Floats
    counts: Floats
    stddev: float
    laplace: bool
    ranks: tuple[float, ...]
    lower: Floats
    upper: Floats

    def ends(self, level: float) -> Floats:
        """From the first to the last bin that is possible."""
        one = np.ones(1)
        beyond = float(mixed_widths(level, one, one * self.laplace)[0])  # one bin's law is the widest of all sums'
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
