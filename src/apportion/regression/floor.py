"""A floor under a descent: a model is published only as far as it is shown to beat a private constant.

The constant is nested in the model, in four steps, each paid for:

1. A rough constant.
2. Evidence: the gradient of the risk at that constant, along the features. If it does not stand out of its noise, or
   the constant itself is too rough to fall back on, no model is tried, and the rest of the budget is spent on the
   constant.
3. The descent on all coefficients, which starts at the constant.
4. A comparison. Candidates lie on the way from the constant to the model. For each candidate, users compute row by row
   how much larger its loss is than that of the constant. The weighted sums are released together, and a candidate is
   accepted only if its difference is below 0 by a margin of its noise. Otherwise the constant is published.

A row's difference is at most the loss's steepest slope times how far its score can move, so the less a candidate moves,
the less the comparison costs. For labels of two classes, no row can gain more than the loss of the constant. A row that
loses more than twice the loss of the score 0 counts as losing that much. So a model that is right on one row and wrong
on the next does not pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.estimators.contributions import Noisy
from apportion.linalg.fixed_order import dot_rows
from apportion.losses import Loss
from apportion.privacy import BoxedValues
from apportion.regression.user_sides import Design, parameters_of

Floats = NDArray[np.float64]

WAYS = (0.5, 1.0)  # positions of the candidates on the way from the constant to the model
_MARGIN = 2.0  # margin, in standard deviations of the noise in a difference
_STANDS_OUT = 2.0  # in standard deviations of the squared length of noise


@dataclass(frozen=True, eq=False)
class LossDifferences:
    """The loss of each candidate minus that of the constant, for every row, clipped.

    Attributes:
        design: the rows.
        constant: parameters of the constant, one row for each part of the users, or the only one; released.
        model: parameters of the model; released.
        ends: the ends to which the differences of each candidate are clipped.
        by_task: whether a row's model is its task's, and the constant a score that all rows have.
    """

    design: Design
    constant: Floats
    model: Floats
    ends: Ends
    by_task: bool = False

    def __call__(self, users: Users) -> BoxedValues:
        """Return one column for each candidate."""
        return BoxedValues.clipped(self.each(users), self.ends.low, self.ends.high)

    def each(self, users: Users) -> Floats:
        """Return the differences before they are clipped."""
        features, _, labels = self.design.rows(users)
        far = dot_rows(features, parameters_of(self.model, users, by_task=self.by_task))
        if self.by_task:
            base = np.full(users.n_rows, self.constant[0, 0])
        else:
            base = dot_rows(features, parameters_of(self.constant, users, by_task=False))
        loss = self.design.loss
        before = loss.value(base, labels)
        columns = [loss.value(base + way * (far - base), labels) - before for way in WAYS]
        return np.nan_to_num(np.stack(columns, axis=1))


@dataclass(frozen=True, eq=False)
class Ends:
    """The ends to which differences of losses are clipped, one number for each candidate.

    They are public, or follow from released parameters.
    """

    low: Floats
    high: Floats

    @classmethod
    def of(cls, loss: Loss, reach: float) -> Ends:
        """Return the ends for a model whose differences are at most the reach, by its distance from the constant."""
        reaches = np.array(WAYS) * max(reach, np.finfo(np.float64).tiny)
        if not hasattr(loss, "coded"):
            return cls(-reaches, reaches)
        most = 2 * float(loss.value(np.zeros(1), np.ones(1))[0])
        return cls(-np.minimum(reaches, most), np.minimum(reaches, most))

    def chosen(self, noisy: Noisy, total: float) -> float:
        """Return how far to go from the constant to the model: 0 if no candidate is shown to be better.

        Args:
            noisy: released weighted sums of differences, each scaled to [-1/2, 1/2].
            total: the weight of all rows; public or released.
        """
        widths = (self.high - self.low) / total
        worst = widths * (noisy.values + _MARGIN * np.sqrt(noisy.variance)) + (self.high + self.low) / 2
        best = int(np.argmin(worst))
        return WAYS[best] if worst[best] < 0 else 0.0


def stands_out(gradient: Floats, stddev: float) -> bool:
    """Whether a released gradient is longer than noise of this standard deviation in each coordinate would be."""
    if not gradient.size:
        return False
    squares = float(np.square(gradient / stddev).sum()) if stddev > 0 else math.inf
    return squares > gradient.size + _STANDS_OUT * math.sqrt(2 * gradient.size)


def why_no_intervals(asked: bool, part: float, stopped: bool) -> str:
    """Return a sentence that refuses intervals; an empty one if the intervals are valid.

    Args:
        asked: whether the users are divided into parts, from which intervals are computed.
        part: how far the published model lies on the way from the constant to the fitted model.
        stopped: whether noise stopped the descent after the fewest steps.
    """
    if not asked:
        return "There are no intervals: they were not requested, and would have cost accuracy."
    if part < 1:
        return "Intervals are refused: the whole model was not seen to beat a constant, so it is drawn towards it."
    if stopped:
        return "Intervals are refused: noise stopped the descent early, at a distance that nobody knows."
    return ""
