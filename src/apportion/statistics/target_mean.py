"""The mean over rows or over users, even if values depend on sizes. It is found in steps, and every step is paid for.

1. *Sums by size class.* Σ z and Σ (1 - z) of the users in each octave of sizes: how many users have about how many
   rows, and how their means go with that. A user's weight is min(s, h): the cap h with the least predicted mean squared
   error is taken. Users are divided into strata of neighbouring sizes.
2. *Distances.* With enough users, a histogram of how far users' sums lie from a first centre, in octaves. Few sums are
   as large as the range allows, so those of a stratum are clipped at the C with the least predicted mean squared error.
3. *The mean.* By stratum, Σ clip(min(s, h) (z - centre), ±C) and Σ min(s, h). With fewer users, Σ min(s, h) z and
   Σ min(s, h) (1 - z), which one user moves by at most the largest weight of its stratum in total.

All sums together say how values go with sizes, and what the mean over rows is (`postprocessing.stratified_means`).
z is a user's mean, on a scale from 0 to 1 (docs/proofs/means.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import size_buckets
from apportion.data.users import UserParts
from apportion.estimators.contributions import Noisy
from apportion.postprocessing.class_counts import LikelyCounts, class_counts, likely_counts
from apportion.postprocessing.size_dependence import SizeClasses, first_guess, usual_distance
from apportion.postprocessing.size_strata import SizeStrata
from apportion.postprocessing.slope_priors import DOUBTED, SlopePriors
from apportion.postprocessing.stratified_means import CentredSums, PooledMean, Shapes, pooled_mean, predicted_error
from apportion.postprocessing.user_spreads import UserDistances
from apportion.privacy import Session, Share
from apportion.privacy.contributions import Contribution
from apportion.privacy.purposes import Name, Purpose, ReleaseName
from apportion.statistics.user_parts import (
    ClassSums,
    ClippedDistances,
    DeviationClasses,
    HighAndLow,
    SquaredDeviations,
    StratumWeights,
    UserMeans,
    in_columns,
    parts,
)

Floats = NDArray[np.float64]
Release = Callable[[Name, Contribution, Share], Noisy]

CLASSES, DISTANCES, SPREAD = 0.2, 0.1, 0.1  # shares of the budget
_ENOUGH = 80.0  # users, in units of the noise of a number that one user moves by 1, that distances are worth it
_TYPICAL_CLIP = 0.45  # C/h, before distances are known
_DOUBTFUL = 2.0  # standard deviations of the noise in numbers of users, up to which clips are not below what is usual
_UNSURE = 0.15  # how much of what clipping takes away is not known from counts by octave
_MISJUDGED = 0.3  # standard deviation of what clipping takes, over what counts by octave say
_PILED = 0.3  # part of the sums of the last octave that may lie at its end
_REACH = 2.0  # up to how many clips distances count in full for how much users differ
_STANDS_OUT = 2.5  # standard deviations by which the weight of all users must stand out of its noise
_MOST_USERS = 1e12  # no sum of what users add, each at most 1, is larger
_WITHIN = (np.arange(8) + 0.5) / 8  # steps of an octave of distances
_STEEPEST = 3.0  # by how many octaves numbers may fall within an octave of distances
_OCTAVES = 7  # of distances, up to the furthest that a sum can lie from its centre


@dataclass(frozen=True, eq=False)
class Found:
    """Means on a scale from 0 to 1.

    Attributes:
        means: one for each column.
        ends: both ends of each one's interval.
        noise: standard deviation of what privacy added to each.
        cap: h.
        hidden: how far one more user, with as many rows as count and all at one end, would move each mean.
    """

    means: Floats
    ends: Floats
    noise: Floats
    cap: float
    hidden: Floats


@dataclass(frozen=True, eq=False)
class _Strata:
    """What was released by stratum.

    Attributes:
        strata: with the cap.
        weights: the sum of users' weights in each, and the variance of its noise.
        sums: for each column, the sums of distances from a centre.
        clipped: for each column, the standard deviation of what clipping took from all sums.
        distances: of each column's sums from a centre, if they were released.
        reach: for each column, a distance beyond which few sums lie.
        beyond: for each column, by how much squared distances are more than if none were longer than that.
    """

    strata: SizeStrata
    weights: tuple[Floats, Floats]
    sums: list[CentredSums]
    clipped: Floats
    distances: list[UserDistances]
    reach: Floats
    beyond: Floats

    @property
    def clear(self) -> bool:
        """Whether the weight of all users stands out of its noise."""
        released, variances = self.weights
        return float(released.sum()) >= _STANDS_OUT * math.sqrt(variances.sum())

    def doubted(self, shapes: Shapes) -> list[SlopePriors]:
        """For each column, priors for its interval, weighed by how well they fit the distances."""
        users = shapes.weights @ shapes.counts
        fits = [each.log_fits(users, shapes.sizes, self.strata, DOUBTED.spreads) for each in self.distances]
        return [DOUBTED.given(each) for each in fits] or [DOUBTED] * len(self.sums)


@dataclass(frozen=True, eq=False)
class TargetMean:
    """One fit of a mean for a named target.

    Attributes:
        users: with their values.
        means: sizes and means of users, for the target.
        columns: how many means.
        session: pays.
        release: adds up and releases.
        population: whether the interval is for the population that users were drawn from.
        level: of each interval.
    """

    users: UserParts
    means: UserMeans
    columns: int
    session: Session
    release: Release
    population: bool
    level: float

    def found(self) -> Found:
        """Take all steps."""
        sums = self._class_sums()
        left = 1 - CLASSES - (SPREAD if self.population else 0.0)
        if sums.classes.n_users / self._price(1.0, *in_columns(self.columns, 1.0)) >= _ENOUGH:
            left -= DISTANCES
            strata = self._best_strata(sums, self._price(left, *in_columns(self.columns, _TYPICAL_CLIP)))
            released = self._clipped(sums, strata, left)
        else:
            strata = self._best_strata(sums, self._price(left, *in_columns(self.columns, math.sqrt(0.5))))
            released = self._plain(strata, left)
        shapes = sums.shapes.with_weights(strata, *released.weights)
        columns = zip(sums.sums, released.sums, sums.guesses, released.doubted(shapes), strict=True)
        pooled = [
            pooled_mean(shapes, strata, by_class, by_stratum, guess, laplace=self.session.budget.pure, doubted=doubted)
            for by_class, by_stratum, guess, doubted in columns
        ]
        return self._with_intervals(released, pooled, float(shapes.weights @ (shapes.counts @ shapes.sizes)))

    @property
    def _edges(self) -> Floats:
        largest = int(self.means.largest) if self.means.of == "rows" else 1
        return np.asarray(size_buckets(largest), np.float64)

    @property
    def _caps(self) -> Floats:
        """The last size of every class."""
        return np.minimum(2 * self._edges - 1, self.means.largest)

    def _class_sums(self) -> _SumsByClass:
        """Σ z and Σ (1 - z) of the users in each size class."""
        edges, width = self._edges, 2 * self.columns * len(self._edges)
        form = parts(
            ClassSums(self.means, edges), width, *in_columns(self.columns, 1.0), "z and 1 - z of a user by size class"
        )
        noisy = self._released(Purpose.CLASS_SUMS, form, self._share("classes", CLASSES))
        released = noisy.values.reshape(self.columns, 2, -1)
        return _SumsByClass.of(released, noisy.variance, np.sqrt(edges * self._caps))

    def _best_strata(self, sums: _SumsByClass, price: float) -> SizeStrata:
        """The strata of the cap with the least predicted mean squared error, over likely numbers of users by size."""
        tried = [SizeStrata.below(self._caps, last) for last in range(len(self._caps))]
        of_classes = float(np.mean([each.of_tops.mean() for each in sums.sums]))
        fits = sums.log_fits
        errors = [
            predicted_error(sums.shapes.few, each, 2 * of_classes, np.square(price * each.bounds), fits)
            for each in tried
        ]
        return tried[int(np.argmin(errors))]

    def _plain(self, strata: SizeStrata, share: float) -> _Strata:
        """Sums of z and of 1 - z by stratum."""
        weights = StratumWeights(self.means, self._edges, strata)
        width = 2 * self.columns * len(strata.bounds)
        form = parts(HighAndLow(weights), width, *in_columns(self.columns, 1.0), "z and 1 - z of a user by stratum")
        noisy = self._released(self._name, form, self._share("mean", share))
        high, low = strata.bounds * noisy.values.reshape(2, self.columns, -1)
        variances = noisy.variance * np.square(strata.bounds)
        sums = [CentredSums.of_both(*each, variances) for each in zip(high, low, strict=True)]
        total = (high + low).mean(axis=0), 2 * variances / self.columns
        none = np.zeros(self.columns)
        return _Strata(strata, total, sums, none, [], np.full(self.columns, strata.cap), none)

    def _clipped(self, sums: _SumsByClass, strata: SizeStrata, share: float) -> _Strata:
        """Clipped sums around a first centre by stratum."""
        weights = StratumWeights(self.means, self._edges, strata)
        centres, doubts = sums.centres(strata.cap)
        counts, stddev = self._distances(weights, centres)
        furthest = np.maximum(centres, 1 - centres)[:, None] * strata.bounds
        clips = self._clips(counts, stddev, furthest, strata, sums.shapes.users(strata), share)
        part = float(np.clip((doubts * strata.cap / clips[:, 0]).max() ** (2 / 3), 0.05, 1.0))
        form = parts(
            ClippedDistances(weights, centres, clips, part), (self.columns + 1) * len(strata.bounds),
            *in_columns(self.columns, 1.0, part), "distance of a user's sum from a centre, and its size, by stratum",
        )  # fmt: skip
        noisy = self._released(self._name, form, self._share("mean", share))
        *tops, bottoms = noisy.values.reshape(self.columns + 1, -1)
        bottoms, of_bottoms = bottoms * strata.bounds / part, noisy.variance * np.square(strata.bounds / part)
        reach = np.minimum(_REACH * clips.max(axis=1), furthest[:, 0])
        distances = [
            UserDistances(each.sum(axis=1), math.sqrt(2) * stddev, end)
            for each, end in zip(counts, furthest, strict=True)
        ]
        found = [
            CentredSums(top * clip, bottoms, noisy.variance * np.square(clip), of_bottoms, float(centre))
            for top, clip, centre in zip(tops, clips, centres, strict=True)
        ]
        lost = np.hypot.reduce(_stddevs(counts, stddev, clips, furthest), axis=1)
        return _Strata(strata, (bottoms, of_bottoms), found, lost, distances, reach, _beyond(counts, furthest, reach))

    def _distances(self, weights: StratumWeights, centres: Floats) -> tuple[Floats, float]:
        """How many users' sums lie in each octave of distance, by stratum, below and above the centre; its noise."""
        strata = len(weights.strata.bounds)
        form = parts(
            DeviationClasses(weights, centres, _OCTAVES), 2 * self.columns * strata * _OCTAVES,
            *in_columns(self.columns, 1.0), "one for a user, in the octave of its sum's distance from a centre",
        )  # fmt: skip
        noisy = self._released(Purpose.DISTANCES, form, self._share("distances", DISTANCES))
        stddev = math.sqrt(noisy.variance)
        sides = noisy.values.reshape(-1, _OCTAVES)
        counts = np.stack([class_counts(side, stddev, "distances") for side in sides])
        return counts.reshape(self.columns, strata, 2, _OCTAVES), stddev

    def _clips(
        self, counts: Floats, stddev: float, furthest: Floats, strata: SizeStrata, users: Floats, share: float
    ) -> Floats:
        """C of every column and stratum with the least predicted error.

        The first stratum's C is not below what is usual, if its users may be lost in the noise. Those of smaller users
        are at least in proportion to it, as their noise is small.
        """
        noise = self._price(share, *in_columns(self.columns, 1.0))
        clips = np.empty(furthest.shape)
        for k, j in np.ndindex(clips.shape):
            end = float(furthest[k, j])
            tried = end * 2.0 ** (np.arange(2 - 2 * _OCTAVES, 1) / 2)  # not within the first octave
            errors = [(noise * clip) ** 2 + _Loss.of(counts[k, j], stddev, clip, end).unsure ** 2 for clip in tried]
            clips[k, j] = tried[int(np.argmin(errors))]
        usual = strata.bounds * usual_distance(strata.bounds)
        first = np.maximum(clips[:, 0], usual[0] * min(1.0, _DOUBTFUL * stddev / max(float(users[0]), 1.0)))
        clips = np.maximum(clips, np.minimum(first, furthest[:, 0])[:, None] * usual / usual[0])
        return np.asarray(np.minimum(clips, furthest))

    def _with_intervals(self, released: _Strata, pooled: list[PooledMean], rows: float) -> Found:
        means = np.clip([each.value for each in pooled], 0.0, 1.0)
        drawn = self._drawing(released, means) if self.population else np.zeros(len(means))
        ends = np.empty((len(means), 2))
        for k, each in enumerate(pooled):
            width = self._half_width(each, math.hypot(drawn[k], released.clipped[k]) / each.weight)
            ends[k] = [each.value - width, each.value + width] if released.clear else [0.0, 1.0]
        ends = np.clip(ends, 0.0, 1.0)
        noise = np.array([math.hypot(*each.noise) for each in pooled])
        most = self.means.largest if self.means.of == "rows" else 1.0
        hidden = np.maximum(means, 1 - means) * most / (rows + most)
        return Found(np.clip(means, ends[:, 0], ends[:, 1]), ends, noise, released.strata.cap, hidden)

    def _half_width(self, pooled: PooledMean, drawn: float) -> float:
        """Half of the width of an interval, with another normal error."""
        if self.session.budget.pure:
            return pooled.unsure.and_normal(drawn).half_width(self.level, 0.0, pooled.noise / math.sqrt(2))
        normal = math.hypot(drawn, *pooled.noise)
        return pooled.unsure.half_width(self.level, normal, np.zeros(1))

    def _drawing(self, released: _Strata, means: Floats) -> Floats:
        """Standard deviation of the top of the ratio if users were drawn anew, not too small."""
        cap = released.strata.cap
        reach = np.minimum(released.reach, cap * np.maximum(means, 1 - means))
        form = parts(
            SquaredDeviations(self.means, cap, means, reach), self.columns, *in_columns(self.columns, 1.0),
            "squared distance of a user's sum from the mean",
        )  # fmt: skip
        noisy = self._released(Purpose.SPREAD, form, self._share("spread", SPREAD))
        within = np.square(reach) * (np.maximum(noisy.values, 0.0) + math.sqrt(noisy.variance))
        return np.sqrt(within + released.beyond)

    @property
    def _name(self) -> ReleaseName:
        return ReleaseName(Purpose.MEAN, label=f"mean over {self.means.of}")

    def _released(self, name: Name, form: Contribution, share: Share) -> Noisy:
        """Pay for a sum and release it. Numbers of users too large for arithmetic count as the largest possible."""
        noisy = self.release(name, form, share)
        return replace(noisy, values=np.clip(noisy.values, -_MOST_USERS, _MOST_USERS))

    def _share(self, name: str, fraction: float) -> Share:
        return self.session.plan(**{name: fraction}).one(name)

    def _price(self, fraction: float, taxicab: float, euclidean: float) -> float:
        """Standard deviation of the noise in one coordinate, for a share of the budget and these norms."""
        budget = self.session.budget
        if budget.pure:
            return math.sqrt(2) * taxicab / (fraction * budget.epsilon)
        return euclidean / (math.sqrt(fraction) * budget.mu)


