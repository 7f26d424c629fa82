"""The mean over rows from noisy sums by size class and by stratum, if values go with sizes as the sums say.

In class k there are c_k users of size about s_k with the mean m_k. What is expected of the m_k is an average over
priors (`slope_priors`), and numbers of users are averaged over the likely shapes (`class_counts`), both by how well
they fit. Every released sum is a known mix of the m_k with noise, those by stratum also of what the mean of a stratum
is off that of its classes. So all sums together tell the mean over rows: what large users' sums are too noisy to tell
is taken from smaller users, as far as the sums show that values go little with sizes.

Normal noise is assumed. Laplace noise is often far out. A sum that lies far from what the others say is given a larger
variance: b|r| for a residual r and a scale b, with which a normal distribution has the same slope as the Laplace one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.class_counts import ROUGH, LikelyCounts
from apportion.postprocessing.mixtures import Mixture
from apportion.postprocessing.size_dependence import OF_ROWS, OF_USERS, SizeClasses
from apportion.postprocessing.size_strata import SizeStrata
from apportion.postprocessing.slope_priors import DOUBTED, EXPECTED, FEARED, SlopePriors

Floats = NDArray[np.float64]

_CAUTION = 0.25  # part of what is feared that counts for the choice of a cap
_DOUBTED = 0.7  # power of how likely numbers of users are, for intervals
_TAILS, _LEAST_TAILS = 2.0, 1.5  # factors of a Laplace variance in fits: at first, and then at least
_SHAPES, _SHAPES_OF_CAPS = 24, 8  # how many of the likeliest shapes count: for a mean, for a cap
_COARSE, _MISFIT = (
    0.3,
    0.1,
)  # relative standard deviations of the weight of a stratum: of a shape, and in its likelihood
_SLOPE_WITHIN, _SIZES_WITHIN = 0.005, 0.2  # within a class: what means go with sizes, relative spread of sizes
_OFF, _OFF_LAST = 0.06, 0.5  # what sizes of a class may be off together, relative: of each, and of the last
_LEAST_SPREAD = 1e-10  # of each released sum, relative to its variance, so that covariances are not singular
_ROUNDS = 3  # centres that are tried


@dataclass(frozen=True, eq=False)
class Shapes:
    """Likely numbers of users by size class.

    Attributes:
        counts: a row for each shape, with at least one user.
        weights: how likely each is; the likeliest first, together 1.
        sizes: the sizes that represent the classes.
        of_counts: the variance of the noise with which numbers of users by class were released.
    """

    counts: Floats
    weights: Floats
    sizes: Floats
    of_counts: float

    @classmethod
    def of(cls, classes: SizeClasses, likely: LikelyCounts) -> Shapes:
        """Return the likeliest shapes; those without any user get one in the first class."""
        kept = np.argsort(-likely.weights, kind="stable")[:_SHAPES]
        counts = likely.each[kept].copy()
        counts[:, 0] += np.maximum(1 - counts.sum(axis=1), 0.0)
        weights = likely.weights[kept] / likely.weights[kept].sum()
        return cls(counts, weights, classes.sizes, classes.stddev**2)

    @property
    def few(self) -> Shapes:
        """The likeliest of them."""
        weights = self.weights[:_SHAPES_OF_CAPS]
        return replace(self, counts=self.counts[:_SHAPES_OF_CAPS], weights=weights / weights.sum())

    def shares(self, cap: float = np.inf) -> Floats:
        """Return the weight of every class, for each shape; each shape's together 1."""
        weights = self.counts * np.minimum(self.sizes, cap)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def users(self, strata: SizeStrata) -> Floats:
        """Return how many users each stratum has on average."""
        by_class = self.weights @ self.counts
        return np.asarray(np.bincount(strata.of_class, by_class, minlength=len(strata.bounds)), np.float64)

    @property
    def misfits(self) -> Floats:
        """Return the variance of what sums by class, in which all users weigh the same, differ by from the model."""
        counts = self.weights @ self.counts
        drawn = _SIZES_WITHIN**2 * (OF_USERS + OF_ROWS / self.sizes)
        return np.asarray(np.square(_SLOPE_WITHIN * counts) + drawn * counts)

    def first_mean(self, by_class: CentredSums, guess: float, cap: float) -> tuple[float, float]:
        """Return the mean with weights up to a cap that sums by class alone tell, and its standard deviation."""
        answers = self._told(by_class, guess, cap)
        likely = answers.likely(self.weights, EXPECTED.likely)
        mean = float((likely * answers.means).sum())
        variance = float((likely * (answers.variances + np.square(answers.means - mean))).sum())
        return guess + mean, float(np.sqrt(variance))

    def log_fits(self, by_class: CentredSums, guess: float) -> Floats:
        """Return the logarithm of how well each prior fits the sums by class, whatever the shape."""
        fits = self._told(by_class, guess, np.inf).fits
        return np.asarray(np.log(self.weights @ np.exp(fits - fits.max()) + 1e-300))

    def _told(self, by_class: CentredSums, guess: float, cap: float) -> _Answers:
        """Return the answers of sums by class alone, for the mean with weights up to a cap."""
        seen = self.counts[:, :, None] * np.eye(len(self.sizes))
        sums, variances = by_class.around(guess)
        noise = _TAILS * variances + self.misfits
        priors = EXPECTED.covariances(self.counts, self.sizes)
        return _Answers.to(sums, noise, seen, priors, self.shares(cap), np.full(len(self.sizes), 0.5 - guess))

    def uncounted(self, cap: float, slopes: Floats) -> Floats:
        """Return the variance that users beyond a cap, of whom more or fewer may be there, cause for these slopes."""
        own = np.square(ROUGH * self.counts)
        doubts = own * self.of_counts / np.maximum(own + self.of_counts, 1e-300)
        places = np.log2(self.sizes)
        octaves = places - (self.shares() @ places)[:, None]
        beyond = (self.sizes - np.minimum(self.sizes, cap)) / (self.counts @ self.sizes)[:, None]
        return np.asarray((doubts * np.square(beyond * octaves)).sum(axis=1)[:, None] * np.square(slopes))

    def doubted(self, cap: float, slopes: Floats) -> Floats:
        """Return the variance for these slopes if also users are not of the sizes that represent their classes.

        Sizes of all classes may be off, and users of the last class may have more rows than count.
        """
        places, shares = np.log2(self.sizes), self.shares()
        off = np.append(np.full(len(places) - 1, _OFF), np.hypot(_OFF, _OFF_LAST))
        octaves = places - (shares @ places)[:, None]
        moved = np.square(shares * off * octaves).sum(axis=1)
        return np.asarray(self.uncounted(cap, slopes) + moved[:, None] * np.square(slopes))

    def with_weights(self, strata: SizeStrata, released: Floats, variances: Floats) -> Shapes:
        """Return the shapes that fit the released weights of the strata, with counts brought near to them.

        Args:
            strata: of the released weights.
            released: the sum of users' weights in each stratum.
            variances: of the noise in each.
        """
        each = strata.weights(self.counts, self.sizes).sum(axis=2)
        apart = np.square(released - each) / (_LEAST_TAILS * variances + np.square(_MISFIT * each))
        scores = np.log(self.weights) - apart.sum(axis=1) / 2
        weights = np.exp(scores - scores.max())
        hidden = self.of_counts / 4 * np.square(strata.weights(np.ones(len(self.sizes)), self.sizes)).sum(axis=1)
        prior = np.square(_COARSE * each) + hidden
        found = np.maximum((released / variances + each / prior) / (1 / variances + 1 / prior), 1e-6)
        factors = np.clip(found / np.maximum(each, 1e-9), 0.05, 20.0)[:, strata.of_class]
        return replace(self, counts=self.counts * factors, weights=weights / weights.sum())


