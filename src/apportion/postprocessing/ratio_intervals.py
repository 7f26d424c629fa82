"""An interval for the ratio of two noisy numbers, whatever the noise of the denominator (Fieller's method).

At the true ratio x, the number top - x bottom is pure noise of a known distribution. So the set of ratios at which it
lies within that distribution's bounds contains the true ratio with the probability of the bounds, even if the noise of
the bottom is large. If the bottom is lost in its noise, every ratio is possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.mixtures import Mixture

Floats = NDArray[np.float64]

_STEPS = 12  # steps of the search for an end; each divides its error by how far the bottom stands out of its noise
_STANDS_OUT = 2.5  # standard deviations by which the bottom must stand out


@dataclass(frozen=True)
class NoisyRatio:
    """Two linear combinations of released numbers, each of which has the same noise.

    Attributes:
        top: estimates x times the number that bottom estimates.
        bottom: a number that is above 0 without its noise.
        normal: standard deviation of normal noise in each released number.
        laplace: scale of Laplace noise in each; one of the two is 0.
        of_top: factors of the released numbers in the top.
        of_bottom: factors of the released numbers in the bottom.
    """

    top: float
    bottom: float
    normal: float
    laplace: float
    of_top: tuple[float, ...]
    of_bottom: tuple[float, ...]

    def stddev(self, x: float) -> float:
        """Return the standard deviation of the noise in the ratio, near x."""
        return self._unit * math.hypot(*self._mix(x)) / max(self.bottom, self._unit * math.hypot(*self.of_bottom))

    def interval(self, level: float, further: Mixture, slack: float = 0.0) -> tuple[float, float]:
        """Both ends for the ratio.

        Args:
            level: probability of the interval.
            further: what else the ratio is off by.
            slack: a bound on what else the top is off by.
        """
        if self.bottom < _STANDS_OUT * self._unit * math.hypot(*self.of_bottom):
            return -math.inf, math.inf
        moved = further.times(self.bottom)
        return self._end(level, moved, slack, -1), self._end(level, moved, slack, 1)

    def _end(self, level: float, further: Mixture, slack: float, sign: int) -> float:
        x = self.top / self.bottom
        for _ in range(_STEPS):
            factors = np.abs(self._mix(x))
            width = further.half_width(level, self.normal * float(np.hypot.reduce(factors)), self.laplace * factors)
            moved = (self.top + sign * (width + slack)) / self.bottom
            if abs(moved - x) <= 1e-4 * abs(moved - self.top / self.bottom):
                return moved
            x = moved
        return x

    def _mix(self, x: float) -> list[float]:
        return [above - x * below for above, below in zip(self.of_top, self.of_bottom, strict=True)]

    @property
    def _unit(self) -> float:
        return math.hypot(self.normal, math.sqrt(2) * self.laplace)
