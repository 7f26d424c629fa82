"""The posterior of the true popularity given a noisy one, and how much evidence a weighted sum then holds per task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.places import PROCESSORS, Place

Floats = NDArray[np.floating[Any]]

_GRID, _STEPS = 80, 60
_LEAST = 1e-9  # relative to the least popularity on the grid: the value for a popularity released far below 0


@dataclass(frozen=True)
class Popularity:
    """Posterior mean and variance of each task's weighted popularity Σ_j 1/√n^j."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


def posterior_popularity(
    noisy: Floats,
    stddev: float,
    ceiling: float,
    threshold: float = -math.inf,
    spared: Any = False,
    place: Place = PROCESSORS,
) -> Popularity:
    """Deconvolve released counts: fit their distribution over tasks, return each task's posterior.

    The prior is a discrete distribution on a geometric grid from 0 to `ceiling`, fitted by maximum likelihood (EM)
    over all tasks (Kiefer-Wolfowitz), so a long tail is found if there is one, without assumptions on its shape.

    Args:
        noisy: released counts.
        stddev: standard deviation of their noise.
        ceiling: no task is more popular than this (a released number of users).
        threshold: what a count had to reach to be released at all. The likelihood is then conditional on passing it,
            and the distribution is over the tasks that passed.
        spared: which counts did not have to reach it.
        place: where to compute.

    Returns:
        Means above 0, whatever was released.
    """
    smallest = min(0.02 * max(stddev, 1.0), 0.1)
    grid = np.concatenate([[0.0], np.geomspace(smallest, max(ceiling, 10 * smallest), _GRID)])
    points, functions = place.placed(grid), place.functions
    logs = -0.5 * functions.square((place.placed(np.asarray(noisy, np.float64))[:, None] - points) / stddev)
    if math.isfinite(threshold):
        passed = np.array([_log_normal((value - threshold) / stddev) for value in grid])
        logs -= place.placed(np.where(np.broadcast_to(spared, len(noisy))[:, None], 0.0, passed))
    likelihood = functions.exp(logs - functions.amax(logs, axis=1, keepdims=True))
    prior = place.placed(np.full(len(grid), 1 / len(grid)))
    for _ in range(_STEPS):  # the mean over tasks of a task's distribution over the grid
        prior = prior * ((1 / (likelihood @ prior)) @ likelihood) / len(noisy) + 1e-3 / len(grid)
        prior /= prior.sum()
    joint = likelihood * prior
    posterior = joint / joint.sum(axis=1, keepdims=True)
    mean = np.maximum(place.back(posterior @ points), _LEAST * smallest)
    return Popularity(mean, np.maximum(place.back(posterior @ points**2) - mean**2, 0.0))


def _log_normal(x: float) -> float:
    """Return log Φ(x), by the tail of Φ where Φ(x) would underflow."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / (x * x))


@dataclass(frozen=True)
class Exposure:
    """The total weight that users put on each task, estimated from released popularity.

    With w_ij = ω_i / √(Σ_{i' of j} ω_i'²) and r² the popularity-weighted mean of ω², a user of n^j tasks has about
    w_ij = ω_i / (r √n^j), so that Σ_j w_ij = ω_i popularity_i / r.

    Attributes:
        total: estimate of Σ_j w_ij.
        variance: its variance, from the noise in popularity.
        squares: estimate of Σ_j w_ij², which sums to the number of users.
    """

    total: NDArray[np.float64]
    variance: NDArray[np.float64]
    squares: NDArray[np.float64]


def exposure(popularity: Popularity, total: Floats, typical: Floats, n_users: float) -> Exposure:
    """Estimate exposure from the sum of the weights and the typical weight of every task.

    Args:
        popularity: estimated popularity under the equal split.
        total: approximate Σ_j w_ij.
        typical: approximate weight of one observation, up to a factor common to all tasks.
        n_users: the number of users; the squared weights of each sum to 1.
    """
    squares = total * typical
    variance = np.square(total / popularity.mean) * popularity.variance
    return Exposure(np.asarray(total, np.float64), variance, squares * (n_users / squares.sum()))


def log_popularity(popularity: Popularity) -> NDArray[np.float64]:
    """Return standardised log popularity, a covariate for priors: rare and popular tasks are liked differently."""
    logs = np.log(popularity.mean + 0.05 * popularity.mean.mean())
    centred = logs - logs.mean()
    return np.asarray(centred / max(float(centred.std()), 1e-9))
