"""A mechanism: staircase noise for one number. This file is all that adding it takes.

In another package it would be registered as an entry point of the group `apportion.mechanisms`, so that stored
statements find it by its key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.errors import InputError
from apportion.privacy import Mechanism, Share
from apportion.privacy.mechanisms.grid import on_grid


@dataclass(frozen=True)
class Staircase(Mechanism[Share]):
    """Uniform noise on a step of a staircase that falls by e^-ε from one step to the next: ε-DP for one number.

    Geng and Viswanath, "The Optimal Mechanism in Differential Privacy" (2014), with steps as wide as the sensitivity.

    Args:
        width: of a step. One user must not move the sum by more, so that it crosses at most one edge.
    """

    width: float = 1.0

    key = "staircase"
    pure = True

    @property
    def words(self):
        return "staircase"

    def sensitivity(self, statistic):
        return statistic.l1_sensitivity

    def scale(self, statistic, share):
        if statistic.size != 1 or statistic.l1_sensitivity > self.width:
            moved = f"{statistic.size} numbers and {statistic.l1_sensitivity:g}"
            raise InputError(f"Expected one number that moves by at most {self.width:g}, got {moved}.", argument=None)
        return self.width / share.pure_epsilon

    def draw(self, opened, scale, noise):
        epsilon = self.width / scale
        height, inside, sign = (noise.uniform(1).reshape(opened.value.shape) for _ in range(3))
        stair = self.width * (np.floor(np.log(height) / -epsilon) + inside)
        return on_grid(opened.value + np.where(sign < 0.5, -stair, stair), scale)

    def distance(self, one, other, scales):
        return float(np.abs(one - other).sum())
