"""A floor under models of many tasks: one private constant for all tasks, and a comparison that is paid for.

A user contributes the mean of its labels and, later, for each candidate the mean over its rows of the loss minus that
of the constant. Each is one short vector with a public norm, whatever the number of the user's tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import UserParts, Users
from apportion.engines import Engine, add_up_one
from apportion.estimators.contributions import Noisy, release_noisy
from apportion.privacy import Neighbours, Purpose, Session, Share
from apportion.privacy.contributions import ClippedParts, Output
from apportion.privacy.contributions.clipped import Part
from apportion.privacy.neighbours import moved_by_user
from apportion.regression.floor import WAYS, Ends, LossDifferences
from apportion.regression.private_constant import best_constant, likely_mean
from apportion.regression.user_sides import Design

Floats = NDArray[np.float64]

_COMPARISON = Output(len(WAYS), float(np.sqrt(len(WAYS)) / 2), False, "mean differences of losses of a user")
# largest noise in the mean difference of losses, relative to its range, at which a model is still tried
_ROUGHEST = 0.02


@dataclass(frozen=True)
class TaskConstant:
    """A constant score for all tasks.

    Attributes:
        score: the constant; released.
        mean: the mean of labels on which it is based, divided by their bound; released.
        precision: the precision of that mean.
        n_users: about how many users there are; released.
    """

    score: float
    mean: float
    precision: float
    n_users: float


@dataclass(frozen=True, eq=False)
class _MeanLabels:
    """The mean label of each user, divided by the bound, and 1: a vector of norm at most √2."""

    design: Design
    bound: float

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        labels = np.clip(np.nan_to_num(self.design.rows(users)[2]) / self.bound, -1.0, 1.0)
        return (np.column_stack([_means(labels, users), users.present.astype(float)]),)


@dataclass(frozen=True, eq=False)
class _MeanDifferences:
    """The mean of each user's differences of losses, scaled to [-1/2, 1/2]."""

    differences: LossDifferences

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        ends = self.differences.ends
        inside = np.clip(self.differences.each(users), ends.low, ends.high)
        scaled = (inside - (ends.low + ends.high) / 2) / (ends.high - ends.low)
        return (np.column_stack([_means(column, users) for column in scaled.T]),)


@dataclass(frozen=True, eq=False)
class TaskFloor:
    """What both steps of the floor use.

    Attributes:
        users: the users, with features and labels for each of their tasks.
        design: the rows.
        reach: the largest score that a model may have; public.
        neighbours: the neighbour relation that the session protects.
        session: the session that pays.
        engine: the engine that adds up.
    """

    users: UserParts
    design: Design
    reach: float
    neighbours: Neighbours
    session: Session
    engine: Engine

    def constant(self, share: Share, before: TaskConstant | None = None) -> TaskConstant:
        """Release the mean over users of their mean labels, and turn it into a score, together with an earlier mean."""
        loss = self.design.loss
        bound = 1.0 if hasattr(loss, "coded") else self.reach
        output = Output(2, float(np.sqrt(2)), False, "the mean label of a user")
        purpose = Purpose.CONSTANT if before is None else Purpose.CONSTANT_AGAIN
        noisy = self._released(purpose, _MeanLabels(self.design, bound), output, share)
        n_users = max(float(noisy.values[1]), 1.0)
        mean, precision = float(noisy.values[0]) / n_users, float(np.square(n_users / noisy.stddev))
        if before is not None:
            mean = (mean * precision + before.mean * before.precision) / (precision + before.precision)
            precision += before.precision
        likely = float(likely_mean(np.array([mean]), np.array([1 / np.sqrt(precision)]))[0])
        scored = best_constant(loss, likely, self.reach) if bound == 1.0 and hasattr(loss, "coded") else bound * likely
        return TaskConstant(float(np.clip(scored, -self.reach, self.reach)), mean, precision, n_users)

    def can_tell(self, constant: TaskConstant, share: Share) -> bool:
        """Whether a comparison could distinguish a model from a constant. This is known before any model is tried."""
        moved = _COMPARISON.clip_norm * moved_by_user(self.neighbours)
        return moved / share.mu / constant.n_users <= _ROUGHEST

    def chosen(self, constant: TaskConstant, model: Floats, reach: float, share: Share) -> float:
        """Release how candidates compare with the constant, and return how far to go from it to the model.

        Args:
            constant: the constant; released.
            model: parameters of all tasks; released.
            reach: how far a row's loss can be from that of the constant, by released and public numbers.
            share: the share of the budget.
        """
        ends = Ends.of(self.design.loss, reach)
        differences = LossDifferences(self.design, np.full((1, 1), constant.score), model, ends, by_task=True)
        noisy = self._released(Purpose.COMPARISON, _MeanDifferences(differences), _COMPARISON, share)
        return ends.chosen(noisy, constant.n_users)

    def _released(self, purpose: Purpose, part: Part, output: Output, share: Share) -> Noisy:
        contribution = ClippedParts(part, (output,), neighbours=self.neighbours)
        return release_noisy(self.session, purpose, add_up_one(self.engine, self.users, contribution), share)


def _means(values: Floats, users: Users) -> Floats:
    return np.asarray(np.bincount(users.owner, values, minlength=users.n_users) / np.maximum(users.sizes, 1))
