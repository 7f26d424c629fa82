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
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.size_dependence import SizeClasses

Floats = NDArray[np.float64]

_STEEP = (0.003, 0.02, 0.05, 0.12)  # prior standard deviations of what an octave of sizes adds to a share of 1/2
_EXPECTED = (0.75, 0.2, 0.045, 0.005)  # how likely each is, for estimates
_FEARED = (0.2, 0.3, 0.3, 0.2)  # the same for bounds on ranks
_STEEPEST = 0.35  # of all slopes that are looked at
_FEW, _MANY = 21, 45  # slopes: before one is measured, and for that
_NODES = 10  # users of a class that stand for all
_CORRELATION = 0.12  # of two rows of a user being below the quantile
_LEAST_COUNT = 0.2  # sum of the parameters of a beta distribution
_BENT = 0.01  # by how much the mean of a class is off the line
_STEP = 0.05  # of ranks, for how fast sums rise
_DOUBTED = 0.5  # part of a correction that is not known
_BEFORE, _AFTER, _OF_FEARS = 0.3, 1.5, 1.5  # factors on the variance of what is not known
_FURTHEST = 0.25  # an error of ranks beyond this counts as little more
_TAILS = 2.0  # by which the variance of noise is larger in fits: Laplace noise is often far out
_UNLIKELY = 1e-3  # of the likeliest, that a slope is kept
_UNLIKELY_SHAPE = 0.02  # the same for a shape of sizes
_LEAST_RISE = 1e-3
_PLACES = 50  # between the quantile and either end, for bounds on ranks


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
        bent: by slope, the variance of the whole sum because classes are off the line.
    """

    added: Floats
    spread: Floats
    rise: Floats
    bent: Floats


@dataclass(frozen=True, eq=False)
class RankBias:
    """Predictions for one quantile.

    Attributes:
        classes: users by size.
        quantile: q.
        slopes: what an octave of sizes may add to a share of 1/2.
        likely: how likely each slope is.
        shares: by size class and slope, shares below the quantile of users that are equally likely.
        caution: a factor on the variance of what is not known.
    """

    classes: SizeClasses
    quantile: float
    slopes: Floats
    likely: Floats
    shares: Floats
    caution: float

    @classmethod
    def of(cls, classes: SizeClasses, quantile: float, slopes: Floats, likely: Floats, caution: float) -> RankBias:
        """Work out the shares."""
        return cls(classes, quantile, slopes, likely, _shares(classes, quantile, slopes), caution)

    @classmethod
    def before(cls, classes: SizeClasses, quantile: float) -> tuple[RankBias, RankBias]:
        """What is expected, and what is feared, before anything but sizes is known."""
        slopes = _slopes(_FEW)
        expected = cls.of(classes, quantile, slopes, _prior(slopes, _EXPECTED, quantile), _BEFORE)
        return expected, replace(expected, likely=_prior(slopes, _FEARED, quantile), caution=_OF_FEARS)

    @classmethod
    def after(cls, classes: SizeClasses, quantile: float, measured: Measured) -> tuple[RankBias, RankBias]:
        """The same with a released number on how large users differ from small ones."""
        slopes = _slopes(_MANY)
        expected = cls.of(classes, quantile, slopes, _prior(slopes, _EXPECTED, quantile), _AFTER)
        feared = replace(expected, likely=_prior(slopes, _FEARED, quantile), caution=_OF_FEARS)
        fits = expected._fits(measured)
        return expected._learned(fits), feared._learned(fits)

    def _learned(self, fits: Floats) -> RankBias:
        """The slopes that are not unlikely after something fits them more or less."""
        likely = self.likely * fits
        kept = likely > _UNLIKELY * likely.max()
        likely = likely[kept] / likely[kept].sum()
        return replace(self, slopes=self.slopes[kept], likely=likely, shares=self.shares[:, kept])

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
        rise = np.maximum(counts @ effect.rise, _LEAST_RISE)
        lifts = (counts @ effect.added) / totals
        best = float((chances * lifts).sum()) + self.quantile
        sought = rank or float(np.clip(best, self.quantile / 2, (1 + self.quantile) / 2))
        lift = sought - self.quantile
        per_rank = np.square(totals / rise)
        spread = (counts @ effect.spread + effect.bent) / np.square(totals)
        missed = per_rank * (self.caution * (np.square(lifts - lift) + spread) + (_DOUBTED * lift) ** 2)
        noisy = per_rank * np.square(noise * max(sought, 1 - sought) * keep.kept / totals)
        errors = [float((chances * _bounded(each)).sum()) for each in (counted**2 * missed + noisy, missed)]
        return Prediction(keep, sought, math.sqrt(errors[0]), math.sqrt(errors[1]))

    def reached(self, keep: Keep, deviation: float) -> float:
        """Return how far a rank is off at most, if the sum of weights is off by so much; at most 1."""
        slope = float((self.likely * self.slopes).sum())
        users = RankBias.of(self.classes, self.quantile, np.array([slope]), np.ones(1), 1.0)
        base = float(self.classes.counts @ users._added(keep, 0.0).mean(axis=2)[:, 0])
        sides = []
        for side, most in ((-1, self.quantile), (1, 1 - self.quantile)):
            ranks = most * np.arange(1, _PLACES + 1) / _PLACES
            sums = [float(self.classes.counts @ users._added(keep, side * rank).mean(axis=2)[:, 0]) for rank in ranks]
            moved = np.maximum.accumulate(side * (np.array(sums) - base))
            sides.append(float(np.interp(deviation, np.append(0.0, moved), np.append(0.0, ranks), right=most)))
        return max(sides)

    def _fits(self, measured: Measured) -> Floats:
        """How well each slope fits a released number, relative to the best."""
        first = self._effect(measured.rough.keep)
        totals = self.classes.counts @ np.minimum(self.classes.sizes, measured.rough.keep.kept)
        sought = (measured.rough.rank - self.quantile) * totals
        rise = np.maximum(self.classes.counts @ first.rise, _LEAST_RISE)
        shift = ((sought - self.classes.counts @ first.added) / rise).clip(-0.5, 0.5)
        there = _shares(self.classes, (self.quantile + shift).clip(0.01, 0.99), self.slopes)
        each = np.clip((there - self.quantile) / measured.clip, -1.0, 1.0)
        weights, counts = self._shapes
        means = (counts * measured.tilts) @ each.mean(axis=2)
        bent = np.square(counts * measured.tilts * _BENT / measured.clip).sum(axis=1)[:, None]
        variance = _TAILS * measured.variance + counts @ (np.square(measured.tilts)[:, None] * each.var(axis=2)) + bent
        fits = -np.square(measured.value - means) / variance / 2 - np.log(variance) / 2
        return np.asarray((weights[:, None] * np.exp(fits - fits.max())).sum(axis=0))

    def _effect(self, keep: Keep) -> _Effect:
        added = self._added(keep, 0.0)
        rise = (self._added(keep, _STEP) - self._added(keep, -_STEP)).mean(axis=2) / (2 * _STEP)
        counts, sizes = self.classes.counts, self.classes.sizes
        part = (counts @ rise) / (counts @ sizes)
        taken = counts[:, None] * (rise - part * sizes[:, None])
        rest = added - part[:, None] * sizes[:, None, None] * (self.shares - self.quantile)
        return _Effect(added.mean(axis=2), rest.var(axis=2), rise, np.square(_BENT * taken).sum(axis=0))

    def _added(self, keep: Keep, shift: float) -> Floats:
        """What users add whose shares are higher by a shift."""
        most = np.minimum(self.classes.sizes, keep.among)[:, None, None]
        part = np.minimum(1.0, keep.kept / most)
        over = self.shares + (shift - self.quantile)
        least, largest = -self.quantile * part, (1 - self.quantile) * part
        return np.asarray(most * np.where(part < 1, np.clip(over, least, largest), over))

    @property
    def _shapes(self) -> tuple[Floats, Floats]:
        shapes = self.classes.shapes
        if shapes is None:
            return np.ones(1), self.classes.counts[None]
        kept = shapes.weights > _UNLIKELY_SHAPE * shapes.weights.max()
        return shapes.weights[kept] / shapes.weights[kept].sum(), shapes.each[kept]


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


def _slopes(n: int) -> Floats:
    """Slopes to look at, dense around 0."""
    places = np.linspace(-1, 1, n)
    return np.asarray(_STEEPEST * places * np.abs(places))


def _prior(slopes: Floats, parts: tuple[float, ...], quantile: float) -> Floats:
    """How likely each slope is. Far from the median few rows count, and they may be those of a few sizes."""
    wide = [steep / (2 * math.sqrt(quantile * (1 - quantile))) for steep in _STEEP]
    bells = [part / steep * np.exp(-np.square(slopes / steep) / 2) for part, steep in zip(parts, wide, strict=True)]
    weights = np.abs(np.gradient(slopes)) * np.sum(bells, axis=0)
    return np.asarray(weights / weights.sum())


def _shares(classes: SizeClasses, quantile: float | Floats, slopes: Floats) -> Floats:
    """By size class and slope, shares below a quantile of users that are equally likely: means of equal parts."""
    from scipy.special import betainc, betaincinv

    means, sizes = _means(classes, quantile, slopes), classes.sizes[:, None]
    count = np.maximum(1 / (_CORRELATION + (1 - _CORRELATION) / sizes) - 1, _LEAST_COUNT)
    lower = np.minimum(means, 1 - means)  # numbers near 0 are more exact than those near 1
    first, second = (lower * count)[..., None], ((1 - lower) * count)[..., None]
    ends = betaincinv(first, second, np.arange(1, _NODES) / _NODES)
    below = np.zeros((*means.shape, _NODES + 1))
    below[..., 1:-1], below[..., -1] = betainc(first + 1, second, ends), 1.0
    shares = (np.diff(below, axis=-1) * lower[..., None] * _NODES).clip(0, 1)
    return np.where((means > lower)[..., None], 1 - shares, shares)


def _means(classes: SizeClasses, quantile: float | Floats, slopes: Floats) -> Floats:
    """By size class and slope the mean share below the quantile; over all rows it is q."""
    rows, octaves = classes.counts * classes.sizes, np.log2(classes.sizes)
    octaves = octaves - (rows * octaves).sum() / rows.sum()
    lines = 4 * octaves[:, None] * slopes
    low, high = np.full(len(slopes), -30.0), np.full(len(slopes), 30.0)
    for _ in range(40):
        middle = (low + high) / 2
        over = (rows[:, None] * _logistic(lines + middle)).sum(axis=0) > quantile * rows.sum()
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return _logistic(lines + (low + high) / 2).clip(1e-3, 1 - 1e-3)


def _bounded(squares: Floats) -> Floats:
    """Squared errors of ranks, none much larger than can be."""
    return np.asarray(squares / (1 + squares / _FURTHEST**2))


def _logistic(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)))
