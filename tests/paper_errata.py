"""Errors found in the published algorithm and its code, planted: estimators that claim a guarantee they do not have.

E1: the ridge λ Σ_j w_ij I is inside the released sum, while the sensitivity counts x xᵀ alone.
E2: the sum over users is clipped, not each user's own gradient.
E6: labels reach beyond the bound that their noise was scaled to; the mean has ten times too little noise.
"""

from __future__ import annotations

import numpy as np

from apportion.allocation import Adaptive
from apportion.engines import LocalEngine
from apportion.privacy import bounds
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.published.skew import AlternatingMinimisation, GradientDescent, SufficientStatistics

RIDGE = 1.0


def resealed(statistic, value, bound=None):
    """A sum with another value, or another claim about its sensitivity, than it has."""
    return BoundedSum(_KEY, value, bound or statistic.l2_sensitivity, statistic.derivation, statistic.scales)


class RidgeInTheSum(LocalEngine):
    """E1."""

    def grams(self, data, weights, rows):
        right = super().grams(data, weights, rows)
        totals = super().counts(data, weights)._reveal(_KEY)
        width = rows._values.shape[1]
        diagonal = np.cumsum(np.arange(1, width + 1)) - 1
        value = right._reveal(_KEY).copy()
        value[:, diagonal] += RIDGE * totals[:, None]
        return resealed(right, value)


class ClippedAfterTheSum(LocalEngine):
    """E2: gradients arrive unclipped, and each task's sum is clipped to the bound of one user."""

    def moments(self, data, weights, rows, labels=None):
        right = super().moments(data, weights, rows, labels)
        value = right._reveal(_KEY)
        lengths = np.linalg.norm(value, axis=1, keepdims=True)
        return resealed(right, value / np.maximum(lengths / right.l2_sensitivity, 1))


class Unclipped(bounds.Weights):
    """Weights that say they are clipped."""

    def times(self, factors, clip):
        made = object.__new__(Unclipped)
        made._values = np.asarray(self._values, np.float64) * np.asarray(factors, np.float64) / clip
        made._indptr, made._description, made._rearranged = self._indptr, "not clipped", None
        made._neighbours, made._signed = self._neighbours, True
        return made


class UnclippedGradients(Adaptive):
    """An allocation whose weights never clip what they are multiplied with."""

    def weights(self, data, count):
        right = super().weights(data, count)
        made = object.__new__(Unclipped)
        for name in bounds.Weights.__slots__:
            setattr(made, name, getattr(right, name))
        return made


class LabelsBeyondTheirBound(LocalEngine):
    """E6, first half: noise is scaled to labels of at most 1 in absolute value, and they reach 2."""

    def moments(self, data, weights, rows, labels=None):
        right = super().moments(data, weights, rows, labels)
        return resealed(right, right._reveal(_KEY), right.l2_sensitivity / labels.bound)


class MeanWithTooLittleNoise(LocalEngine):
    """E6, second half: a tenth of the noise that the accounting states."""

    def user_sum(self, data, part, width, clip_norm, what, neighbours):
        right = super().user_sum(data, part, width, clip_norm, what, neighbours)
        return resealed(right, right._reveal(_KEY), right.l2_sensitivity / 10)


def _estimator(update, engine, policy=None, **arguments):
    def make():
        return AlternatingMinimisation(
            2.0, 1e-5, update=update, engine=engine(np.float64), allocation=policy or Adaptive(0.5),
            dimension=3, rounds=2, user_ridge=0.1, **arguments,
        )  # fmt: skip

    return make


_STATISTICS, _GRADIENT = SufficientStatistics(label_bound=2.0), GradientDescent(clip=0.2)
PLANTED = {
    "E1: ridge inside the released sum": _estimator(_STATISTICS, RidgeInTheSum),
    "E2: the sum clipped, not each user": _estimator(_GRADIENT, ClippedAfterTheSum, UnclippedGradients(0.5)),
    "E6: labels beyond the bound of their noise": _estimator(_STATISTICS, LabelsBeyondTheirBound),
    "E6: a mean with a tenth of its noise": _estimator(_STATISTICS, MeanWithTooLittleNoise),
}
REPAIRED = {
    "sufficient statistics": _estimator(_STATISTICS, LocalEngine),
    "gradient descent": _estimator(_GRADIENT, LocalEngine),
}
