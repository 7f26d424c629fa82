"""Estimates of how many users are in each of several classes, from a released histogram with known noise.

Classes are octaves: of users' sizes, or of how far their sums lie from a centre. If there are few users and much noise,
single counts mean nothing, so a shape is fitted to all counts together: two halves of normal distributions of the
logarithm, each with a spread of its own. Numbers of users may also fall by a constant factor with every octave of
sizes, as in a power law, and lengths of users' vectors may end where half of a normal distribution is cut off. Shapes
are averaged by how well they fit. If a count lies far outside the noise around the fit, the count is used instead of
the fit. So with a large budget the estimates are the released counts.

For means ("rough sizes"), numbers of users may be off any shape by about a quarter (`ROUGH`). Else a shape that is a
little wrong for the many users of middle sizes would be refused for it, and a wrong tail of large sizes be taken with
another shape. For medians that made errors larger where values go with sizes (decision 29).

Users may also be of two shapes: many with one row, and a long tail that is a few deviations of noise in each of many
classes, but holds most of the rows. One shape fits the many and misses the tail. So norms get a second shape if what
the first leaves stands out of the noise as a whole (`_TOGETHER`).

A choice that is based on counts should be good under every shape that fits, not only under their average. For example,
the average may have a few spurious users in a class of large sizes, while few of the shapes do (`LikelyCounts.each`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["sizes", "rough sizes", "distances", "norms", "whole norms", "lengths"]

_LEFT, _RIGHT = (0.5, 1.0, 2.0, 3.0), (0.3, 0.5, 0.7, 0.9, 1.1, 1.4, 1.7, 2.1, 2.6)  # spreads of shapes, in octaves
_MODEST = 0.35  # by which the logarithm of a shape's prior falls with every octave of large sizes
_RARE = 2.0  # by which it is lower for shapes that fall off by a constant factor
_RARER = 1.0  # by which it is lower still, for rough sizes
_HEAVY, _LIGHT = 1.5, 0.5  # by which it falls with every octave of their right spread, and from which spread on
ROUGH = 0.25  # relative standard deviation of numbers of users by size around a shape
# standard deviations of noise that an odd count must stand out by, near other users and far from them
_NEAR = {"sizes": 3.0, "rough sizes": 3.0, "distances": 2.0, "norms": 2.0, "whole norms": 3.0, "lengths": 2.0}
_FAR = {"sizes": 6.0, "rough sizes": 6.0, "distances": 6.0, "norms": 6.0, "whole norms": 10.0, "lengths": 5.0}
_FAR_LAPLACE = 14.0  # the same where noise is Laplace noise, but of whole norms: as likely as 6 of normal noise
_TOGETHER = 12.5  # log-likelihood that a second shape must gain: five standard deviations of normal noise
_PER_OCTAVE = 1.4  # that it must gain more for every octave beyond the near ones, where a wrong one costs twice as much
_BEST = 30  # of the first shapes, and of the second, whose pairs are kept
_CUT = 1.5  # spreads above the middle at which shapes of lengths may end
_LEAST_WEIGHT = 1e-4  # of all, that a shape is kept
_REACH = 3  # octaves beyond nine tenths of the users that are near
_LONG = 5.0  # a further left spread of rough sizes
_WIDE, _PER_WIDE = (3.4, 4.4), 1.0  # further spreads of L1 norms, whose first classes are narrow; and what each costs
_PER_CLASS = {
    "norms": 1.5,
    "whole norms": 1.0,
}  # deviations by which the next class beyond the near ones must stand out more
_NARROW, _FURTHER, _LONGER = 0.1, (2.9, 3.2, 3.6, 4.0, 4.4, 4.8), 3.2  # further spreads of whole norms; which cost
_WHOLE = 7  # classes of whole norms that hold one number each; further ones are half octaves
_FINITE = 2.6  # the longest tail of whole norms that falls by a constant factor, in half octaves: norms have a mean
_NONE = 1e6  # how much better users must fit than nobody: Laplace noise alone does in one of a hundred releases


@dataclass(frozen=True, eq=False)
class LikelyCounts:
    """Likely counts of users by class.

    Attributes:
        mean: the average, none negative.
        each: one row for every shape that fits, none negative.
        weights: how well each one fits; together 1.
    """

    mean: Floats
    each: Floats
    weights: Floats


def class_counts(noisy: Floats, stddev: float, kind: Kind, *, laplace: bool = False) -> Floats:
    """Return the estimated counts, none negative; arguments as in `likely_counts`."""
    return likely_counts(noisy, stddev, kind, laplace=laplace).mean


def likely_counts(noisy: Floats, stddev: float, kind: Kind, *, laplace: bool = False) -> LikelyCounts:
    """Return the estimated counts, and the shapes over which they are averaged.

    Args:
        noisy: released numbers of users, one for each octave, from the smallest.
        stddev: the standard deviation of their noise.
        kind: what is divided into classes.
        laplace: whether the noise is Laplace noise.
    """
    shapes, log_prior = _shapes(len(noisy), kind)
    totals = np.maximum(shapes @ noisy / np.square(shapes).sum(axis=1), 1.0)
    fits = totals[:, None] * shapes
    rough = np.square((ROUGH if kind == "rough sizes" else 0.0) * fits)
    scores = log_prior + _log_fits(noisy - fits, rough, stddev)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    each = fits + rough / (rough + max(stddev**2, 1e-300)) * (noisy - fits)
    fitted = weights @ each
    odd = noisy - fitted
    far = _FAR_LAPLACE if laplace and kind != "whole norms" else _FAR[kind]
    believed = _believed(odd, _least_odd(fitted, kind, far) * stddev, stddev, kind)
    kept = weights > _LEAST_WEIGHT
    found = LikelyCounts(
        np.maximum(fitted + believed * odd, 0.0),
        np.maximum(each[kept] + believed * (noisy - each[kept]), 0.0),
        weights[kept] / weights[kept].sum(),
    )
    return _with_others(found, noisy, stddev, kind, laplace) if "norms" in kind or kind == "lengths" else found


def _with_others(first: LikelyCounts, noisy: Floats, stddev: float, kind: Kind, laplace: bool) -> LikelyCounts:
    """Add users of a second shape, if what the first shapes leave stands out of the noise as a whole."""
    shapes, log_prior = _shapes(len(noisy), kind)
    left = noisy - first.mean
    others = np.maximum(shapes @ left / np.square(shapes).sum(axis=1), 0.0)[:, None] * shapes
    gains = _log_density(left - others, stddev, laplace) - _log_density(left, stddev, laplace)
    gains -= _PER_OCTAVE * _octaves_beyond(first.mean, shapes)
    if gains.max() < _TOGETHER:
        return first
    weights = np.exp(log_prior + gains - (log_prior + gains).max())
    weights /= weights.sum()
    these, those = (np.argsort(-each, kind="stable")[:_BEST] for each in (first.weights, weights))
    each = first.each[these, None] + others[None, those]
    likely = np.outer(first.weights[these], weights[those]).ravel()
    return LikelyCounts(first.mean + weights @ others, each.reshape(-1, len(noisy)), likely / likely.sum())


def _log_fits(misfits: Floats, rough: Floats, stddev: float) -> Floats:
    """Return the logarithm of how well each shape fits."""
    if rough.any():
        variances = rough + max(stddev**2, 1e-300)
        return np.asarray(-(np.square(misfits) / variances + np.log(variances)).sum(axis=1) / 2)
    squares = np.square(misfits).sum(axis=1)
    return np.asarray(-squares / max(stddev**2, float(squares.min()) / misfits.shape[1]) / 2)


def _believed(odd: Floats, least: Floats, stddev: float, kind: Kind) -> Floats:
    """Return which part of what counts are off a shape is taken for users.

    Of whole norms, it is how likely users are, rather than Laplace noise, if both are as likely at the least that must
    stand out; and nothing below that, where a small part of a user of a huge norm would be many rows.
    """
    if kind == "whole norms":
        likelier = math.sqrt(2) * (np.abs(odd) - least) / max(stddev, 1e-100)
        return np.where(likelier >= 0, 1 / (1 + np.exp(-np.clip(likelier, 0.0, 500.0))), 0.0)
    with np.errstate(over="ignore"):  # a count that does not stand out at all is not used
        return np.clip(1 - np.square(least) / np.maximum(np.square(odd), 1e-300), 0.0, 1.0)


def hidden_users(stddev: float, *, laplace: bool) -> int:
    """How many users of about one norm, far from all others, may be taken for noise.

    >>> hidden_users(10.0, laplace=False), hidden_users(10.0, laplace=True)
    (50, 140)
    """
    return math.ceil((_FAR_LAPLACE if laplace else _FAR["lengths"]) * stddev)


def _log_density(noise: Floats, stddev: float, laplace: bool) -> Floats:
    """Return the logarithm of how likely noise is, up to a constant."""
    scaled = noise / max(stddev, 1e-100)
    return np.asarray(-(math.sqrt(2) * np.abs(scaled) if laplace else np.square(scaled) / 2).sum(axis=-1))


def chance_of_nobody(noisy: Floats, stddev: float) -> float:
    """How likely it is that no class of norms has a user, rather than users of some shape; noise is Laplace noise."""
    shapes, _ = _shapes(len(noisy), "norms")
    gains = np.square(np.maximum(shapes @ noisy, 0.0)) / np.square(shapes).sum(axis=1)  # of the best fits over nobody
    return 1 / (1 + math.exp(min(float(gains.max()) / stddev**2 / 2, 700.0)) / _NONE)


def _octaves_beyond(fitted: Floats, shapes: Floats) -> Floats:
    """Return how far the middle of each shape is beyond the near classes."""
    middles = shapes @ np.arange(len(fitted)) / np.maximum(shapes.sum(axis=1), 1e-300)
    return np.asarray(np.maximum(middles - _last_near(fitted), 0.0))


def _last_near(fitted: Floats) -> int:
    return int(np.argmax(np.cumsum(fitted) >= 0.9 * fitted.sum())) + _REACH


def _least_odd(fitted: Floats, kind: Kind, far: float) -> Floats:
    """Return, for each class, by how many standard deviations a count must stand out."""
    beyond = np.arange(len(fitted)) - _last_near(fitted)
    if "norms" in kind:
        return np.clip(_NEAR[kind] + _PER_CLASS[kind] * beyond, _NEAR[kind], far)
    return np.where(beyond <= 0, _NEAR[kind], far)


@cache
def _shapes(classes: int, kind: Kind) -> tuple[Floats, Floats]:
    """Return distributions over the classes, and the logarithm of the prior weight of each.

    Whole norms have those over their classes, for users of a few rows, and those over their logarithm, which are finer.
    """
    if kind != "whole norms":
        return _shapes_over(classes, kind)
    each = _shapes_over(classes, "norms"), _shapes_over(classes, kind)
    return np.concatenate([each[0][0], each[1][0]]), np.concatenate([each[0][1], each[1][1]])


def _shapes_over(classes: int, kind: Kind) -> tuple[Floats, Floats]:
    """Return the same for one scale."""
    from scipy.special import ndtr

    sized, rough, whole = "sizes" in kind, kind == "rough sizes", kind == "whole norms"
    tails = (0.0, 1.0) if sized or whole else (0.0,)
    cuts = (np.inf, _CUT) if kind == "lengths" else (np.inf,)
    lefts = (*_LEFT, _LONG) if rough else (_NARROW, *_LEFT) if whole else _LEFT
    further = (_NARROW, *_FURTHER) if whole else _WIDE if kind == "norms" else ()
    rights = (*_RIGHT, *further)
    bounds, starts = _bounds(classes, whole=whole)
    middles, left, right, long, cut = (
        np.ravel(grid)[:, None] for grid in np.meshgrid(starts, lefts, rights, tails, cuts, indexing="ij")
    )
    ends = bounds - middles
    normal = np.minimum((2 * ndtr(ends / right) - 1) / (2 * ndtr(cut) - 1), 1.0)
    beyond = np.where(long > 0, -np.expm1(-np.maximum(ends, 0.0) / right), normal)
    halves = np.where(ends < 0, left * ndtr(ends / left), left / 2 + right / 2 * beyond)
    below = halves * 2 / (left + right)
    shapes = np.diff(np.concatenate([0 * middles, below, 0 * middles + 1], axis=1), axis=1)
    steep = np.maximum(middles + right - 3, 0.0)[:, 0] if sized else 0 * middles[:, 0]
    wide = np.maximum(right - (_LONGER if whole else _RIGHT[-1]), 0.0)[:, 0]
    heavy = rough * (_HEAVY * np.maximum(right - _LIGHT, 0.0) + _RARER * long)[:, 0]
    rare = (_RARE if sized else _RARER) * long[:, 0]
    kept = (long * right <= (_FINITE if whole else np.inf))[:, 0]
    return shapes[kept], (-_MODEST * steep - rare - _PER_WIDE * wide - heavy)[kept]


def _bounds(classes: int, *, whole: bool) -> tuple[Floats, Floats]:
    """Return where classes end, without the last, and the middles of shapes, in units of a class.

    Classes of whole norms begin with single numbers. Their ends are in half octaves, from the norm 1 on.
    """
    if not whole:
        return np.arange(1.0, classes), np.arange(-1, classes, 0.5)
    single = 2 * np.log2(np.arange(_WHOLE) + 1.5)
    return np.append(single, single[-1].round() + 1 + np.arange(classes - _WHOLE - 1)), np.arange(-2.0, classes)
