"""A floor under a descent: a model is published only as far as it is seen to beat a private constant.

The constant is nested in the model, in four steps, each paid for:

1. A rough constant.
2. Evidence: the gradient of the risk at that constant, along the features. Where it does not stand out of its noise, or
   the constant itself is too rough to fall back on, no model is tried, and the rest of the budget goes to the constant.
3. The descent on all coefficients, which starts at the constant.
4. A comparison. Candidates lie on the way from the constant to the model. For each of them users tell, row by row, how
   much larger its loss is than that of the constant; the weighted sums are released together, and a candidate is taken
   only if its difference is below 0 by a margin of its noise. Otherwise the constant is published.

A row's difference is at most the loss's steepest slope times how far its score can move, so the less a candidate
moves, the less the comparison costs. For labels of two classes no row can gain more than the loss of the constant; a
row that loses more than twice the loss of the score 0 counts as if it lost that. So a model that is right on one row
and wrong on the next does not pass.
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

WAYS = (0.5, 1.0)  # how far from the constant to the model candidates lie
_MARGIN = 2.0  # standard deviations of the noise in a difference
_STANDS_OUT = 2.0  # standard deviations of a squared length of noise


@dataclass(frozen=True, eq=False)
class LossDifferences:
    """The loss of each candidate less that of the constant, for every row, clipped.

    Attributes:
        design: the rows.
        constant: parameters of the constant, one row for each part of the users, or the only one; released.
        model: those of the model; released.
        ends: what differences of each candidate are clipped to.
        by_task: whether a row's model is its task's, and the constant a score that all rows have.
    """

    design: Design
    constant: Floats
    model: Floats
    ends: Ends
    by_task: bool = False

    def __call__(self, users: Users) -> BoxedValues:
        """One column for each candidate."""
        return BoxedValues.clipped(self.each(users), self.ends.low, self.ends.high)

    def each(self, users: Users) -> Floats:
        """The same as they are, before they are clipped."""
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
    """What differences of losses are clipped to, one number for each candidate; public or from released parameters."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, loss: Loss, reach: float) -> Ends:
        """Ends for a model whose differences are at most the reach, by its distance from the constant."""
        reaches = np.array(WAYS) * max(reach, np.finfo(np.float64).tiny)
        if not hasattr(loss, "coded"):
            return cls(-reaches, reaches)
        most = 2 * float(loss.value(np.zeros(1), np.ones(1))[0])
        return cls(-np.minimum(reaches, most), np.minimum(reaches, most))

    def chosen(self, noisy: Noisy, total: float) -> float:
        """How far to go from the constant to the model: 0 where no candidate is seen to be better.

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
    """One sentence that refuses intervals, or nothing where they are as good as they say.

    Args:
        asked: whether there are parts of the users to take intervals from.
        part: how far from the constant to the model the published one lies.
        stopped: whether noise stopped the descent after the fewest steps.
    """
    if not asked:
        return "There are no intervals: they were not requested, and would have cost accuracy."
    if part < 1:
        return "Intervals are refused: the whole model was not seen to beat a constant, so it is drawn towards it."
    if stopped:
        return "Intervals are refused: noise stopped the descent early, at a distance that nobody knows."
    return ""