@dataclass(frozen=True, eq=False)
class CentredSums:
    """Released sums, one for each class or stratum, of users' weighted distances from a centre.

    Attributes:
        tops: the sums of weighted distances from the centre.
        bottoms: the sums of weights.
        of_tops: the variance of the noise in each of the first.
        of_bottoms: the same for the second; the noises are uncorrelated.
        centre: from which distances are measured.
    """

    tops: Floats
    bottoms: Floats
    of_tops: Floats
    of_bottoms: Floats
    centre: float

    @classmethod
    def of_both(cls, high: Floats, low: Floats, variances: Floats) -> CentredSums:
        """Return them from sums of z and of 1 - z, whose noise has these variances."""
        return cls((high - low) / 2, high + low, variances / 2, 2 * variances, 0.5)

    def around(self, centre: float) -> tuple[Floats, Floats]:
        """Return the sums of distances from another centre, and the variances of their noise."""
        moved = centre - self.centre
        return self.tops - moved * self.bottoms, self.of_tops + moved**2 * self.of_bottoms


@dataclass(frozen=True, eq=False)
class PooledMean:
    """A mean over rows.

    Attributes:
        value: on a scale from 0 to 1, not yet clipped.
        noise: standard deviation of what the noise of each stratum's sum moves it by.
        unsure: what else it may be off by.
        weight: the estimated sum of weights up to the cap.
    """

    value: float
    noise: Floats
    unsure: Mixture
    weight: float