@dataclass(frozen=True, eq=False)
class _SumsByClass:
    """Released sums of z and of 1 - z by size class.

    Attributes:
        classes: how many users there are in each.
        shapes: other likely numbers of users.
        sums: those of each column.
        guesses: a first guess of the mean of each column.
    """

    classes: SizeClasses
    shapes: Shapes
    sums: list[CentredSums]
    guesses: Floats

    @classmethod
    def of(cls, released: Floats, variance: float, sizes: Floats) -> _SumsByClass:
        """Return what the sums of all columns say, with noise of this variance in each."""
        of_counts = 2 * variance / len(released)
        likely: LikelyCounts = likely_counts(
            released.sum(axis=(0, 1)) / len(released), math.sqrt(of_counts), "rough sizes"
        )
        classes = SizeClasses.of(likely, sizes, math.sqrt(of_counts))
        variances = np.full(len(sizes), variance)
        sums = [CentredSums.of_both(high, low, variances) for high, low in released]
        guesses = [first_guess(high, low, variance, classes.counts) for high, low in released]
        return cls(classes, Shapes.of(classes, likely), sums, np.array(guesses))

    @property
    def log_fits(self) -> Floats:
        """The logarithm of how well each prior on slopes fits, on average over columns."""
        each = [self.shapes.log_fits(*pair) for pair in zip(self.sums, self.guesses, strict=True)]
        return np.asarray(np.mean(each, axis=0))

    def centres(self, cap: float) -> tuple[Floats, Floats]:
        """A first centre of every column, the mean with weights up to the cap, and its standard deviation."""
        found = [self.shapes.first_mean(each, guess, cap) for each, guess in zip(self.sums, self.guesses, strict=True)]
        means, doubts = np.array(found).T
        return np.clip(means, 0.0, 1.0), doubts


