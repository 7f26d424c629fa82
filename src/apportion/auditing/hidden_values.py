"""The only access to hidden values, for audits. No module outside `auditing` imports it; a test checks that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.keys import KeyedSum, KeyedValues
from apportion.privacy.mechanisms import Mechanism, Statistic
from apportion.privacy.ranks import Cell, RankScores

Raw = NDArray[Any] | tuple[Cell, ...] | KeyedValues


def raw_value(statistic: BoundedSum) -> NDArray[Any]:
    """Return the raw value of a hidden sum as a float64 array."""
    return np.asarray(statistic._reveal(_KEY), dtype=np.float64)


def raw_steps(statistic: BoundedSum) -> NDArray[Any]:
    """Return a copy of a hidden sum as it is stored: in whole steps, if it has a step."""
    return np.array(statistic._reveal_steps(_KEY))


def raw_copy(statistic: Statistic) -> Raw:
    """Return a copy of what is hidden: a sum, the step functions of scores, or counts by key."""
    if isinstance(statistic, KeyedSum):
        return statistic._reveal(_KEY)
    if isinstance(statistic, RankScores):
        return tuple(Cell(cell.edges.copy(), cell.deviations.copy()) for cell in statistic._reveal(_KEY))
    return raw_value(statistic).copy()


def scales_of(statistic: Statistic) -> NDArray[Any] | None:
    """Return the relative noise of the coordinates of a sum; None if all are equal."""
    return statistic.scales if isinstance(statistic, BoundedSum) else None


def distance(statistic: Statistic, other: Raw, mechanism: Mechanism[Any]) -> float:
    """Return the distance of two hidden values, in the norm of the mechanism's sensitivity."""
    return mechanism.distance(raw_copy(statistic), other, scales_of(statistic))
