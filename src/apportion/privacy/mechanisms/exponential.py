"""The exponential mechanism: it chooses an index by hidden scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import FloatArray
from apportion.privacy.budget import Share
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened
from apportion.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.statement import Release

_GUMBEL = math.pi / math.sqrt(6)  # standard deviation of a standard Gumbel variable


@dataclass(frozen=True)
class Exponential(Mechanism[Share]):
    """Chooses index k with probability proportional to exp(score_k / b), b = 2 sensitivity / ε: ε-DP.

    A single score moves by at most the L2 sensitivity of all of them.
    """

    key = "exponential"
    pure = True

    @property
    def words(self) -> str:
        """The name of the mechanism."""
        return "exponential"

    def sensitivity(self, statistic: BoundedSum) -> float:
        """Return how far any one score moves: at most the L2 sensitivity."""
        return statistic.l2_sensitivity

    def scale(self, statistic: BoundedSum, share: Share) -> float:
        """Return b."""
        return 2 * statistic.l2_sensitivity / share.pure_epsilon

    def stddev(self, statistic: BoundedSum, scale: float) -> float:
        """Return the standard deviation of the Gumbel noise on a score."""
        return _GUMBEL * scale

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> int:
        """Return an index; high scores are likely."""
        return choose_exponential(opened.value, 1 / scale, noise)

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the largest difference of a score."""
        difference = np.asarray(one, np.float64) - other
        return float(np.abs(difference if scales is None else difference / scales).max(initial=0.0))

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return the logarithm of the index's probability."""
        rates = np.ravel(hidden) / scale
        return float(rates[int(released)] - np.logaddexp.reduce(rates))

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return the standard deviation of Gumbel noise of scale 2 sensitivity / ε."""
        return _GUMBEL * 2 * release.sensitivity / release.epsilon if release.epsilon else None


def choose_exponential(scores: NDArray[Any], rate: float, noise: NoiseSource) -> int:
    """Return index k with probability proportional to exp(rate · scores[k]), by Gumbel noise."""
    gumbel = -np.log(-np.log(noise.uniform(scores.size)))
    return int(np.argmax(rate * scores.ravel() + gumbel))