@dataclass(frozen=True)
class _Loss:
    """What clipping takes from sums whose distances lie in octaves as counted, below and above the centre.

    It is not added to the clipped sums: the noise of the counts, and how distances lie within an octave, would add
    more error than it takes away.

    Attributes:
        unsure: what may be lost, for the choice of a clip.
        stddev: the same for intervals.
    """

    unsure: float
    stddev: float

    @classmethod
    def of(cls, counts: Floats, stddev: float, clip: float, furthest: float) -> _Loss:
        """The loss of a clip, for sums that lie at most so far from the centre."""
        within = furthest * 2.0 ** (np.arange(-_OCTAVES, 0)[:, None] + _WITHIN)
        missed, counts = np.minimum(np.maximum(counts, 0.0) + 1, stddev**2), np.where(counts >= 0.5, counts, 0.0)
        taken = (np.maximum(within - clip, 0.0) * _parts(counts, stddev)).sum(axis=2)
        below, above = (counts * taken).sum(axis=1).tolist()
        total, net = below + above, above - below
        noise = math.sqrt(float((missed * np.square(taken)).sum()))
        piled = _PILED * math.hypot(*(counts[:, -1] * np.maximum(furthest - clip - taken[:, -1], 0.0)))
        return cls(math.hypot(_UNSURE * total, net / 2, piled), math.hypot(_MISJUDGED * total, net, piled, noise))


