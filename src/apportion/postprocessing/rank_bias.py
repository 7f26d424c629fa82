"""What weights of rows do to the rank of a quantile, predicted from released numbers of users by size.

Of a user with s rows a share p lies below the quantile; over all rows it is q. Users differ by a beta distribution,
with a correlation of two rows of a user, and its mean goes with the octave of s: on the logit scale by a line. How
steep the line is has a prior with several widths, and one more released number may tell it.

With weights that keep the middle of a user's rows (`privacy.contributions.MiddleRows`) a user adds w (p - q), clipped.
Over users that does not add up to 0 at the quantile. What is expected of it is corrected, by another rank that is
sought among weighted rows. What is not known of it, what users differ by, and noise are the predicted error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.size_dependence import SizeClasses

Floats = NDArray[np.float64]

_STEEP = (0.003, 0.02, 0.05, 0.12)  # prior standard deviations of what an octave of sizes adds to a share of 1/2
EXPECTED = (0.75, 0.2, 0.045, 0.005)  # how likely each is, for estimates
FEARED = (0.2, 0.3, 0.3, 0.2)  # the same for bounds on ranks
_STEEPEST = 0.35  # of all slopes that are looked at
_FEW, _MANY = 21, 61  # slopes: before one is measured, and for that
_NODES = 16  # users of a class that stand for all
_CORRELATION = 0.12  # of two rows of a user being below the quantile
_BENT = 0.01  # by how much the mean of a class is off the line
_STEP = 0.05  # of ranks, for how fast sums rise
_DOUBTED = 0.5  # part of a correction that is not known
_BEFORE, _AFTER = 0.3, 1.5  # factors on the variance of what is not known, before a slope is measured and after
_FURTHEST = 0.25  # an error of ranks beyond this counts as little more
_TAILS = 2.0  # by which the variance of noise is larger in fits: Laplace noise is often far out
_UNLIKELY = 1e-3  # of the likeliest, that a slope is kept
_LEAST_RISE = 1e-3


class Keep(NamedTuple):
    """Weights of rows: the middle `kept` of each user's rows, of which it counts as having at most `among`."""

    kept: float
    among: float


class Prediction(NamedTuple):
    """What is expected of weights.

    Attributes:
        keep: the weights.
        rank: among weighted rows, which is to be sought.
        error: of the rank, root mean square.
        missed: the part of it that is not noise.
    """

    keep: Keep
    rank: float
    error: float
    missed: float


class _Effect(NamedTuple):
    """What weights do, by size class and slope.

    Attributes:
        added: what one user adds to the sum at the quantile.
        spread: the variance of that, without what is proportional to the user's part of the rank.
        rise: how much more one user adds if the rank rises by 1.
    """

    added: Floats
    spread: Floats
    rise: Floats


