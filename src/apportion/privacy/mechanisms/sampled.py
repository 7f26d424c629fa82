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
    """Adds Gaussian noise to a sum over a random sample: each user takes part with the same probability, drawn afresh.

    Args:
        probability: the probability that a user is in a sample.
    """

    probability: float

    key = "sampled-gaussian"
    exact = True
    on_sample = True
    relations = (ADD_REMOVE, ADD_REMOVE_EXAMPLE)  # its accounting is for units that are added or removed

    def __post_init__(self) -> None:
        if not LEAST_PROBABILITY <= self.probability <= 1:
            raise BudgetError(f"Expected a probability from {LEAST_PROBABILITY} to 1, got {self.probability}.")

    @property
    def words(self) -> str:
        """The name of the mechanism and the probability."""
        return f"Gaussian on a Poisson sample of users (probability {self.probability:g})"

    def part(self, noise_multiplier: float, count: int) -> accounting.SampledGaussian:
        """Return `count` sampled Gaussian releases."""
        return accounting.SampledGaussian(noise_multiplier, self.probability, count)

    def mu(self, noise_multiplier: float) -> float:
        """Return the Gaussian-DP parameter of one release for a user who takes part."""
        return 1 / noise_multiplier

    def event(self, mus: tuple[float, ...], noise_multiplier: float, steps: int) -> SampledRun:
        """Return the run, with its Gaussian releases."""
        return SampledRun(mus, noise_multiplier, self.probability, steps)

    def sensitivity(self, statistic: BoundedSum) -> float:
        """Return the L2 sensitivity."""
        return statistic.l2_sensitivity

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        """Return the sum with noise, rounded to a public grid."""
        return draw_gaussian(opened, scale, noise)

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the L2 norm of the difference, with coordinates divided by their scales."""
        return scaled_distance(one, other, scales)

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return the log-density of a normal distribution around the hidden value of the same sample."""
        return -(scaled_distance(released, hidden, scales) ** 2) / (2 * scale**2)

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return sensitivity over the stated μ of one release."""
        return release.sensitivity / release.mu if release.mu else None
