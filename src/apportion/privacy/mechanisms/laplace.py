"""Laplace noise on a sum, scaled to its L1 sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import FloatArray
from apportion.privacy.budget import Share
from apportion.privacy.mechanisms.grid import UPWARDS, finer_steps, on_grid
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened
from apportion.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.statement import Release


@dataclass(frozen=True)
class Laplace(Mechanism[Share]):
    """Adds Laplace noise of scale b = L1 sensitivity / ε to every coordinate: ε-DP."""

    key = "laplace"
    pure = True
    exact = True

    @property
    def words(self) -> str:
        """The name of the mechanism."""
        return "Laplace"

    def sensitivity(self, statistic: BoundedSum) -> float:
        """Return the L1 sensitivity."""
        return statistic.l1_sensitivity

    def scale(self, statistic: BoundedSum, share: Share) -> float:
        """Return b."""
        return statistic.l1_sensitivity / share.pure_epsilon

    def stddev(self, statistic: BoundedSum, scale: float) -> float:
        """Return √2 b."""
        return scale * math.sqrt(2)

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        """Return the sum with noise, rounded to a public grid."""
        return draw_laplace(opened, scale, noise)

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the L1 norm of the difference."""
        return float(np.abs(np.asarray(one, np.float64) - other).sum())

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return the log-density of independent Laplace variables around the hidden value."""
        return -self.distance(released, hidden, scales) / scale

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return √2 times sensitivity over ε."""
        return math.sqrt(2) * release.sensitivity / release.epsilon if release.epsilon else None


def draw_laplace(opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
    """Return the sum with Laplace noise, in exact arithmetic if the value counts steps of a lattice."""
    if opened.step is None:
        return add_laplace(opened.value, scale, noise)
    return add_exact_laplace(opened.value, opened.step, scale, noise)


def add_laplace(value: NDArray[Any], scale: float, noise: NoiseSource) -> NDArray[Any]:
    """Return value + Laplace(scale) in every coordinate, by inverting the distribution function."""
    centred = noise.uniform(value.size).reshape(value.shape) - 0.5
    return on_grid(np.asarray(value - scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))), scale)


def add_exact_laplace(counts: NDArray[np.int64], step: float, scale: float, noise: NoiseSource) -> NDArray[Any]:
    """Return counts · step + Laplace(scale) in every coordinate, rounded to a grid, with no other error."""
    shift = finer_steps(step, scale)
    grid = math.ldexp(step, shift)
    return np.asarray(linalg.add_rounded_laplace(counts, shift, scale / grid * UPWARDS, noise.key()) * grid)
