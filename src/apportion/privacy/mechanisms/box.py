"""Noise for a sum whose parts lie in a box: every user adds between 0 and Δ to every coordinate.

The norm of a difference z is its range with 0: g(z) = max(z, 0) - min(z, 0), over all coordinates. One user moves the
sum by at most Δ in it, in however many coordinates. Noise of density proportional to exp(-ε g(z)/Δ) is the K-norm
mechanism of that norm (Hardt and Talwar, 2010). Its standard deviation in each of d coordinates is
√((d + 2)(d + 3)/6) Δ/ε; Laplace noise for the L1 bound d Δ has √2 d Δ/ε (docs/proofs/boxes.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import FloatArray
from apportion.privacy.budget import Share
from apportion.privacy.mechanisms.grid import on_grid
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened
from apportion.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.statement import Release


COMMON: Final = 0.5  # of the variance in one coordinate, its covariance with any other


def unit_stddev(size: int) -> float:
    """Standard deviation of the noise in each of so many coordinates, at a scale of 1.

    >>> round(unit_stddev(1) ** 2, 9), round(unit_stddev(6) ** 2, 9)  # one coordinate: Laplace noise
    (2.0, 12.0)
    """
    return math.sqrt((size + 2) * (size + 3) / 6)


@dataclass(frozen=True)
class Box(Mechanism[Share]):
    """Adds noise of density exp(-g(z)/b) up to a constant, b = box sensitivity / ε: ε-DP."""

    key = "box"
    pure = True

    @property
    def words(self) -> str:
        """Its name."""
        return "K-norm of a box"

    def sensitivity(self, statistic: BoundedSum) -> float:
        """Return the largest number that one user adds to a coordinate, none being negative."""
        return statistic.box_sensitivity

    def scale(self, statistic: BoundedSum, share: Share) -> float:
        """Return b."""
        return statistic.box_sensitivity / share.pure_epsilon

    def stddev(self, statistic: BoundedSum, scale: float) -> float:
        """Return √((d + 2)(d + 3)/6) b."""
        return scale * unit_stddev(statistic.size)

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        """Return the sum with noise, rounded to a public grid."""
        value = np.asarray(opened.value, np.float64)
        return on_grid(value + scale * drawn_range(value.size, noise).reshape(value.shape), scale)

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the range of the difference with 0."""
        apart = np.asarray(one, np.float64) - other
        return float(max(apart.max(initial=0.0), 0.0) - min(apart.min(initial=0.0), 0.0))

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return minus the distance over b."""
        return -self.distance(released, hidden, scales) / scale

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return what sensitivity over ε requires for the shape that was released."""
        return (
            unit_stddev(math.prod(release.shape)) * release.sensitivity / release.epsilon if release.epsilon else None
        )


def drawn_range(size: int, noise: NoiseSource) -> NDArray[np.float64]:
    """Draw z of density proportional to exp(-g(z)): a radius, a Gamma variable, times a uniform point of {g ≤ 1}.

    With a further coordinate that is 0, g is the range of all. One of the size + 1 coordinates, each as likely, is the
    least; the others lie uniformly above it, by up to 1.
    """
    drawn = noise.uniform(2 * size + 3)
    radius = -np.log(drawn[: size + 1]).sum()
    above = drawn[size + 1 : -1].copy()
    above[int(drawn[-1] * (size + 1))] = 0.0
    return np.asarray(radius * (above[1:] - above[0]))
