"""The mean over rows or over users, even if values depend on sizes. It is found in steps, and every step is paid for.

1. *Sums by size class.* Σ z and Σ (1 - z) of the users in each octave of sizes: how many users have about how many
   rows, and how their means go with that. A user's weight is min(s, h): the cap h with the least predicted mean squared
   error is taken, its bias is corrected, and what remains uncertain widens the interval.
2. *Large and small users.* With enough users, one number more on how values go with sizes: how far the means of large
   users lie above a first centre, less those of small ones.
3. *Distances.* With enough users, a histogram of how far users' sums lie from a first centre, in octaves. Few sums are
   as large as the range allows, so they are clipped at the C with the least predicted mean squared error.
4. *The mean.* Σ clip(min(s, h) (z - centre), ±C) and Σ min(s, h). With fewer users, Σ min(s, h) z and
   Σ min(s, h) (1 - z), which one user moves by h in total. The interval is that of a ratio of noisy numbers.

z is a user's mean, on a scale from 0 to 1 (docs/proofs/means.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import size_buckets
from apportion.data.users import UserParts
from apportion.estimators.contributions import Noisy
from apportion.postprocessing.class_counts import class_counts, likely_counts
from apportion.postprocessing.mixtures import Mixture
from apportion.postprocessing.ratio_intervals import NoisyRatio
from apportion.postprocessing.size_dependence import (
    ClassMeans,
    SizeClasses,
    Tilt,
    balanced_tilt,
    class_means,
    first_guess,
    usual_distance,
)
from apportion.privacy import Session, Share
from apportion.privacy.contributions import Contribution
from apportion.privacy.purposes import Name, Purpose, ReleaseName
from apportion.statistics.user_parts import (
    CentredSums,
    ClassSums,
    DeviationClasses,
    HighAndLow,
    SquaredDeviations,
    TiltedSums,
    UserMeans,
    in_columns,
    parts,
)

Floats = NDArray[np.float64]
Release = Callable[[Name, Contribution, Share], Noisy]

CLASSES, TILT, DISTANCES, SPREAD = 0.12, 0.1, 0.12, 0.1  # shares of the budget
_ENOUGH = 80.0  # users, in units of the noise of a number that one user moves by 1, that distances are worth it
_TYPICAL_CLIP = 0.3  # C/h, before distances are known
_UNSURE = 0.15  # how much of what clipping takes away is not known from counts by octave
_SHOWN = 2.2  # standard deviations by which a net loss must stand out of its noise
_DOUBT = 0.2  # prior standard deviation of a mean around 1/2
_OCTAVES = 7  # of distances, up to the furthest that a sum can lie from its centre


@dataclass(frozen=True, eq=False)
class Found:
    """Means on a scale from 0 to 1.

    Attributes:
        means: one for each column.
        ends: both ends of each one's interval.
        noise: standard deviation of what privacy added to each.
        cap: h.
    """

    means: Floats
    ends: Floats
    noise: Floats
    cap: float


@dataclass(frozen=True, eq=False)
class _Estimate:
    """One column before its interval: a ratio, the origin it is measured from, and further sources of error."""

    ratio: NoisyRatio
    origin: float
    shrunk: float
    correction: float
    unsure: Mixture
    slack: float

    @property
    def mean(self) -> float:
        return float(np.clip(self.origin + self.shrunk * self.ratio.top / self.ratio.bottom + self.correction, 0, 1))


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
        classes = sums.classes(self._edges, self._caps)
        left = 1 - CLASSES - (SPREAD if self.population else 0.0)
        plenty = classes.n_users / self._price(1.0, *in_columns(self.columns, 1.0))
        if plenty >= _ENOUGH:
            left -= DISTANCES + (TILT if len(self._edges) > 1 else 0.0)
            means = self._tilted(classes, sums) if len(self._edges) > 1 else sums.means(classes)
            cap = self._best_cap(classes, means, self._price(left, *in_columns(self.columns, _TYPICAL_CLIP)))
            return self._with_intervals(*self._centred(classes, means, cap, left))
        means = sums.means(classes)
        cap = self._best_cap(classes, means, self._price(left, *in_columns(self.columns, 0.5)))
        return self._with_intervals(*self._plain(classes, means, cap, left))

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
        noisy = self.release(Purpose.CLASS_SUMS, form, self._share("classes", CLASSES))
        return _SumsByClass(noisy.values.reshape(self.columns, 2, -1), noisy.variance)

    def _tilted(self, classes: SizeClasses, sums: _SumsByClass) -> list[ClassMeans]:
        """Means by size class, with what one more number says: how large users differ from small ones."""
        centres = sums.guesses(classes)
        clips = np.stack([usual_distance(centre, classes.sizes) for centre in centres])
        weights = np.stack([balanced_tilt(classes, each) for each in clips])
        form = parts(
            TiltedSums(self.means, self._edges, centres, clips, weights * clips), self.columns,
            *in_columns(self.columns, 1.0), "distance of a user's mean from a centre, by whether the user is large",
        )  # fmt: skip
        noisy = self.release(Purpose.TILT, form, self._share("tilt", TILT))
        tilts = [Tilt(each, float(value), noisy.variance) for each, value in zip(weights, noisy.values, strict=True)]
        return sums.means(classes, tilts)

    def _best_cap(self, classes: SizeClasses, means: list[ClassMeans], price: float) -> float:
        """The cap with the least predicted mean squared error, over all likely numbers of users by size."""
        errors = []
        for cap in self._caps:
            weights, totals, taken = classes.likely(cap)
            missed = float(np.mean([each.expected_miss(weights, taken) for each in means]))
            errors.append((price * cap) ** 2 * float(weights @ totals**-2) + missed)
        return float(self._caps[int(np.argmin(errors))])

    def _plain(
        self, classes: SizeClasses, means: list[ClassMeans], cap: float, share: float
    ) -> tuple[float, list[_Estimate]]:
        """Means from sums of z and of 1 - z."""
        width = 2 * self.columns
        form = parts(HighAndLow(self.means, cap), width, *in_columns(self.columns, 1.0), "z and 1 - z of a user")
        noisy = self.release(self._name, form, self._share("mean", share))
        estimates = []
        for each, high, low in zip(means, *noisy.values.reshape(2, -1), strict=True):
            ratio = NoisyRatio((high - low) / 2, high + low, noisy.stddev, noisy.scale, (0.5, -0.5), (1.0, 1.0))
            doubt = _DOUBT**2 / (_DOUBT**2 + ratio.stddev(0.0) ** 2)
            correction, unsure = each.correction(classes, cap)
            estimates.append(_Estimate(ratio, 0.5, doubt, correction, unsure, 0.0))
        return cap, estimates

    def _centred(
        self, classes: SizeClasses, means: list[ClassMeans], cap: float, share: float
    ) -> tuple[float, list[_Estimate]]:
        """Means from clipped sums around a first centre."""
        first = [each.at(classes.shares(cap)) for each in means]
        centres, doubts = np.array([mean for mean, _ in first]), np.array([doubt for _, doubt in first])
        counts, stddev = self._distances(cap, centres)
        clips, part = self._clips(counts, stddev, cap, centres, doubts, share)
        form = parts(
            CentredSums(self.means, cap, centres, clips, part), self.columns + 1,
            *in_columns(self.columns, 1.0, part), "distance of a user's sum from a centre, and its size",
        )  # fmt: skip
        noisy = self.release(self._name, form, self._share("mean", share))
        bottom = self._bottom(noisy, classes, cap, part)
        estimates = []
        for k, each in enumerate(means):
            clip = float(clips[k])
            furthest = cap * max(centres[k], 1 - centres[k])
            loss = _Loss.of(counts[k], stddev, clip, furthest)
            top = float(noisy.values[k]) * clip + loss.net
            ratio = NoisyRatio(top, bottom, noisy.stddev, noisy.scale, (clip, 0.0), (0.0, cap / part))
            doubt = doubts[k] ** 2 / (doubts[k] ** 2 + ratio.stddev(0.0) ** 2)
            correction, unsure = each.correction(classes, cap)
            estimates.append(_Estimate(ratio, float(centres[k]), doubt, correction, unsure, loss.unsure))
        return cap, estimates

    def _distances(self, cap: float, centres: Floats) -> tuple[Floats, float]:
        """How many users' sums lie in each octave of distance below and above the centre; and the noise of it."""
        form = parts(
            DeviationClasses(self.means, cap, centres, _OCTAVES), 2 * self.columns * _OCTAVES,
            *in_columns(self.columns, 1.0), "one for a user, in the octave of its sum's distance from a centre",
        )  # fmt: skip
        noisy = self.release(Purpose.DISTANCES, form, self._share("distances", DISTANCES))
        stddev = math.sqrt(noisy.variance)
        sides = noisy.values.reshape(2 * self.columns, -1)
        counts = np.stack([class_counts(side, stddev, "distances") for side in sides])
        return counts.reshape(self.columns, 2, -1), stddev

    def _clips(
        self, counts: Floats, stddev: float, cap: float, centres: Floats, doubts: Floats, share: float
    ) -> tuple[Floats, float]:
        """C of every column with the least predicted error, and the part of the noise's bound that sizes get."""
        noise = self._price(share, *in_columns(self.columns, 1.0))
        furthest = cap * np.maximum(centres, 1 - centres)
        clips = np.empty(self.columns)
        for k in range(self.columns):
            tried = furthest[k] * 2.0 ** (np.arange(2 - 2 * _OCTAVES, 1) / 2)  # not within the first octave
            errors = [
                (noise * clip) ** 2 + _Loss.of(counts[k], stddev, clip, furthest[k]).unsure ** 2 for clip in tried
            ]
            clips[k] = tried[int(np.argmin(errors))]
        return clips, float(np.clip((doubts * cap / clips).max() ** (2 / 3), 0.05, 1.0))

    def _bottom(self, noisy: Noisy, classes: SizeClasses, cap: float, part: float) -> float:
        """Σ min(s, h): as released, or nearer to what the classes say where its noise is large."""
        expected = classes.total(cap)
        released, variance = float(noisy.values[-1]) * cap / part, noisy.variance * (cap / part) ** 2
        prior = (0.3 * expected) ** 2
        return max((released / variance + expected / prior) / (1 / variance + 1 / prior), cap)

    def _with_intervals(self, cap: float, estimates: list[_Estimate]) -> Found:
        means = np.array([each.mean for each in estimates])
        drawn = self._drawing(cap, means) if self.population else np.zeros(len(means))
        ends = np.empty((len(means), 2))
        for k, each in enumerate(estimates):
            further = each.unsure.and_normal(drawn[k] / each.ratio.bottom)
            found = each.ratio.interval(self.level, further, each.slack)
            ends[k] = [each.origin + each.correction + end for end in found]
        ends = np.clip(ends, 0.0, 1.0)
        noise = np.array([each.shrunk * each.ratio.stddev(each.mean - each.origin) for each in estimates])
        return Found(np.clip(means, ends[:, 0], ends[:, 1]), ends, noise, cap)

    def _drawing(self, cap: float, means: Floats) -> Floats:
        """Standard deviation of the top of the ratio if users were drawn anew, not too small."""
        furthest = np.square(np.maximum(means, 1 - means))
        form = parts(
            SquaredDeviations(self.means, cap, means), self.columns,
            float(furthest.sum()), float(np.sqrt(np.square(furthest).sum())), "squared distance from the mean",
        )  # fmt: skip
        noisy = self.release(Purpose.SPREAD, form, self._share("spread", SPREAD))
        return cap * np.sqrt(np.maximum(noisy.values, 0.0) + math.sqrt(noisy.variance))

    @property
    def _name(self) -> ReleaseName:
        return ReleaseName(Purpose.MEAN, label=f"mean over {self.means.of}")

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
        sums: for each column those of z, and those of 1 - z.
        variance: of the noise in each.
    """

    sums: Floats
    variance: float

    def classes(self, first: Floats, last: Floats) -> SizeClasses:
        """How many users there are in classes from the first to the last size."""
        columns = len(self.sums)
        stddev = math.sqrt(2 * self.variance / columns)
        shapes = likely_counts(self.sums.sum(axis=(0, 1)) / columns, stddev, "sizes")
        return SizeClasses.of(shapes, np.sqrt(first * last), stddev)

    def guesses(self, classes: SizeClasses) -> Floats:
        """A first guess of the mean of each column."""
        return np.array([first_guess(high, low, self.variance, classes.counts) for high, low in self.sums])

    def means(self, classes: SizeClasses, tilts: list[Tilt] | None = None) -> list[ClassMeans]:
        """Means by class of each column, with a tilt of each where there is one."""
        return [
            class_means(high, low, self.variance, classes, None if tilts is None else tilts[k])
            for k, (high, low) in enumerate(self.sums)
        ]


@dataclass(frozen=True)
class _Loss:
    """What clipping takes from sums whose distances lie in octaves as counted, below and above the centre.

    Attributes:
        net: to be added to the clipped sums, where counts show it beyond their noise.
        unsure: what is not known of the rest.
    """

    net: float
    unsure: float

    @classmethod
    def of(cls, counts: Floats, stddev: float, clip: float, furthest: float) -> _Loss:
        """The loss of a clip, for sums that lie at most so far from the centre."""
        within = furthest * 2.0 ** (np.arange(-_OCTAVES, 0)[:, None] + (np.arange(8) + 0.5) / 8)
        taken = np.maximum(within - clip, 0.0).mean(axis=1)
        counts = np.where(counts >= 0.5, counts, 0.0)
        below, above = counts @ taken
        doubt = math.sqrt(float((np.minimum(counts, stddev**2) @ np.square(taken)).sum()))
        shown = max(0.0, 1 - (_SHOWN * doubt / abs(above - below)) ** 2) if above != below else 0.0
        net = shown * float(above - below)
        return cls(net, math.hypot(_UNSURE * float(above + below), (float(above - below) - net) / 2))
