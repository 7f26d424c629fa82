"""Gaussian noise on the sum over a fresh Poisson sample of the users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from apportion.errors import BudgetError
from apportion.privacy import accounting
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import FloatArray
from apportion.privacy.ledger.events import SampledRun
from apportion.privacy.mechanisms.gaussian import draw_gaussian, scaled_distance
from apportion.privacy.mechanisms.mechanism import Opened, PlannedMechanism
from apportion.privacy.neighbours import ADD_REMOVE, ADD_REMOVE_EXAMPLE
from apportion.privacy.noise import NoiseSource
from apportion.privacy.sampling import LEAST_PROBABILITY

if TYPE_CHECKING:
    from apportion.privacy.statement import Release


@dataclass(frozen=True)
class SampledGaussian(PlannedMechanism):
    """Gaussian noise on a sum over users who each take part with the same probability, drawn afresh.

    Args:
        probability: with which a user is in a sample.
    """

    probability: float

    key = "sampled-gaussian"
    exact = True
    on_sample = True
    relations = (ADD_REMOVE, ADD_REMOVE_EXAMPLE)  # units that come and go are what its accounting is for

    def __post_init__(self) -> None:
        if not LEAST_PROBABILITY <= self.probability <= 1:
            raise BudgetError(f"Expected a probability from {LEAST_PROBABILITY} to 1, got {self.probability}.")

    @property
    def words(self) -> str:
        """Its name and the probability."""
        return f"Gaussian on a Poisson sample of users (probability {self.probability:g})"

    def part(self, noise_multiplier: float, count: int) -> accounting.SampledGaussian:
        """So many sampled Gaussian releases."""
        return accounting.SampledGaussian(noise_multiplier, self.probability, count)

    def mu(self, noise_multiplier: float) -> float:
        """The Gaussian-DP parameter of one release for a user who does take part."""
        return 1 / noise_multiplier

    def event(self, mus: tuple[float, ...], noise_multiplier: float, steps: int) -> SampledRun:
        """The run, with the Gaussian releases beside it."""
        return SampledRun(mus, noise_multiplier, self.probability, steps)

    def sensitivity(self, statistic: BoundedSum) -> float:
        """The L2 sensitivity."""
        return statistic.l2_sensitivity

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        """The sum with noise, rounded to a public grid."""
        return draw_gaussian(opened, scale, noise)

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """The L2 norm of the difference, coordinates divided by their scales."""
        return scaled_distance(one, other, scales)

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Of a normal distribution around the hidden value of the same sample."""
        return -(scaled_distance(released, hidden, scales) ** 2) / (2 * scale**2)

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Sensitivity over the stated μ of one release."""
        return release.sensitivity / release.mu if release.mu else None
