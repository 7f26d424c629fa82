"""Accelerated descent on noisy gradients of a weighted risk, for all users or for several parts side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.engines import Engine, add_up_one
from apportion.estimators.contributions import Bounded
from apportion.privacy import Purpose, Session, Share
from apportion.privacy.contributions import GradientTotal
from apportion.regression.multi_task import into_ball
from apportion.regression.user_regression import Progress
from apportion.regression.user_sides import Design, Directions, Slopes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Risk:
    """The risk that is minimised.

    Attributes:
        bounded: weights of rows.
        parts: the part of each user, if there are several.
        totals: total weight of each part; public or released.
        engine: where sums are formed.
    """

    bounded: Bounded
    parts: Integers | None
    totals: Floats
    engine: Engine

    @property
    def n_parts(self) -> int:
        """The number of separate sums; 0 for a single sum."""
        return 0 if self.parts is None else len(self.totals)

    def gradient(self, design: Design, theta: Floats, clip_norm: float) -> GradientTotal:
        """Return the contribution of users to the gradient at these parameters, one row for each part."""
        slopes = Slopes(design, theta, clip_norm, by_task=False)
        return GradientTotal(Directions(design), slopes, self.bounded.weights, theta.shape[1], self.n_parts)


@dataclass(frozen=True, eq=False)
class Descent:
    """A descent with Nesterov's momentum.

    Attributes:
        design: the rows.
        clip_norm: the norm to which the gradient of every row is clipped.
        n_steps: the number of steps.
        step_size: the size of each step.
        ridge: λ of a penalty λ‖θ‖², whose gradient is added after the release.
        radius: the radius of the ball in which parameters stay.
        average: whether to return the mean of the iterates, later ones weighing more, instead of the last.
        purpose: the purpose of the releases.
    """

    design: Design
    clip_norm: float
    n_steps: int
    step_size: float
    ridge: float
    radius: float
    average: bool
    purpose: Purpose

    def run(self, start: Floats, risk: Risk, session: Session, share: Share, progress: Progress | None) -> Floats:
        """Return one θ for each part, starting from the given one."""
        directions, weights = Directions(self.design), risk.bounded.weights
        shares = share.split(**{f"{step}": 1 / self.n_steps for step in range(1, self.n_steps + 1)})
        theta = ahead = mean = start
        for step in range(1, self.n_steps + 1):
            slopes = Slopes(self.design, ahead, self.clip_norm, by_task=False)
            gradients = GradientTotal(directions, slopes, weights, start.shape[1], risk.n_parts)
            sums = add_up_one(risk.engine, risk.bounded.users, gradients)
            released = session.release(self.purpose.at(step=step), sums, shares[f"{step}"])
            gradient = np.reshape(released, theta.shape) / risk.totals[:, None] + 2 * self.ridge * ahead
            before, theta = theta, into_ball(ahead - self.step_size * gradient, self.radius)
            ahead = into_ball(theta + (step - 1) / (step + 2) * (theta - before), self.radius)
            mean = mean + 2 / (step + 1) * (theta - mean)  # iterate k gets a weight proportional to k
            if progress is not None:
                progress("step", step, self.n_steps)
        return mean if self.average else theta


def steps_for(time: float, step_size: float) -> int:
    """Return T = √(4τ/η), the number of steps that go as far as plain descent in a time of τ."""
    return math.ceil(math.sqrt(4 * time / step_size))
