"""The one door to a hidden sum, for audits. No module outside `auditing` imports it; a test holds that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounded_sum import _KEY, BoundedSum


def peek(statistic: BoundedSum) -> NDArray[Any]:
    """Return the raw value of a hidden sum as a float64 array."""
    return np.asarray(statistic._reveal(_KEY), dtype=np.float64)


def scaled_distance(statistic: BoundedSum, other: NDArray[Any]) -> float:
    """Return the distance of two sums in the metric in which the sensitivity is declared."""
    difference = peek(statistic) - other
    if statistic.scales is not None:
        difference = difference / statistic.scales
    return float(np.sqrt(np.square(difference).sum()))
