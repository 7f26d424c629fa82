"""The constant that a model must beat: from a private mean of labels, or by a private descent on the intercept alone.

For labels of two classes the best constant follows from their mean m in [-1, 1]. The risk is linear in m. So, if m is
known only with noise, the best constant is that of the posterior mean of m: the mean of a normal distribution truncated
at both ends (`likely_mean`). A constant from few users is therefore shrunk towards the score 0 instead of fluctuating.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from apportion.engines import add_up_one
from apportion.estimators.contributions import release_noisy
from apportion.losses import Loss
from apportion.privacy import Purpose, Session, Share
from apportion.privacy.contributions import GradientTotal
from apportion.regression.descent import Descent, Risk
from apportion.regression.user_sides import ClippedLabels, Design, Directions

Floats = NDArray[np.float64]

_ROUGHEST = 0.12  # largest standard deviation of the mean of labels at which a constant can be fallen back on
_HALVINGS = 60  # halvings of the interval in which a constant is sought
_POINTS = np.linspace(-1.0, 1.0, 2001)

DescentOnConstant = Callable[[Risk, Share, Purpose], Descent]


class PrivateConstant:
    """The best constant of each part of the users, from releases whose precisions add up.

    Args:
        loss: the loss whose best constant is sought.
        entry: the entry of every row for the intercept.
        radius: the radius of the ball in which parameters stay.
        risk: the rows and their weights.
        session: the session that pays.
    """

    def __init__(self, loss: Loss, entry: float, radius: float, risk: Risk, session: Session) -> None:
        self._loss, self._entry, self._radius = loss, entry, radius
        self._risk, self._session = risk, session
        self._sum, self._precision = np.zeros(len(risk.totals)), np.zeros(len(risk.totals))
        self._last = np.zeros((len(risk.totals), 1))

    def found(self, turn: int, share: Share, descent: DescentOnConstant) -> Floats:
        """Return the last entry of θ in each part, from this share and the earlier ones."""
        if not hasattr(self._loss, "coded"):
            purpose = Purpose.CONSTANT if turn == 1 else Purpose.CONSTANT_AGAIN
            made = descent(self._risk, share, purpose)
            self._last = made.run(self._last, self._risk, self._session, share, None)
            return self._last[:, 0]
        self._add_mean(turn, share)
        means = likely_mean(self._sum / self._precision, 1 / np.sqrt(self._precision))
        reach = self._radius * self._entry
        return np.array([best_constant(self._loss, float(mean), reach) for mean in means]) / self._entry

    @property
    def serves(self) -> bool:
        """Whether the constant so far is precise enough to fall back on.

        A constant of 0, or from descent, always is.
        """
        return not self._precision.all() or float(1 / np.sqrt(self._precision.min())) <= _ROUGHEST

    def _add_mean(self, turn: int, share: Share) -> None:
        """Release one more mean of labels, and weigh it by its precision."""
        risk, directions = self._risk, Directions(Design(0.0, self._loss, self._entry))
        labels = GradientTotal(directions, ClippedLabels(1.0), risk.bounded.weights, 1, risk.n_parts)
        total = add_up_one(risk.engine, risk.bounded.users, labels)
        purpose = Purpose.CONSTANT if turn == 1 else Purpose.CONSTANT_AGAIN
        noisy = release_noisy(self._session, purpose, total, share)
        precision = np.square(risk.totals / noisy.stddev)
        self._sum = self._sum + precision * np.reshape(noisy.values, -1) / risk.totals
        self._precision = self._precision + precision


def likely_mean(mean: Floats, stddev: Floats) -> Floats:
    """Return the posterior mean of m in [-1, 1], if only a value with normal noise is known about it."""
    apart = (_POINTS - np.clip(mean, -1 - 8 * stddev, 1 + 8 * stddev)[:, None]) / np.maximum(stddev, 1e-3)[:, None]
    likely = np.exp(-(np.square(apart) - np.square(apart).min(axis=1, keepdims=True)) / 2)
    found = np.asarray((likely * _POINTS).sum(axis=1) / likely.sum(axis=1))
    return np.where(stddev < 1e-3, np.clip(mean, -1, 1), found)


def best_constant(loss: Loss, mean: float, reach: float) -> float:
    """Return the score that minimises the loss of labels -1 and 1 with this mean, within ±reach, by halving."""
    low, high = -reach, reach
    labels = np.array([-1.0, 1.0])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = (np.array([1 - mean, 1 + mean]) / 2) @ loss.derivative(np.full(2, middle), labels)
        low, high = (low, middle) if slope > 0 else (middle, high)
    return (low + high) / 2
