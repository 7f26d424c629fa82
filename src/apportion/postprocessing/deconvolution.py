"""Nonnegative totals of many groups from noisy totals, whatever their distribution over groups.

The prior is a discrete distribution on a grid, fitted to all groups by a few steps of EM (Kiefer and Wolfowitz, 1956).
After few steps it is still smooth, so its posteriors are not too narrow. Estimates are posterior means, and intervals
lie between posterior quantiles. A total far above its noise is used unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.mixed_widths import mixed_widths

Floats = NDArray[np.float64]

FEWEST = 100  # with fewer groups, a prior of any shape cannot be fitted
# a total is clear from this many deviations on; deviations that the grid covers beyond that; its points per deviation
_CLEAR, _BEYOND, _PER = 8, 4, 4
_STEPS, _FLOOR = 10, 1e-3


@dataclass(frozen=True, eq=False)
class Deconvolved:
    """Posteriors of totals.

    Attributes:
        noisy: the noisy totals.
        stddev: the standard deviation of their noise.
        laplace: whether the noise is Laplace noise.
        grid: the values that a total may have.
        posterior: the posterior of each group over the grid.
    """

    noisy: Floats
    stddev: float
    laplace: bool
    grid: Floats
    posterior: Floats

    @property
    def values(self) -> Floats:
        """The posterior means; clear totals are unchanged."""
        return np.asarray(np.where(self._clear, self.noisy, self.posterior @ self.grid))

    def ends(self, level: float) -> Floats:
        """Return both ends of the interval in which each total lies with this posterior probability."""
        low, high = self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)
        one = np.array([self.stddev])
        reach = float(mixed_widths(level, one, one * self.laplace)[0])
        low, high = np.where(self._clear, self.noisy - reach, low), np.where(self._clear, self.noisy + reach, high)
        return np.asarray(np.maximum(np.stack([low, high], axis=-1), 0.0))

    def _quantile(self, rank: float) -> Floats:
        """Return a quantile of every posterior. The mass of a point is spread over the cell around it."""
        below = np.cumsum(self.posterior, axis=1)
        place, each = (below >= rank - 1e-12).argmax(axis=1), np.arange(len(below))
        inside = (rank - below[each, place]) / np.maximum(self.posterior[each, place], 1e-300) + 0.5
        return np.asarray(self.grid[place] + np.clip(inside, -0.5, 0.5) * (self.grid[1] - self.grid[0]))

    @property
    def _clear(self) -> NDArray[np.bool_]:
        return np.asarray(self.noisy > _CLEAR * self.stddev)


def deconvolved_totals(noisy: Floats, stddev: float, *, laplace: bool = False) -> Deconvolved:
    """Fit the distribution over groups, and return each group's posterior."""
    grid = np.arange((_CLEAR + _BEYOND) * _PER + 1, dtype=np.float64) * (stddev / _PER)
    apart = (noisy[:, None] - grid) / stddev
    logs = -math.sqrt(2) * np.abs(apart) if laplace else -0.5 * np.square(apart)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    fitted = likelihood[noisy <= (_CLEAR + _BEYOND / 2) * stddev]
    prior = np.full(len(grid), 1 / len(grid))
    for _ in range(_STEPS if len(fitted) else 0):
        prior = prior * ((1 / (fitted @ prior)) @ fitted) / len(fitted) + _FLOOR / len(grid)
        prior /= prior.sum()
    joint = likelihood * prior
    return Deconvolved(noisy, stddev, laplace, grid, joint / joint.sum(axis=1, keepdims=True))
