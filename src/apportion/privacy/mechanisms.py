"""The draws: Gaussian and Laplace noise on a sum, and the exponential mechanism's choice of an index or of a point.

These functions only draw. Who calls them has charged for the draw before (`Session`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounds import FloatArray
from apportion.privacy.noise import NoiseSource
from apportion.privacy.ranks import Base, Cell


def add_gaussian(value: NDArray[Any], stddev: float, scales: FloatArray | None, noise: NoiseSource) -> NDArray[Any]:
    """Return value + N(0, (stddev · scales)²), in the precision of value."""
    out = noise.normal(value.shape, value.dtype)
    out *= stddev if scales is None else (stddev * scales).astype(value.dtype)
    out += value
    return out


def add_laplace(value: NDArray[Any], scale: float, noise: NoiseSource) -> NDArray[Any]:
    """Return value + Laplace(scale) in every coordinate, by inverting the distribution function."""
    centred = noise.uniform(value.size).reshape(value.shape) - 0.5
    return np.asarray(value - scale * np.sign(centred) * np.log1p(-2 * np.abs(centred)))


def choose_exponential(scores: NDArray[Any], rate: float, noise: NoiseSource) -> int:
    """Return index k with probability proportional to exp(rate · scores[k]), by Gumbel noise."""
    gumbel = -np.log(-np.log(noise.uniform(scores.size)))
    return int(np.argmax(rate * scores.ravel() + gumbel))


def choose_point(cell: Cell, rate: float, base: Base, noise: NoiseSource) -> float:
    """Return a point y of a cell with density proportional to that of `base` times exp(-rate · deviation(y)).

    First the interval between two neighbouring edges, by its mass; then a point of it, by the base alone. A cell to
    which the base gives no mass has nothing to choose from: its lower end is returned.
    """
    levels = np.asarray(base.cdf(cell.edges), np.float64)
    masses = np.diff(levels)
    possible = np.flatnonzero(masses > 0)
    if not len(possible):
        return float(cell.edges[0])
    scores = np.log(masses[possible]) - rate * cell.deviations[possible]
    at = int(possible[choose_exponential(scores, 1.0, noise)])
    level = levels[at] + float(noise.uniform(1)[0]) * masses[at]
    return float(np.clip(np.asarray(base.ppf(np.array([level])), np.float64)[0], cell.edges[at], cell.edges[at + 1]))
