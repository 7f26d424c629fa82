"""The exponential mechanism on a public list of points: the choice of a quantile among candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.privacy.bounds import FloatArray
from apportion.privacy.budget import Share
from apportion.privacy.mechanisms.exponential import choose_exponential
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened
from apportion.privacy.noise import NoiseSource
from apportion.privacy.ranks import Candidates, RankScores

if TYPE_CHECKING:
    from apportion.privacy.statement import Release


@dataclass(frozen=True)
class PointsOfList(Mechanism[Share]):
    """Draws candidate c with probability proportional to mass(c) · exp(-deviation(c) / b): ε-DP if b = 2 sensitivity/ε.

    Args:
        candidates: the public list, with its masses.
    """

    candidates: Candidates

    key = "exponential-on-a-list"
    takes = RankScores
    pure = True

    @property
    def words(self) -> str:
        """The name of the mechanism."""
        return "exponential, on a list"

    def sensitivity(self, statistic: RankScores) -> float:
        """Return the largest change of a score."""
        return statistic.total_sensitivity

    def scale(self, statistic: RankScores, share: Share) -> float:
        """Return b."""
        return 2 * statistic.total_sensitivity / share.pure_epsilon

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> float:
        """Return a candidate."""
        return float(self.candidates.points[choose_exponential(self._logits(opened.value, scale), 1.0, noise)])

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the largest difference of a deviation."""
        return float(np.abs(one[0].deviations - other[0].deviations).max(initial=0.0))

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return the logarithm of the candidate's probability."""
        logits = self._logits(hidden, scale)
        return float(logits[int(np.argmin(np.abs(self.candidates.points - released)))] - np.logaddexp.reduce(logits))

    def _logits(self, cells: Any, scale: float) -> FloatArray:
        return np.asarray(np.log(self.candidates.masses) - cells[0].deviations / scale)

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return 2 sensitivity / ε, the scale at which deviations are distinguished."""
        return 2 * release.sensitivity / release.epsilon if release.epsilon else None
