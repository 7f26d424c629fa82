"""Gaussian noise on a sum, scaled to its L2 sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion import linalg
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import FloatArray
from apportion.privacy.budget import Share
from apportion.privacy.mechanisms.grid import UPWARDS, finer_steps, grid_of, on_grid
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened
from apportion.privacy.noise import KeyedNoise, NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.statement import Release

_PIECE = 2**15


@dataclass(frozen=True)
class Gaussian(Mechanism[Share]):
    """Adds noise N(0, (σ · scales)²) with σ = L2 sensitivity / μ: exactly μ-GDP."""

    key = "gaussian"
    exact = True
    in_shares = True

    @property
    def words(self) -> str:
        """The name of the mechanism."""
        return "Gaussian"

    def sensitivity(self, statistic: BoundedSum) -> float:
        """Return the L2 sensitivity, in the metric that the statistic's scales define."""
        return statistic.l2_sensitivity

    def scale(self, statistic: BoundedSum, share: Share) -> float:
        """Return σ, the standard deviation where scales are 1."""
        return statistic.l2_sensitivity / share.mu

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        """Return the sum with noise, rounded to a public grid.

        If clients draw the noise, return the sum that they form.
        """
        return draw_gaussian(opened, scale, noise) if opened.drawn is None else np.asarray(opened.drawn(scale))

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the L2 norm of the difference, with coordinates divided by their scales."""
        return scaled_distance(one, other, scales)

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return the log-density of a normal distribution around the hidden value."""
        return -(scaled_distance(released, hidden, scales) ** 2) / (2 * scale**2)

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return sensitivity over μ."""
        return release.sensitivity / release.mu if release.mu else None


def draw_gaussian(opened: Opened, stddev: float, noise: NoiseSource) -> NDArray[Any]:
    """Return the sum with Gaussian noise, in exact arithmetic if the value counts steps of a lattice."""
    if opened.step is None:
        return add_gaussian(opened.value, stddev, opened.scales, noise, opened.dtype, opened.room)
    return add_exact_gaussian(opened.value, opened.step, stddev, opened.scales, noise)


def add_gaussian(
    value: NDArray[Any] | linalg.MostlyZero,
    stddev: float,
    scales: FloatArray | None,
    noise: NoiseSource,
    dtype: np.dtype[Any] | None = None,
    room: Callable[[int, DTypeLike], NDArray[Any]] | None = None,
) -> NDArray[Any]:
    """Return value + N(0, (stddev · scales)²), in the precision of value; rounded to `dtype` at the end, if given.

    `room` makes the vector that the result may be in, if the value is one.
    """
    step, inverts = grid_of(stddev)
    if scales is None and inverts and value.dtype == np.float64 and isinstance(noise, KeyedNoise) and noise.plain:
        kind = dtype or np.float64
        into = () if room is None else (room(value.shape[0], kind),)
        return noise.added_to(value, stddev, step, kind, *into)  # the same numbers in one pass
    drawn = _in_several_passes(np.asarray(value), stddev, scales, noise)
    return drawn if dtype is None else drawn.astype(dtype, copy=False)


def _in_several_passes(
    value: NDArray[Any], stddev: float, scales: FloatArray | None, noise: NoiseSource
) -> NDArray[Any]:
    out = noise.normal(value.shape, value.dtype)
    if scales is not None:
        out *= (stddev * scales).astype(value.dtype)
        out += value
        return on_grid(out, stddev * float(scales.min()))
    flat, values = np.ascontiguousarray(out).reshape(-1), value.reshape(-1)
    for first in range(0, flat.size, _PIECE):  # each piece stays in the cache while several operations pass over it
        piece = flat[first : first + _PIECE]
        piece *= stddev
        piece += values[first : first + _PIECE]
        on_grid(piece, stddev)
    return flat.reshape(value.shape)


def add_exact_gaussian(
    counts: NDArray[np.int64], step: float, stddev: float, scales: FloatArray | None, noise: NoiseSource
) -> NDArray[Any]:
    """Return counts · step + N(0, (stddev · scales)²), rounded to a grid, with no other error."""
    spread = np.array([1.0]) if scales is None else np.asarray(scales, np.float64)
    shift = finer_steps(step, stddev * float(spread.min()))
    grid = math.ldexp(step, shift)
    drawn = linalg.add_rounded_normals(counts, shift, stddev * spread / grid * UPWARDS, noise.key())
    return np.asarray(drawn * grid)


def scaled_distance(one: Any, other: Any, scales: FloatArray | None) -> float:
    """Return the L2 norm of the difference, with coordinates divided by their scales."""
    difference = np.asarray(one, np.float64) - other
    return float(np.sqrt(np.square(difference if scales is None else difference / scales).sum()))
