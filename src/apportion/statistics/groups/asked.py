"""The statistics that may be asked for: what users add to each, and what it is found from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.deconvolution import FEWEST, deconvolved_totals
from apportion.postprocessing.group_shrinkage import Shrunk, positive_totals, shrunk_means, shrunk_totals
from apportion.postprocessing.norm_caps import MeanCaps, Norms, Ratios, best_mean_caps, least_error, squared_error
from apportion.postprocessing.ratio_intervals import NoisyRatio
from apportion.privacy.contributions import GroupMoments
from apportion.privacy.mechanisms.box import COMMON as BOX_COMMON
from apportion.privacy.mechanisms.box import unit_stddev
from apportion.statistics.groups.found import (
    Found,
    FoundBoxed,
    FoundNumbers,
    FoundQuantiles,
    FoundRatios,
    FoundTotals,
    excess_of,
)
from apportion.statistics.groups.moments import BOTTOM, SQUARES, BinCounts, CentredMoments, SignedSums, ones, row_counts
from apportion.statistics.user_parts import Target

Floats = NDArray[np.float64]

_MOST_LOST = 0.9  # share of a total that a correction may make up for


@dataclass(frozen=True, eq=False)
class Released:
    """The numbers of one statistic as released.

    Attributes:
        sums: one row for each group.
        stddev: of the noise in each number.
        lost: share of a total that the cap took away.
        off: standard deviation of what is not known of that, as a share of a total.
        typical: about how much all users of a group add up to, whatever their signs.
        unsure: standard deviation of what caps may do to a mean, as a share of the range.
        of_one: variance of the mean of a group of one row.
        shrink: whether groups borrow from one another.
        laplace: whether noise is Laplace noise.
        boxed: whether noise is that of a box; its coordinates, the groups, have half of its variance in common.
    """

    sums: Floats
    stddev: float
    lost: float
    off: float
    typical: float
    unsure: float
    of_one: float
    shrink: bool
    laplace: bool
    boxed: bool

    def totals(self, bounds: tuple[float, float], factor: float = 1.0) -> Found:
        """One total for each group, with what the cap took away added in proportion."""
        grown = self.sums[:, 0] * factor / (1 - self.lost)
        if self.shrink and bounds[0] == 0 and len(grown) >= FEWEST:
            posteriors = deconvolved_totals(grown, self._grown(factor), laplace=self.laplace)
            noise = np.full(grown.shape, self._grown(factor))
            return FoundTotals(posteriors.values, noise, posteriors, self.off)
        common = BOX_COMMON if self.boxed else 0.0
        found = shrunk_totals(grown, self._grown(factor), shrink=self.shrink, common=common)
        return self._around(found, bounds, factor, self.typical * factor if bounds[0] < 0 < bounds[1] else 0.0)

    def counts(self) -> Found:
        """The same for every column, as released."""
        grown = self.sums / (1 - self.lost)
        noise = np.full(grown.shape, self._grown(1.0))
        return self._around(Shrunk(grown, noise, noise), (0.0, np.inf), 1.0, 0.0)

    def _around(self, found: Shrunk, bounds: tuple[float, float], factor: float, least: float) -> Found:
        """Numbers with what is not known; where signs may cancel, more than `least` went into each."""
        values = np.clip(found.values, *bounds)
        stddev = np.hypot(found.stddev, self.off * np.maximum(np.abs(values), least))
        noise = np.full(values.shape, self._grown(factor))
        if self.boxed:
            return FoundBoxed(values, noise, stddev, found.of_noise, bounds, len(values))
        return FoundNumbers(values, noise, stddev, self.of_laplace(found.of_noise), bounds)

    def of_laplace(self, noise: Floats) -> Floats:
        """The part of noise that is Laplace noise: all of it, or nothing."""
        return noise if self.laplace else np.zeros(noise.shape)

    def _grown(self, factor: float) -> float:
        return self.stddev * factor / (1 - self.lost)

    def sizes(self) -> Shrunk:
        """The size of every group, from the last column."""
        noisy, stddev = self.sums[:, -1] / BOTTOM, self.stddev / BOTTOM
        return positive_totals(noisy, stddev, float(np.maximum(noisy, 0.0).sum()))


class Asked(ABC):
    """A statistic of groups."""

    centred: bool = False  # whether a first centre of all values is needed

    @abstractmethod
    def moments(self, centre: float) -> GroupMoments:
        """What users add, around a first centre on a scale from 0 to 1."""

    @abstractmethod
    def found(self, released: Released, centre: float) -> Found:
        """What the released numbers say."""


class Count(Asked):
    """The number of rows."""

    def moments(self, centre: float) -> GroupMoments:
        """The number of rows."""
        return GroupMoments(row_counts, 1, whole=True)

    def found(self, released: Released, centre: float) -> Found:
        """Numbers of rows, none negative."""
        return released.totals((0.0, np.inf))


class NumberOfUsers(Asked):
    """The number of different users."""

    def moments(self, centre: float) -> GroupMoments:
        """One."""
        return GroupMoments(ones, 1, whole=True)

    def found(self, released: Released, centre: float) -> Found:
        """Numbers of users, none negative."""
        return released.totals((0.0, np.inf))


@dataclass(frozen=True)
class Sum(Asked):
    """The sum of values that may have either sign."""

    low: float
    high: float

    def moments(self, centre: float) -> GroupMoments:
        """The sum over the largest value."""
        return GroupMoments(SignedSums(self.low, self.high), 1)

    def found(self, released: Released, centre: float) -> Found:
        """Sums; of one sign where all values are."""
        bounds = (-np.inf if self.low < 0 else 0.0, np.inf if self.high > 0 else 0.0)
        return released.totals(bounds, SignedSums(self.low, self.high).reach)


@dataclass(frozen=True)
class Mean(Asked):
    """The mean of values."""

    low: float
    high: float
    of: Target
    centred = True

    def moments(self, centre: float) -> GroupMoments:
        """The sum around the centre, and the size."""
        return GroupMoments(CentredMoments(self.low, self.high, centre, self.of), 2, size_cap=1.0)

    def found(self, released: Released, centre: float) -> Found:
        """Means, shrunk, or each by itself."""
        sizes, width = released.sizes(), self.high - self.low
        apart = shrunk_means(released.sums[:, 0], released.stddev, sizes, released.of_one, shrink=released.shrink)
        means = self.low + width * np.clip(centre + apart.values, 0.0, 1.0)
        noise = width * released.stddev / sizes.values
        if released.shrink:
            stddev = width * np.hypot(apart.stddev, released.unsure)
            laplace = released.of_laplace(width * apart.of_noise)
            return FoundNumbers(means, np.minimum(noise, stddev), stddev, laplace, (self.low, self.high))
        normal, laplace_scale = (0.0, released.stddev / 2**0.5) if released.laplace else (released.stddev, 0.0)
        ratios = tuple(
            NoisyRatio(top, bottom, normal, laplace_scale, (1.0, 0.0), (0.0, 1 / BOTTOM))
            for top, bottom in zip(released.sums[:, 0].tolist(), sizes.values.tolist(), strict=True)
        )
        return FoundRatios(means, noise, ratios, centre, released.unsure, (self.low, self.high))


@dataclass(frozen=True)
class Variance(Asked):
    """The variance of values within a group."""

    low: float
    high: float
    of: Target
    centred = True

    def moments(self, centre: float) -> GroupMoments:
        """The sum around the centre, that of squares, and the size."""
        return GroupMoments(CentredMoments(self.low, self.high, centre, self.of, squares=True), 3, size_cap=1.0)

    def found(self, released: Released, centre: float) -> Found:
        """The mean square less the square of the mean."""
        sizes, scale = released.sizes(), (self.high - self.low) ** 2
        apart = shrunk_means(released.sums[:, 0], released.stddev, sizes, released.of_one, shrink=released.shrink)
        squares = shrunk_means(released.sums[:, 1] / SQUARES, released.stddev / SQUARES, sizes, shrink=released.shrink)
        values = np.clip(squares.values - np.square(apart.values), 0.0, 0.25)
        stddev = np.sqrt(np.square(squares.stddev) + np.square(2 * apart.values * apart.stddev) + released.unsure**2)
        noise = scale * released.stddev / SQUARES / sizes.values
        laplace = released.of_laplace(scale * np.hypot(squares.of_noise, 2 * apart.values * apart.of_noise))
        bounds = (0.0, scale / 4)
        return FoundNumbers(scale * values, np.minimum(noise, scale * stddev), scale * stddev, laplace, bounds)


@dataclass(frozen=True)
class Histogram(Asked):
    """Numbers of rows, or of users, by bin."""

    inner: tuple[float, ...]
    of: Target

    def moments(self, centre: float) -> GroupMoments:
        """Counts by bin."""
        counts = BinCounts(self.inner, self.of)
        return GroupMoments(counts, counts.width)

    def found(self, released: Released, centre: float) -> Found:
        """Counts, none negative."""
        return released.counts()


@dataclass(frozen=True)
class Quantiles(Asked):
    """Quantiles of values, from counts on a public grid.

    Attributes:
        lower: where bins begin; with a step, the points of the grid.
        upper: where they end; with a step, the same points.
        ranks: which quantiles.
        of: rows or users.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    ranks: tuple[float, ...]
    of: Target

    def moments(self, centre: float) -> GroupMoments:
        """Counts by bin."""
        ends = zip(self.upper[:-1], self.lower[1:], strict=True)
        counts = BinCounts(tuple((end + begin) / 2 for end, begin in ends), self.of)
        return GroupMoments(counts, counts.width)

    def found(self, released: Released, centre: float) -> Found:
        """The bins that the ranks fall into, and where in them."""
        lower, upper, counts = np.asarray(self.lower), np.asarray(self.upper), released.sums
        values = np.stack([self._points(counts, released.stddev, rank, lower, upper) for rank in self.ranks], axis=1)
        noise = np.full(values.shape, np.nan)
        return FoundQuantiles(values, noise, counts, released.stddev, released.laplace, self.ranks, lower, upper)

    @staticmethod
    def _points(counts: Floats, stddev: float, rank: float, lower: Floats, upper: Floats) -> Floats:
        excess = excess_of(counts, rank)
        losses = np.cumsum(np.concatenate([np.zeros((len(counts), 1)), excess[:, :-1]], axis=1), axis=1)
        place = losses.argmin(axis=1)  # the bin with the least total distance, which noise moves little
        rows = np.arange(len(counts))
        held, above = counts[rows, place], excess[rows, place]
        inside = np.where(held > 3 * stddev, np.clip(1 - above / np.maximum(held, 1e-300), 0.0, 1.0), 0.5)
        return np.asarray(lower[place] + inside * (upper - lower)[place])


