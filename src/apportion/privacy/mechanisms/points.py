"""The exponential mechanism on the line: it chooses a point in each of several cells, for quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounds import FloatArray
from apportion.privacy.budget import Share
from apportion.privacy.mechanisms.exponential import choose_exponential
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened
from apportion.privacy.noise import NoiseSource
from apportion.privacy.ranks import Base, Cell, RankScores

if TYPE_CHECKING:
    from apportion.privacy.statement import Release

_PARTS = 2.0**50  # the line is divided into this many parts, for points that are chosen on it


@dataclass(frozen=True)
class PointsOnLine(Mechanism[Share]):
    """Draws a point y of each cell with density `base` times exp(-deviation(y) / b), b = 2 sensitivity / ε: ε-DP.

    One user moves the scores of all cells together by at most their total sensitivity.

    Args:
        base: the public distribution that says where a point may be.
    """

    base: Base

    key = "exponential-on-the-line"
    takes = RankScores
    pure = True

    @property
    def words(self) -> str:
        """The name of the mechanism."""
        return "exponential, on the line"

    def sensitivity(self, statistic: RankScores) -> float:
        """Return the largest change of a score in each cell, summed over cells."""
        return statistic.total_sensitivity

    def scale(self, statistic: RankScores, share: Share) -> float:
        """Return b."""
        return 2 * statistic.total_sensitivity / share.pure_epsilon

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> list[float]:
        """Return one point for each cell."""
        return [choose_point(cell, 1 / scale, self.base, noise) for cell in opened.value]

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the largest difference in each cell, summed over cells."""
        return sum(_furthest(first, second) for first, second in zip(one, other, strict=True))

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return the log-density of the points, each in its cell."""
        pairs = zip(hidden, released, strict=True)
        return math.fsum(_log_density(cell, point, 1 / scale, self.base) for cell, point in pairs)

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return 2 sensitivity / ε, the scale at which deviations matter."""
        return 2 * release.sensitivity / release.epsilon if release.epsilon else None


def choose_point(cell: Cell, rate: float, base: Base, noise: NoiseSource) -> float:
    """Return a point y of a cell with probability proportional to that of `base` times exp(-rate · deviation(y)).

    Points lie on a public grid: the middle of each of 2⁵⁰ parts of the line that are equally likely under the base. A
    value counts from the start of its part, so the result is never one of the values and does not share its bits. First
    the interval between two neighbouring edges is drawn, by its number of points; then one of its points. A cell
    without points returns its lower end, which is public or released.
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


def _log_density(cell: Cell, point: float, rate: float, base: Base) -> float:
    masses = np.diff(np.asarray(base.cdf(cell.edges), np.float64))
    terms = np.log(masses[masses > 0]) - rate * cell.deviations[masses > 0]
    whole = float(np.logaddexp.reduce(terms))
    at = int(np.searchsorted(cell.edges[:-1], point, side="right")) - 1
    return -rate * float(cell.deviations[max(at, 0)]) - whole


def _furthest(one: Cell, other: Cell) -> float:
    """Return the largest difference of two step functions on the same cell, where both are defined."""
    points = np.union1d(one.edges[:-1], other.edges[:-1])
    return float(np.abs(_at(one, points) - _at(other, points)).max(initial=0.0))


def _at(cell: Cell, points: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.searchsorted(cell.edges[:-1], points, side="right") - 1
    return np.asarray(cell.deviations[places.clip(0)])
