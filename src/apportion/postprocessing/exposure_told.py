"""What the statistics of a task say of its exposure, which popularity alone leaves uncertain at small budgets.

Residuals were taken around parameters c, so a round released t A (θ − c) and noise. If c is near θ, that is near 0
whatever the exposure t, and a task of uncertain exposure is known as well as any other. And t is how what was released
moved when c did, from round to round. Both follow from Bayes' rule over a grid of exposures. The model is that of
`empirical_bayes`, for the first coordinate alone: it says most of a task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.empirical_bayes import Evidence

Floats = NDArray[np.floating[Any]]

_STEPS = np.linspace(-3.5, 2.5, 13)  # logarithms of exposures that are considered, in units of their spread
_SPREADS = np.geomspace(0.002, 1.6, 12)  # variances among tasks that are considered
_USUAL_SPREAD = 0.1  # what they are usually; the logarithm is off by about 1
_UNTOLD_SPREAD = 0.17  # the mean of such variances
_SHAPES = 0.1, 1e6  # of the gamma distribution of an exposure, at least and at most


@dataclass(frozen=True)
class FirstKnown:
    """What was known of the first parameter of every task before its last statistics.

    Attributes:
        expected: its prior mean.
        spread: its prior variance, of all tasks.
        mean: its posterior mean.
        variance: its posterior variance.
        by_features: whether the prior mean was fitted with many features. Then it has followed the noise, and does not
            tell how large statistics should be.
    """

    expected: NDArray[np.float64]
    spread: float
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    by_features: bool = False


def with_likely_spread(evidence: Evidence, known: FirstKnown) -> FirstKnown:
    """Return what is known with the variance among tasks that the statistics of all of them make likely.

    EM approaches it slowly where noise is large. A variance that is far too large would make large statistics, which
    are noise, a sign of large exposures. After a fit with features, EM begins at the usual variance again, since
    features have taken up part of it, and of the noise.

    Args:
        evidence: of all rounds, with `around`.
        known: of the rounds before.
    """
    if evidence.around is None:
        return known
    if known.by_features:
        return replace(known, spread=_UNTOLD_SPREAD)
    logs = -np.square(np.log(_SPREADS / _USUAL_SPREAD)) / 2
    with np.errstate(all="ignore"):
        levels, chances = _levels(evidence)
        for k, spread in enumerate(_SPREADS):
            likely = _log_likelihood(evidence, evidence.around[:, 0], levels, replace(known, spread=float(spread)))
            most = likely.max(axis=1)
            logs[k] += float((np.log((chances * np.exp(likely - most[:, None])).sum(axis=1)) + most).sum())
        weights = np.exp(logs - logs.max())
        spread = float((weights * _SPREADS).sum() / weights.sum())
    return replace(known, spread=spread) if np.isfinite(spread) else known


def told(evidence: Evidence, known: FirstKnown) -> Evidence:
    """Return the evidence with exposures, and what their uncertainty adds to it, as the statistics tell them.

    An exposure is taken for gamma distributed, with the mean and the variance that popularity gives it. What is left of
    the uncertainty counts as far as the parameters are from those that residuals were taken around.

    Args:
        evidence: of all rounds, with `around`.
        known: of the rounds before.
    """
    if evidence.around is None:
        return evidence
    with np.errstate(all="ignore"):  # what is not finite changes nothing
        levels, chances = _levels(evidence)
        chances = _given(chances, _log_likelihood(evidence, evidence.around[:, 0], levels, known))
        exposure = (chances * levels).sum(axis=1)
        variance = np.maximum((chances * np.square(levels)).sum(axis=1) - np.square(exposure), 0.0)
        variance = variance * _apart(evidence, evidence.around[:, 0], known)
    good = np.isfinite(exposure) & np.isfinite(variance)
    exposure = np.where(good, exposure, evidence.exposure)
    statistics = evidence.statistics + (exposure - evidence.exposure)[:, None] * evidence.around
    variance = np.where(good, variance, evidence.exposure_variance)
    return replace(evidence, statistics=statistics, exposure=exposure, exposure_variance=variance)


def _levels(evidence: Evidence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the exposures that are considered for every task, and how likely they are from popularity."""
    shapes = np.clip(np.square(evidence.exposure) / np.maximum(evidence.exposure_variance, 1e-12), *_SHAPES)
    logs = np.sqrt(np.log1p(1 / shapes))[:, None] * _STEPS
    levels = np.exp(logs)
    densities = shapes[:, None] * (logs - levels)  # logarithms of a gamma density, times the steps between levels
    chances = _given(np.ones_like(levels), densities)
    means = (chances * levels).sum(axis=1, keepdims=True)
    return np.asarray(evidence.exposure[:, None] * (levels / means)), chances


def _given(chances: Floats, logs: Floats) -> NDArray[np.float64]:
    """Return chances after these logarithms of likelihoods; they sum to 1 for every task."""
    found = chances * np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _log_likelihood(evidence: Evidence, around: Floats, levels: Floats, known: FirstKnown) -> NDArray[np.float64]:
    """Return how likely each exposure makes the first statistic of every task."""
    slope = float(evidence.design[0, 0])
    shifted = evidence.statistics[:, :1] + (levels - evidence.exposure[:, None]) * around[:, None]
    surprise = shifted - levels * (slope * known.expected)[:, None]
    variance = np.square(levels * slope) * known.spread + evidence.sampling[:, None] * slope
    variance = variance + evidence.noise_variance[0]
    moved: Floats = np.zeros(levels.shape)
    if evidence.moves is not None:
        moved = 2 * levels * evidence.moves[:, :1] + np.square(levels) * evidence.moves[:, 1:]
    if known.by_features:
        return np.asarray(-0.5 * moved)
    return np.asarray(-0.5 * (np.log(variance) + np.square(surprise) / variance + moved))


def _apart(evidence: Evidence, around: Floats, known: FirstKnown) -> NDArray[np.float64]:
    """Return how far parameters are from those that residuals were around, squared: a part of their prior variance."""
    centres = around / evidence.design[0, 0]
    apart = (np.square(known.mean - centres) + known.variance) / known.spread
    return np.asarray(np.minimum(apart, 1.0))