def _parts(counts: Floats, stddev: float) -> Floats:
    """Return which part of the sums of each octave lies in each of its steps, as numbers rise or fall near it.

    Sums may be many up to the furthest there can be, as where all rows of a user are at one end of the range.
    """
    near = np.pad(counts, ((0, 0), (1, 1))) + max(0.5, 0.5 * stddev)
    near[:, 0] = near[:, 1]
    rises = np.log2(near[:, 2:] / near[:, :-2]) / 2
    rises[:, -1] = np.log2(near[:, -2] / near[:, -3])
    rises = np.clip(rises, -_STEEPEST, 1.0)
    parts = 2.0 ** (rises[..., None] * _WITHIN)
    return np.asarray(parts / parts.sum(axis=2, keepdims=True))


def _stddevs(counts: Floats, stddev: float, clips: Floats, furthest: Floats) -> Floats:
    """The standard deviation of what clipping takes from the sums of each column and stratum."""
    found = np.empty(clips.shape)
    for k, j in np.ndindex(clips.shape):
        found[k, j] = _Loss.of(counts[k, j], stddev, float(clips[k, j]), float(furthest[k, j])).stddev
    return found


def _beyond(counts: Floats, furthest: Floats, reach: Floats) -> Floats:
    """For each column, by how much squared distances are more than if none were longer than a reach."""
    squares = np.square(furthest[..., None] * 2.0 ** (np.arange(-_OCTAVES, 0) + 0.5))
    counted = np.where(counts >= 0.5, counts, 0.0).sum(axis=2)
    return np.asarray((counted * np.maximum(squares - np.square(reach)[:, None, None], 0.0)).sum(axis=(1, 2)))
