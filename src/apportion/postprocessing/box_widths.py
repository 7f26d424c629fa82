"""Half-widths of intervals where an error is noise for a box, and perhaps something normal beside it.

The noise in one of d coordinates is r s: r is a Gamma variable of shape d + 1, and s lies between -1 and 1 with
P(|s| > a) = (2 (1 - a) + (d - 1)(1 - a)²)/(d + 1) (docs/proofs/boxes.md).
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def box_widths(level: float, size: int, scale: Floats, normal: Floats) -> Floats:
    """Return about w with P(|error| ≤ w) = level; exact where one of the two parts is 0.

    Args:
        level: probability of each interval.
        size: number of coordinates that the noise was drawn for.
        scale: of the noise for a box.
        normal: standard deviation of what is normal beside it.

    >>> box_widths(0.95, 1, np.ones(1), np.zeros(1)).round(3)  # one coordinate: Laplace noise
    array([2.996])
    """
    return np.hypot(_unit_width(level, size) * scale, NormalDist().inv_cdf((1 + level) / 2) * normal)


@lru_cache(maxsize=64)
def _unit_width(level: float, size: int) -> float:
    from scipy.optimize import brentq

    most = 1.0
    while box_tail(most, size) > 1 - level:
        most *= 2
    return float(brentq(lambda width: box_tail(width, size) - (1 - level), 0.0, most, xtol=1e-9))


def box_tail(width: float, size: int) -> float:
    """Return P(|noise| > width) in one of so many coordinates, at a scale of 1."""
    from scipy.special import gammaincc

    beyond, first = gammaincc(size + 1, width), width * gammaincc(size, width) / size
    one_sided = beyond - first
    if size == 1:
        return float(one_sided)
    second = width**2 * gammaincc(size - 1, width) / (size * (size - 1))
    return float((2 * one_sided + (size - 1) * (beyond - 2 * first + second)) / (size + 1))