@dataclass(frozen=True, eq=False)
class RankBias:
    """Predictions for one quantile.

    Attributes:
        classes: users by size.
        quantile: q.
        slopes: what an octave of sizes may add to a share of 1/2.
        likely: how likely each slope is.
        caution: a factor on the variance of what is not known.
    """

    classes: SizeClasses
    quantile: float
    slopes: Floats
    likely: Floats
    caution: float

    @classmethod
    def before(
        cls, classes: SizeClasses, quantile: float, parts: tuple[float, ...] = EXPECTED, n: int = _FEW
    ) -> RankBias:
        """What is expected before anything but sizes is known."""
        places = np.linspace(-1, 1, n)
        slopes = np.asarray(_STEEPEST * places * np.abs(places))
        bells = [
            part / steep * np.exp(-np.square(slopes / steep) / 2) for part, steep in zip(parts, _STEEP, strict=True)
        ]
        weights = np.abs(np.gradient(slopes)) * np.sum(bells, axis=0)
        return cls(classes, quantile, slopes, weights / weights.sum(), _BEFORE)

    @classmethod
    def after(
        cls, classes: SizeClasses, quantile: float, measured: Measured, parts: tuple[float, ...] = EXPECTED
    ) -> RankBias:
        """The same with a released number on how large users differ from small ones."""
        prior = cls.before(classes, quantile, parts, _MANY)
        likely = prior.likely * prior.fits(measured)
        kept = likely > _UNLIKELY * likely.max()
        return cls(classes, quantile, prior.slopes[kept], likely[kept] / likely[kept].sum(), _AFTER)

    def at(self, quantile: float) -> RankBias:
        """The same users and slopes for another quantile."""
        return RankBias(self.classes, quantile, self.slopes, self.likely, self.caution)

    def predicted(self, keep: Keep, noise: float, counted: float = 1.0, rank: float | None = None) -> Prediction:
        """Return what is to be expected of weights.

        Args:
            keep: the weights.
            noise: 2/ε of the choice of a point.
            counted: how much of what is not noise counts.
            rank: if given, what is sought among weighted rows; otherwise the best.
        """
        effect = self._effect(keep)
        weights, counts = self._shapes
        chances = weights[:, None] * self.likely
        totals = np.maximum(counts @ np.minimum(self.classes.sizes, keep.kept), 1.0)[:, None]
        lifts = (counts @ effect.added) / totals
        best = float((chances * lifts).sum()) + self.quantile
        sought = rank or float(np.clip(best, self.quantile / 2, (1 + self.quantile) / 2))
        lift = sought - self.quantile
        per_rank = np.square(totals / np.maximum(counts @ effect.rise, _LEAST_RISE))
        spread = (counts @ effect.spread) / np.square(totals)
        missed = per_rank * (self.caution * np.square(lifts - lift) + (_DOUBTED * lift) ** 2 + spread)
        noisy = per_rank * np.square(noise * max(sought, 1 - sought) * keep.kept / totals)
        errors = [float((chances * _bounded(each)).sum()) for each in (counted**2 * missed + noisy, missed)]
        return Prediction(keep, sought, math.sqrt(errors[0]), math.sqrt(errors[1]))

    def reached(self, keep: Keep, deviation: float) -> float:
        """Return how far a rank is off at most, if the sum of weights is off by so much; at most 1."""
        slope = float((self.likely * self.slopes).sum())
        users = RankBias(self.classes, self.quantile, np.array([slope]), np.ones(1), 1.0)
        base = float(self.classes.counts @ users._added(keep, 0.0).mean(axis=2)[:, 0])
        for rank in np.arange(1, 101) / 100:
            ends = [float(self.classes.counts @ users._added(keep, side * rank).mean(axis=2)[:, 0]) for side in (-1, 1)]
            least = min(base - ends[0], ends[1] - base)
            if least >= deviation:
                return float(rank if rank > 0.01 else 0.01 * deviation / least)
        return 1.0

    def fits(self, measured: Measured) -> Floats:
        """How well each slope fits a released number, relative to the best."""
        first = self._effect(measured.rough.keep)
        totals = self.classes.counts @ np.minimum(self.classes.sizes, measured.rough.keep.kept)
        sought = (measured.rough.rank - self.quantile) * totals
        rise = np.maximum(self.classes.counts @ first.rise, _LEAST_RISE)
        shift = ((sought - self.classes.counts @ first.added) / rise).clip(-0.5, 0.5)
        each = np.clip((self._shares + shift[:, None] - self.quantile) / measured.clip, -1.0, 1.0)
        weights, counts = self._shapes
        means = (counts * measured.tilts) @ each.mean(axis=2)
        bent = np.square(counts * measured.tilts * _BENT / measured.clip).sum(axis=1)[:, None]
        variance = _TAILS * measured.variance + counts @ (np.square(measured.tilts)[:, None] * each.var(axis=2)) + bent
        fits = -np.square(measured.value - means) / variance / 2 - np.log(variance) / 2
        return np.asarray((weights[:, None] * np.exp(fits - fits.max())).sum(axis=0))

    @cached_property
    def _shares(self) -> Floats:
        """By size class and slope, shares below the quantile of users that are equally likely."""
        from scipy.special import betaincinv

        means, sizes = self._means(), self.classes.sizes[:, None]
        count = np.maximum(1 / (_CORRELATION + (1 - _CORRELATION) / sizes) - 1, 0.02)
        middles = (np.arange(_NODES) + 0.5) / _NODES
        shares = betaincinv((means * count)[..., None], ((1 - means) * count)[..., None], middles)
        return np.asarray(shares + (means - shares.mean(axis=-1))[..., None])

    def _means(self) -> Floats:
        """By size class and slope the mean share below the quantile; over all rows it is q."""
        rows, octaves = self.classes.counts * self.classes.sizes, np.log2(self.classes.sizes)
        octaves = octaves - (rows * octaves).sum() / rows.sum()
        lines = 4 * octaves[:, None] * self.slopes
        low, high = np.full(len(self.slopes), -30.0), np.full(len(self.slopes), 30.0)
        for _ in range(40):
            middle = (low + high) / 2
            over = (rows[:, None] * _logistic(lines + middle)).sum(axis=0) > self.quantile * rows.sum()
            low, high = np.where(over, low, middle), np.where(over, middle, high)
        return _logistic(lines + (low + high) / 2).clip(1e-3, 1 - 1e-3)

    def _effect(self, keep: Keep) -> _Effect:
        added = self._added(keep, 0.0)
        rise = (self._added(keep, _STEP) - self._added(keep, -_STEP)).mean(axis=2) / (2 * _STEP)
        counts, sizes = self.classes.counts, self.classes.sizes
        part = (counts @ rise) / (counts @ sizes)
        rest = added - part[:, None] * sizes[:, None, None] * (self._shares - self.quantile)
        return _Effect(added.mean(axis=2), rest.var(axis=2), rise)

    def _added(self, keep: Keep, shift: float) -> Floats:
        """What users add whose shares are higher by a shift."""
        most = np.minimum(self.classes.sizes, keep.among)[:, None, None]
        part = np.minimum(1.0, keep.kept / most)
        over = self._shares + (shift - self.quantile)
        return np.asarray(most * np.clip(over, -self.quantile * part, (1 - self.quantile) * part))

    @property
    def _shapes(self) -> tuple[Floats, Floats]:
        shapes = self.classes.shapes
        if shapes is None:
            return np.ones(1), self.classes.counts[None]
        return shapes.weights, shapes.each


@dataclass(frozen=True, eq=False)
class Measured:
    """A released number: distances of users' shares from q at a rough quantile, clipped, times a tilt.

    Attributes:
        tilts: the factor of every size class.
        clip: distances are clipped to this, and divided by it.
        value: the released number.
        variance: the variance of its noise.
        rough: how the rough quantile was found.
    """

    tilts: Floats
    clip: float
    value: float
    variance: float
    rough: Prediction


def _bounded(squares: Floats) -> Floats:
    """Squared errors of ranks, none much larger than can be."""
    return np.asarray(squares / (1 + squares / _FURTHEST**2))


def _logistic(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)))
