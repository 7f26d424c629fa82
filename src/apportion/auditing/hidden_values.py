"""The one way to hidden values, for audits. No module outside `auditing` imports it; a test holds that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.ranks import Cell, RankScores

Raw = NDArray[Any] | tuple[Cell, ...]


def raw_value(statistic: BoundedSum) -> NDArray[Any]:
    """Return the raw value of a hidden sum as a float64 array."""
    return np.asarray(statistic._reveal(_KEY), dtype=np.float64)


def raw_steps(statistic: BoundedSum) -> NDArray[Any]:
    """Return a copy of a hidden sum as it is held: in whole numbers of its step, where it has one."""
    return np.array(statistic._reveal_steps(_KEY))


def raw_copy(statistic: BoundedSum | RankScores) -> Raw:
    """Return a copy of what is hidden: a sum, or the step functions of scores."""
    if isinstance(statistic, RankScores):
        return tuple(Cell(cell.edges.copy(), cell.deviations.copy()) for cell in statistic._reveal(_KEY))
    return raw_value(statistic).copy()


def distance(statistic: BoundedSum | RankScores, other: Raw, mechanism: str) -> float:
    """Return how far apart two hidden values are, in the metric in which the mechanism needs its sensitivity."""
    if isinstance(statistic, RankScores):
        assert isinstance(other, tuple)
        return sum(_furthest(one, two) for one, two in zip(statistic._reveal(_KEY), other, strict=True))
    difference = raw_value(statistic) - other
    if mechanism == "Laplace":
        return float(np.abs(difference).sum())
    if statistic.scales is not None:
        difference = difference / statistic.scales
    if mechanism == "exponential":
        return float(np.abs(difference).max(initial=0.0))
    return float(np.sqrt(np.square(difference).sum()))


def _furthest(one: Cell, other: Cell) -> float:
    """The largest difference of two step functions on the same cell, where both are defined."""
    points = np.union1d(one.edges[:-1], other.edges[:-1])
    return float(np.abs(_at(one, points) - _at(other, points)).max(initial=0.0))


def _at(cell: Cell, points: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.searchsorted(cell.edges[:-1], points, side="right") - 1
    return np.asarray(cell.deviations[places.clip(0)])
