"""The draws: Gaussian and Laplace noise on a sum, and the exponential mechanism's choice of an index or of a point.

These functions only draw. Who calls them has charged for the draw before (`Session`).

A sum with noise is rounded to a grid a millionth as fine as the noise. The last bits of a floating-point sum tell what
was added to what: without the grid a likelihood-ratio audit of Laplace releases found an ε of 3.5 where 2 was claimed.
The grid is public, and coarse beside the rounding of numbers that are not much larger than their noise.

The exact forms take sums in whole steps of a lattice and return what the same mechanism on real numbers would, rounded
to a public grid, without any error in between (docs/proofs/exact.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.privacy.bounds import FloatArray
from apportion.privacy.noise import NoiseSource
from apportion.privacy.ranks import Base, Cell

_FINER = 20  # powers of two from the scale of the noise to the grid of what is released
_UPWARDS = 1 + 2.0**-48  # quotients and products of a few float64 numbers are below the true ones by less
_PARTS = 2.0**50  # of the line, for points that are chosen on it


def add_gaussian(value: NDArray[Any], stddev: float, scales: FloatArray | None, noise: NoiseSource) -> NDArray[Any]:
    """Return value + N(0, (stddev · scales)²), in the precision of value."""
    out = noise.normal(value.shape, value.dtype)
    out *= stddev if scales is None else (stddev * scales).astype(value.dtype)
    out += value
    return on_grid(out, stddev if scales is None else stddev * float(scales.min()))


def add_laplace(value: NDArray[Any], scale: float, noise: NoiseSource) -> NDArray[Any]:
    """Return value + Laplace(scale) in every coordinate, by inverting the distribution function."""
    centred = noise.uniform(value.size).reshape(value.shape) - 0.5
    return on_grid(np.asarray(value - scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))), scale)


def add_exact_gaussian(
    counts: NDArray[np.int64], step: float, stddev: float, scales: FloatArray | None, noise: NoiseSource
) -> NDArray[Any]:
    """Return counts · step + N(0, (stddev · scales)²), rounded to a grid, with no other error."""
    spread = np.array([1.0]) if scales is None else np.asarray(scales, np.float64)
    shift = _finer_steps(step, stddev * float(spread.min()))
    grid = math.ldexp(step, shift)
    drawn = linalg.add_rounded_normals(counts, shift, stddev * spread / grid * _UPWARDS, noise.key())
    return np.asarray(drawn * grid)


def add_exact_laplace(counts: NDArray[np.int64], step: float, scale: float, noise: NoiseSource) -> NDArray[Any]:
    """Return counts · step + Laplace(scale) in every coordinate, rounded to a grid, with no other error."""
    shift = _finer_steps(step, scale)
    grid = math.ldexp(step, shift)
    return np.asarray(linalg.add_rounded_laplace(counts, shift, scale / grid * _UPWARDS, noise.key()) * grid)


def _finer_steps(step: float, scale: float) -> int:
    """By which power of two the grid of what is released is coarser than the lattice of the sums."""
    return min(max(math.floor(math.log2(scale)) - _FINER - round(math.log2(step)), 0), 52)


def on_grid(values: NDArray[Any], scale: float) -> NDArray[Any]:
    """Round to multiples of a power of two, about 2⁻²⁰ of the noise's scale; in place."""
    step = 2.0 ** (math.floor(math.log2(scale)) - _FINER)
    values /= step  # exact, as the next product is
    np.rint(values, out=values)
    values *= step
    return values


def choose_exponential(scores: NDArray[Any], rate: float, noise: NoiseSource) -> int:
    """Return index k with probability proportional to exp(rate · scores[k]), by Gumbel noise."""
    gumbel = -np.log(-np.log(noise.uniform(scores.size)))
    return int(np.argmax(rate * scores.ravel() + gumbel))


def choose_point(cell: Cell, rate: float, base: Base, noise: NoiseSource) -> float:
    """Return a point y of a cell with probability proportional to that of `base` times exp(-rate · deviation(y)).

    Points lie on a public grid: the middle of each of 2⁵⁰ parts of the line that are equally likely under the base. A
    value counts from the beginning of its part on. So what comes out is never one of the values, nor has its bits.
    First the interval between two neighbouring edges is drawn, by its number of points; then one of them. A cell
    without points has nothing to choose from: its lower end is returned, which is public or released.
    """
    places = np.floor(np.asarray(base.cdf(cell.edges), np.float64).clip(0, 1) * _PARTS).astype(np.int64)
    places = np.maximum.accumulate(places)
    numbers = np.diff(places)
    possible = np.flatnonzero(numbers > 0)
    if not len(possible):
        return float(cell.edges[0])
    scores = np.log(numbers[possible]) - rate * cell.deviations[possible]
    at = int(possible[choose_exponential(scores, 1.0, noise)])
    step = min(int(float(noise.uniform(1)[0]) * int(numbers[at])), int(numbers[at]) - 1)
    level = np.array([(int(places[at]) + step + 0.5) / _PARTS])
    return float(np.clip(np.asarray(base.ppf(level), np.float64)[0], cell.edges[0], cell.edges[-1]))