@dataclass(frozen=True, eq=False)
class Capped:
    """Moments with their caps, and what follows from them: see `Released`."""

    moments: GroupMoments
    lost: float
    off: float = 0.0
    typical: float = 0.0
    unsure: float = 0.0
    of_one: float = 0.0
    boxed: bool = False

    def released(self, block: Floats, stddev: float, *, shrink: bool, laplace: bool) -> Released:
        """The numbers as released, in their own units."""
        sums, noise = block * self.moments.cap, stddev * self.moments.cap
        known = (self.lost, self.off, self.typical, self.unsure, self.of_one)
        return Released(sums, noise, *known, shrink, laplace and not self.boxed, self.boxed)


@dataclass(frozen=True, eq=False)
class UsersNorms:
    """What was released of the norms of users, for one statistic.

    Attributes:
        norms: of users' vectors, or of their sizes where means are wanted.
        ratios: of whole norms to those of sizes, where means are wanted.
        beyond: what users with more than one in some group may be of the total, as a share; None where each group
            cannot be bounded by itself.
    """

    norms: Norms
    ratios: Ratios | None
    beyond: float | None = None

    def capped(self, moments: GroupMoments, noise: float, n_groups: int) -> Capped:
        """The moments with the best caps, and what that does."""
        if self.ratios is None:
            return self._of_totals(moments, noise, n_groups)
        caps: MeanCaps = best_mean_caps(self.norms, self.ratios, noise, n_groups, BOTTOM)
        capped = replace(moments, cap=caps.size * caps.ratio, size_cap=caps.size)
        return Capped(capped, 0.0, unsure=caps.unsure, of_one=caps.of_one)

    def _of_totals(self, moments: GroupMoments, noise: float, n_groups: int) -> Capped:
        """Bound norms, or else each cell by 1, where that has the smaller error."""
        error, cap = least_error(self.norms, noise, n_groups)
        total = self.norms.total()
        typical = total / max(n_groups, 1)
        largest = self._largest(moments, n_groups)
        if largest <= cap:
            return Capped(replace(moments, cap=largest), 0.0, 0.0, typical)
        if self.beyond is not None:
            of_cells = noise / math.sqrt(2) * unit_stddev(n_groups)  # instead of Laplace noise
            if squared_error(of_cells, n_groups, total, self.beyond) < error:
                return Capped(replace(moments, cap=1.0), 0.0, self.beyond, typical, boxed=True)
        return Capped(replace(moments, cap=cap), min(self.norms.lost(cap), _MOST_LOST), self.norms.off(cap), typical)

    def _largest(self, moments: GroupMoments, n_groups: int) -> float:
        """The largest norm that is possible, which is public where users are counted: each counts 1 in a group."""
        if moments.moments is not ones:
            return math.inf
        return float(n_groups) if self.norms.ratio is None else math.sqrt(n_groups)


def columns_of(moments: tuple[GroupMoments, ...], sums: Any) -> list[Floats]:
    """The columns of each statistic in sums of all side by side."""
    places = np.cumsum([each.width for each in moments])[:-1]
    return list(np.split(np.asarray(sums, np.float64), places, axis=1))
