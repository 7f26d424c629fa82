"""A mechanism: staircase noise for one number. This file is all that adding it takes.

In another package it would be registered as an entry point of the group `apportion.mechanisms`, so that stored
statements find it by its key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.privacy import Mechanism, Share
from apportion.privacy.mechanisms.grid import on_grid


@dataclass(frozen=True)
class Staircase(Mechanism[Share]):
    """Uniform noise on a step of a staircase that falls by e^-ε from one step to the next: ε-DP for one number.

    Geng and Viswanath, "The Optimal Mechanism in Differential Privacy" (2014), with steps of one sensitivity.
    """

    key = "staircase"
    pure = True

    @property
    def words(self):
        return "staircase"

    def sensitivity(self, statistic):
        return statistic.l1_sensitivity

    def scale(self, statistic, share):
        return statistic.l1_sensitivity / share.pure_epsilon

    def draw(self, opened, scale, noise):
        epsilon = np.full(opened.value.shape, 1.0 / scale)  # of sums whose sensitivity is 1
        steps, inside, sign = (noise.uniform(opened.value.size).reshape(opened.value.shape) for _ in range(3))
        stair = np.floor(np.log(steps) / -epsilon) + inside
        return on_grid(opened.value + np.where(sign < 0.5, -stair, stair), scale)

    def distance(self, one, other, scales):
        return float(np.abs(one - other).sum())