def predicted_error(
    shapes: Shapes, strata: SizeStrata, of_classes: float, of_strata: Floats, log_fits: Floats | float = 0.0
) -> float:
    """Return the mean squared error of the mean that is expected of sums with noise of these variances.

    Args:
        shapes: likely numbers of users.
        strata: of the sums by stratum.
        of_classes: variance of the noise in sums by class.
        of_strata: the same for each stratum.
        log_fits: the logarithm of how well each prior fits what is known.
    """
    seen, target = _seen(shapes, strata), _target(shapes, strata)
    noise = np.append(np.full(len(shapes.sizes), of_classes), of_strata)
    expected, feared = (
        (_left(_covariances(priors, shapes, strata), seen, noise, target) + shapes.uncounted(strata.cap, priors.slopes))
        @ priors.given(np.asarray(log_fits)).likely
        for priors in (EXPECTED, FEARED)
    )
    return float(shapes.weights @ (expected + _CAUTION * (feared - expected)))


def pooled_mean(
    shapes: Shapes,
    strata: SizeStrata,
    by_class: CentredSums,
    by_stratum: CentredSums,
    guess: float,
    *,
    laplace: bool,
    doubted: SlopePriors = DOUBTED,
) -> PooledMean:
    """Return the mean over rows that all sums tell.

    Args:
        shapes: likely numbers of users, given the weights of the strata.
        strata: of the second sums.
        by_class: sums by size class, of users' means.
        by_stratum: sums by stratum, of users' means times their weights.
        guess: a first guess, from which the first distances are measured.
        laplace: whether the noise is Laplace noise.
        doubted: priors for the interval.
    """
    sums = _AllSums(shapes, strata, by_class, by_stratum)
    centre, factors = guess, np.full(sums.seen.shape[1], _TAILS if laplace else 1.0)
    for _ in range(_ROUNDS):
        answers, variances = sums.answers(EXPECTED, centre, factors)
        likely = answers.likely(shapes.weights, EXPECTED.likely)
        last, value = centre, centre + float((likely * answers.means).sum())
        if laplace:
            far = np.abs(_average(likely, answers.residuals)) / np.sqrt(2 * variances)
            factors = np.maximum(far, _LEAST_TAILS)
        centre = float(np.clip(value, 0.0, 1.0))
    noise = np.abs(_average(likely, answers.factors)) * np.sqrt(variances)
    return PooledMean(value, sums.of_strata(noise), sums.unsure(doubted, value, last, factors), sums.weight)


@dataclass(frozen=True, eq=False)
class _AllSums:
    """All released sums of one column.

    Attributes:
        shapes: likely numbers of users.
        strata: of the second sums.
        by_class: sums by size class.
        by_stratum: sums by stratum.
    """

    shapes: Shapes
    strata: SizeStrata
    by_class: CentredSums
    by_stratum: CentredSums

    @cached_property
    def seen(self) -> Floats:
        """How sums depend on the class means and on what strata are off, for each shape."""
        return _seen(self.shapes, self.strata)

    @property
    def weight(self) -> float:
        """The estimated sum of weights up to the cap."""
        return float(self.shapes.weights @ self.shapes.counts @ np.minimum(self.shapes.sizes, self.strata.cap))

    def of_strata(self, each: Floats) -> Floats:
        """Return the entries of sums by stratum, which come last."""
        return each[..., len(self.shapes.sizes) :]

    def answers(self, priors: SlopePriors, centre: float, factors: Floats) -> tuple[_Answers, Floats]:
        """Return the answers to the sums around a centre, with noise larger by these factors, and its variances."""
        both = zip(self.by_class.around(centre), self.by_stratum.around(centre), strict=True)
        sums, variances = (np.concatenate(pair) for pair in both)
        noise = variances * factors
        noise[: len(self.shapes.sizes)] += self.shapes.misfits
        target = _target(self.shapes, self.strata)
        expected = np.zeros(target.shape[1])
        expected[: len(self.shapes.sizes)] = 0.5 - centre
        each = _covariances(priors, self.shapes, self.strata)
        return _Answers.to(sums, noise, self.seen, each, target, expected), variances

    def unsure(self, priors: SlopePriors, value: float, centre: float, factors: Floats) -> Mixture:
        """Return what a mean with this value may be off by under these priors, beside the noise of sums by stratum."""
        feared, variances = self.answers(priors, centre, factors)
        weights = feared.likely(self.shapes.weights**_DOUBTED, priors.likely)
        noise = np.square(self.of_strata(feared.factors)) @ self.of_strata(variances)
        left = np.maximum(feared.variances - noise, 0.0) + self.shapes.doubted(self.strata.cap, priors.slopes)
        left += np.square(centre + feared.means - value)
        return Mixture.of(weights.ravel(), np.sqrt(left).ravel())


