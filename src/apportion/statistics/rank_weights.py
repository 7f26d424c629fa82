"""The weights of rows for one quantile near the median, and the rank that is sought among weighted rows.

From a released histogram of sizes, weights are chosen that have the least predicted error of the rank
(`postprocessing.rank_bias`): each user keeps the rows in the middle of its own. Where there are enough users, and what
an octave of sizes may do counts, a rough quantile and one number on how large users differ from small ones there are
released first. Other quantiles have plain caps (`statistics.rank_caps`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import size_buckets
from apportion.estimators.contributions import Noisy, capped_weights
from apportion.postprocessing.class_counts import likely_counts
from apportion.postprocessing.rank_bias import Keep, Measured, Prediction, RankBias
from apportion.postprocessing.size_dependence import SizeClasses, balanced_tilt
from apportion.privacy import Purpose
from apportion.privacy.contributions import Contribution, MiddleRows, RowWeighting, SizeHistogram
from apportion.privacy.purposes import ReleaseName
from apportion.privacy.ranks import Candidates
from apportion.statistics.quantile_search import PointSearch
from apportion.statistics.user_parts import Target, TiltedShares, parts

Floats = NDArray[np.float64]

SIZES, ROUGH, TILT = 0.15, 0.05, 0.1  # shares of the budget
_ENOUGH = 250.0  # users times ε from which large users are compared with small ones
_COUNTS = 0.4  # part of the predicted error that must not be noise for that
_CLIP = 0.3  # of distances of users' shares from q
_GRADES, _OF_GRADES = 20, 0.2  # candidates so few that a small move of ranks changes none; how much it counts then
_CENTRAL = 0.1  # distance from the median; further out, bounds did not hold where large users differ much from small
_BETWEEN = 1.5  # a bound between the ends of two classes of sizes
_AMONG = (1, 3)  # rows among which the middle ones are kept, relative to these


def is_central(sought: Sequence[float], of: Target) -> bool:
    """Return whether these weights serve: for one quantile of rows near the median.

    >>> is_central([0.5], "rows"), is_central([0.9], "rows"), is_central([0.4, 0.5], "rows")
    (True, False, False)
    """
    return of == "rows" and len(sought) == 1 and abs(sought[0] - 0.5) <= _CENTRAL + 1e-9


@dataclass(frozen=True, eq=False)
class RankWeights:
    """Weights of rows.

    Attributes:
        keep: bounds of a user's weight.
        rank: what is sought among weighted rows.
        feared: what may be expected, cautiously.
        safe: a part of the predicted weight that is not too large.
    """

    keep: Keep
    rank: float
    feared: RankBias
    safe: float

    @property
    def ranks(self) -> list[float]:
        """The rank, as the only one."""
        return [self.rank]

    @property
    def most(self) -> float:
        """The largest weight of a user."""
        return self.keep.kept

    @property
    def weighting(self) -> RowWeighting:
        """The rule."""
        if self.keep.among == self.keep.kept:
            return capped_weights(self.keep.kept)
        return MiddleRows(self.feared.quantile, *self.keep)

    def off(self, deviation: float, probability: float) -> Floats:
        """How far the rank is off at most, if the draw is off by so much, with this probability."""
        far = NormalDist().inv_cdf((1 + probability) / 2)
        missed = self.feared.predicted(self.keep, 0.0, rank=self.rank).missed
        return np.array([min(self.feared.reached(self.keep, deviation / self.safe) + far * missed, 1.0)])


@dataclass(frozen=True, eq=False)
class RankWeighing:
    """The releases by which weights are chosen.

    Attributes:
        search: users, and where their quantiles are sought.
        of: the target, rows.
        max_size: public.
        sought: the quantile alone.
        release: makes a release of a contribution for a share.
    """

    search: PointSearch
    of: Target
    max_size: int
    sought: list[float]
    release: Callable[..., Noisy]

    def found(self) -> RankWeights:
        """Take all steps."""
        classes = self._classes()
        model, feared = RankBias.before(classes, self._quantile)
        best = self._best(model, 1 - SIZES)
        plenty = classes.n_users * self.search.session.budget.epsilon >= _ENOUGH
        if plenty and best.missed > _COUNTS * best.error:
            model, feared = RankBias.after(classes, self._quantile, self._measured(classes, model))
            best = self._best(model, 1 - SIZES - ROUGH - TILT)
        return RankWeights(best.keep, best.rank, feared, _safe(classes, best))

    @property
    def _edges(self) -> Floats:
        return np.asarray(size_buckets(self.max_size), np.float64)

    @property
    def _ends(self) -> Floats:
        """The last size of every class."""
        return np.minimum(2 * self._edges - 1, self.max_size)

    @property
    def _quantile(self) -> float:
        return self.sought[0]

    def _classes(self) -> SizeClasses:
        noisy = self._released(Purpose.SIZES, SizeHistogram(self._edges), sizes=SIZES)
        stddev = math.sqrt(noisy.variance)
        shapes = likely_counts(noisy.values, stddev, "sizes")
        return SizeClasses.of(shapes, np.sqrt(self._edges * self._ends), stddev)

    def _measured(self, classes: SizeClasses, model: RankBias) -> Measured:
        """A rough quantile, and how shares below it differ between large and small users."""
        rough = self._best(model, ROUGH)
        weights = RankWeights(rough.keep, rough.rank, model, 1.0).weighting
        (point,), _ = self.search.points([rough.rank], weights, ROUGH, lambda _: ReleaseName(Purpose.ROUGH_QUANTILE))
        tilts = balanced_tilt(classes, np.ones(len(self._edges)))
        part = TiltedShares(point, self._quantile, _CLIP, self._edges, tilts)
        what = "share of a user's values below a point, by whether the user is large"
        noisy = self._released(Purpose.TILT, parts(part, 1, 1.0, 1.0, what), tilt=TILT)
        return Measured(tilts, _CLIP, float(noisy.values[0]), noisy.variance, rough)

    def _released(self, purpose: Purpose, form: Contribution, **part: float) -> Noisy:
        (name,) = part
        session = self.search.session
        return self.release(session, purpose, self.search.users, form, session.plan(**part).one(name))

    def _best(self, model: RankBias, part: float) -> Prediction:
        """The weights with the least predicted error, for a choice of points with this part of the budget."""
        grades = isinstance(self.search.line, Candidates) and len(self.search.line.points) <= _GRADES
        noise = 2 / (part * self.search.session.budget.epsilon)
        predicted = partial(model.predicted, noise=noise, counted=_OF_GRADES if grades else 1.0)
        return min(map(predicted, self._keeps()), key=lambda each: each.error)

    def _keeps(self) -> list[Keep]:
        """Weights to choose from."""
        largest = float(self._ends[-1])
        bounds = sorted({float(end) for end in (*self._ends, *np.floor(_BETWEEN * self._ends[:-1]))})
        pairs = {(bound, min(bound * many, largest)) for bound in bounds for many in (*_AMONG, largest)}
        return [Keep(*pair) for pair in sorted(pairs)]


def _safe(classes: SizeClasses, best: Prediction) -> float:
    """A part of the total weight, so small that the true total is hardly smaller."""
    kept = np.minimum(classes.sizes, best.keep.kept)
    total = float(classes.counts @ kept)
    doubt = classes.stddev * math.sqrt(float(np.square(kept[classes.counts >= 1]).sum()))
    return max(1 - 2 * doubt / total, 0.25, min(best.keep.kept / total, 1.0))
