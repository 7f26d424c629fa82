"""Totals and means of groups, shrunk towards what all groups have in common, by empirical Bayes.

*Totals.* y_g = x_g + noise of a known variance, x_g ~ N(m, t²): the posterior mean is m + B (y_g - m) with
B = t²/(t² + v). m and t² are fitted to all groups, and the variance says how well (Morris, 1983).

*Means.* A group has a noisy top, Σ w (z - centre), and a noisy bottom, Σ w. With d_g = mean - centre ~ N(d, t²) and a
bottom of posterior mean n and variance v, the best linear predictor of d_g from its top T is

    d + n t² (T - n d) / (n² t² + v (d² + t²) + variance of T),

which needs no ratio of noisy numbers. If a group's bottom is not known, the prediction is d. Groups with few users
differ more than large ones, so t² is the sum of a common part and a part that falls with the size.

The interval of a shrunk number contains the true number with the probability of the level, on average over groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.popularity import posterior_popularity

Floats = NDArray[np.float64]

_FEWEST = 5  # with fewer groups, nothing is shrunk
_CLEAR = 8.0  # a noisy number above this many standard deviations is used unchanged
_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Numbers of groups.

    Attributes:
        values: the estimates.
        stddev: the standard deviation of the error of each.
        of_noise: the standard deviation of the part of the error that is noise.
    """

    values: Floats
    stddev: Floats
    of_noise: Floats


def shrunk_totals(noisy: Floats, stddev: float, *, shrink: bool = True, common: float = 0.0) -> Shrunk:
    """Totals of groups from noisy ones.

    Args:
        noisy: the totals.
        stddev: of the noise in each.
        shrink: whether groups borrow from one another.
        common: share of the noise's variance that all groups have in common, so that they differ less by it.
    """
    groups, shared, variance = len(noisy), common * stddev**2, (1 - common) * stddev**2
    if groups < _FEWEST or not shrink:
        return Shrunk(noisy, np.full(groups, stddev), np.full(groups, stddev))
    middle = float(noisy.mean())
    spread = float(np.square(noisy - middle).sum()) / (groups - 3)
    taken = (groups - 3) / (groups - 1) * min(variance / max(spread, 1e-300), 1.0)  # 1 - B
    apart = noisy - middle
    known = shared + variance * (1 - taken * (groups - 1) / groups) + 2 / (groups - 3) * np.square(taken * apart)
    noise = np.full(groups, (shared + (1 - taken) ** 2 * variance) ** 0.5)
    return Shrunk(middle + (1 - taken) * apart, np.sqrt(known), noise)


def positive_totals(noisy: Floats, stddev: float, ceiling: float) -> Shrunk:
    """Estimate totals that are above 0, without assuming a distribution over groups. Clear totals are unchanged."""
    if not len(noisy):
        return Shrunk(noisy, noisy, noisy)
    posterior = posterior_popularity(noisy, stddev, max(ceiling, stddev))
    clear = noisy > _CLEAR * stddev
    mean, variance = np.where(clear, noisy, posterior.mean), np.where(clear, stddev**2, posterior.variance)
    known = np.sqrt(np.maximum(variance, 1e-12 * stddev**2))
    return Shrunk(np.maximum(mean, 1e-6 * stddev), known, known)


def shrunk_means(top: Floats, top_stddev: float, bottom: Shrunk, of_one: float = 0.0, *, shrink: bool = True) -> Shrunk:
    """Return distances of groups' means from the centre.

    Args:
        top: noisy sums of distances.
        top_stddev: the standard deviation of their noise.
        bottom: the sizes of the groups.
        of_one: variance of the mean of a group of size 1 by chance alone.
        shrink: whether groups borrow from one another.
    """
    sizes, doubts = bottom.values, np.square(bottom.stddev)
    if len(top) < _FEWEST or not shrink:
        ratios = top / sizes
        noise = np.sqrt(top_stddev**2 + doubts * np.square(ratios)) / sizes
        return Shrunk(ratios, noise, noise)
    variance = top_stddev**2
    chance = of_one / np.maximum(sizes, 1.0)
    middle, common, doubt = _fitted(top, variance, sizes, doubts, chance)
    spread = common + chance
    trust = sizes * spread / (np.square(sizes) * spread + doubts * (middle**2 + spread) + variance)
    found = middle + trust * (top - sizes * middle)
    feared = spread + doubt  # for the error, the spread of groups is deliberately overestimated
    # squared distances from the centre; outliers use their own
    squares = np.maximum(np.square(found), middle**2 + feared)
    alike = (1 - trust * sizes) ** 2 * (feared + _variance_of_middle(variance, sizes, doubts, middle, spread))
    noise = np.square(trust) * (doubts * squares + variance)
    return Shrunk(found, np.sqrt(alike + noise), np.sqrt(noise))


def _fitted(top: Floats, variance: float, sizes: Floats, doubts: Floats, chance: Floats) -> tuple[float, float, float]:
    """Estimate d, the common part of t², and its standard error, by moments. Precise groups weigh more."""
    spread, told = 0.0, 1.0
    middle = float(top.sum() / sizes.sum())
    for _ in range(_ROUNDS):
        noise = doubts * middle**2 + variance + (np.square(sizes) + doubts) * chance
        weights = 1 / np.square(np.square(sizes) * spread + doubts * spread + noise)
        middle = float((np.sqrt(weights) * sizes * top).sum() / (np.sqrt(weights) * np.square(sizes)).sum())
        excess = np.square(top - sizes * middle) - noise
        told = float((weights * np.square(np.square(sizes) + doubts)).sum())
        estimate = float((weights * (np.square(sizes) + doubts) * excess).sum()) / told
        spread = max(estimate, 0.0)
    return middle, spread, (2 / told) ** 0.5


def _variance_of_middle(variance: float, sizes: Floats, doubts: Floats, middle: float, spread: Floats) -> float:
    noise = (np.square(sizes) + doubts) * spread + doubts * middle**2 + variance
    return 1 / float((np.square(sizes) / noise).sum())


def listed_totals(noisy: Floats, stddev: float, threshold: float, ceiling: float) -> Floats:
    """Return totals of groups that are known because their noisy total passed a threshold."""
    if not len(noisy):
        return noisy
    posterior = posterior_popularity(noisy, stddev, max(ceiling, stddev), threshold)
    clear = noisy > threshold + _CLEAR * stddev
    return np.asarray(np.where(clear, noisy, posterior.mean))