@dataclass(frozen=True, eq=False)
class _Answers:
    """The answer of each shape and each prior on the slope to released sums.

    Attributes:
        fits: the logarithm of how well each fits.
        means: the mean over rows, from the centre.
        variances: of its error.
        factors: how the mean depends on each sum.
        residuals: what each sum lies from what it is expected to be, given all sums.
    """

    fits: Floats
    means: Floats
    variances: Floats
    factors: Floats
    residuals: Floats

    @classmethod
    def to(
        cls, sums: Floats, noise: Floats, seen: Floats, priors: Floats, target: Floats, expected: Floats
    ) -> _Answers:
        """Answer sums.

        Args:
            sums: that were released.
            noise: their variances.
            seen: how they depend on the class means, and on all else that is not known.
            priors: covariances of what is not known.
            target: how the mean over rows depends on it.
            expected: of it.
        """
        mixed, spread = _spread(priors, seen, noise, target)
        odd = np.broadcast_to((sums - seen @ expected)[:, None], mixed.shape)
        solved, size = _solved(spread, np.stack([odd, mixed], axis=-1))
        fits = -((odd * solved[..., 0]).sum(axis=-1) + size) / 2
        factors = solved[..., 1]
        variances = _of_target(priors, target) - (mixed * factors).sum(axis=-1)
        means = (target @ expected)[:, None] + (odd * factors).sum(axis=-1)
        return cls(fits, means, variances, factors, noise * solved[..., 0])

    def likely(self, shapes: Floats, priors: Floats) -> Floats:
        """Return how likely each answer is, if shapes and priors are as likely beforehand; together 1."""
        with np.errstate(divide="ignore"):  # the best fit may be that of a shape with weight 0
            logs = np.log(shapes)[:, None] + np.log(priors) + self.fits
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())


def _average(likely: Floats, each: Floats) -> Floats:
    """Return the average over shapes and priors, which are as likely."""
    return np.asarray(np.einsum("np,npr->r", likely, each))


def _covariances(priors: SlopePriors, shapes: Shapes, strata: SizeStrata) -> Floats:
    """Return the covariances of class means and of what strata are off, for each shape and prior."""
    return priors.covariances(shapes.counts, shapes.sizes, len(strata.bounds))


def _seen(shapes: Shapes, strata: SizeStrata) -> Floats:
    """Return how sums by class and then by stratum depend on class means and then on what strata are off, by shape."""
    weights = strata.weights(shapes.counts, shapes.sizes)
    own = weights.sum(axis=2)[:, :, None] * np.eye(len(strata.bounds))
    by_class = shapes.counts[:, :, None] * np.eye(len(shapes.sizes), len(shapes.sizes) + len(strata.bounds))
    return np.concatenate([by_class, np.concatenate([weights, own], axis=2)], axis=1)


def _target(shapes: Shapes, strata: SizeStrata) -> Floats:
    """Return how the mean over rows depends on class means and on what strata are off, for each shape."""
    shares = shapes.shares()
    return np.concatenate([shares, shares @ strata.members.T], axis=1)


def _spread(priors: Floats, seen: Floats, noise: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Return the covariances of the sums with the target, and with each other."""
    crossed = priors @ np.swapaxes(seen, 1, 2)[:, None]
    mixed = (np.swapaxes(crossed, 2, 3) @ target[:, None, :, None])[..., 0]
    return mixed, seen[:, None] @ crossed + np.diag(noise)


def _of_target(priors: Floats, target: Floats) -> Floats:
    return np.asarray((target[:, None, None, :] @ priors @ target[:, None, :, None])[..., 0, 0])


def _left(priors: Floats, seen: Floats, noise: Floats, target: Floats) -> Floats:
    """Return the variance of the target that is left after sums with this noise, for each shape and prior."""
    mixed, spread = _spread(priors, seen, noise, target)
    told = mixed * _solved(spread, mixed[..., None])[0][..., 0]
    return np.asarray(_of_target(priors, target) - told.sum(axis=-1))


def _solved(spread: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return the solutions for covariances that may be almost singular, and the logarithms of their determinants."""
    scales = np.sqrt(np.diagonal(spread, axis1=-2, axis2=-1))
    related = spread / (scales[..., :, None] * scales[..., None, :]) + _LEAST_SPREAD * np.eye(spread.shape[-1])
    solved = np.linalg.solve(related, rows / scales[..., None]) / scales[..., None]
    return solved, np.linalg.slogdet(related)[1] + 2 * np.log(scales).sum(axis=-1)
