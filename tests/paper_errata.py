"""Errors found in the published algorithm and its code, planted: estimators that claim a guarantee they do not have.

E1: the ridge λ Σ_j w_ij I is inside the released sum, while the sensitivity counts x xᵀ alone.
E2: the sum over users is clipped, not each user's own gradient.
E6: labels reach beyond the bound that their noise was scaled to; the mean has ten times too little noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion import linalg
from apportion.allocation import Adaptive
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import bounds
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.contributions import ClippedParts, TaskCounts, TaskGrams, TaskMoments, Weighting
from apportion.published.skew import AlternatingMinimisation, GradientDescent, SufficientStatistics

RIDGE = 1.0


def resealed(statistic, value, bound=None):
    """A sum with another value, or another claim about its sensitivity, than it has."""
    return BoundedSum(_KEY, value, bound or statistic.l2_sensitivity, statistic.derivation, statistic.scales)


class WrongSums(LocalEngine):
    """An engine that changes one kind of sum, or what is said of it, after it was added up."""

    kind = TaskMoments

    def add_up(self, users, contributions):
        found = super().add_up(users, contributions)
        return [
            self.changed(users, each, right) if isinstance(each, self.kind) else right
            for each, right in zip(contributions, found, strict=True)
        ]


class RidgeInTheSum(WrongSums):
    """E1."""

    kind = TaskGrams

    def changed(self, users, about, right):
        totals = add_up_one(LocalEngine(np.float64), users, TaskCounts(about.weights))._reveal(_KEY)
        return with_diagonal(right, RIDGE * totals)


def with_diagonal(right, added):
    """Packed matrices with a number of each task's own added to their diagonal, as if they had no more sensitivity."""
    value = right._reveal(_KEY).copy()
    value[:, linalg.diagonal_positions(linalg.packed_dim(value.shape[1]))] += np.asarray(added)[:, None]
    return resealed(right, value)


class ClippedAfterTheSum(WrongSums):
    """E2: gradients arrive unclipped, and each task's sum is clipped to the bound of one user."""

    def changed(self, users, about, right):
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


@dataclass(frozen=True, eq=False)
class NeverClipping(Weighting):
    """Weights that never clip what they are multiplied with."""

    before: Weighting
    description: str = "not clipped"

    def form(self, users):
        right = self.before.of(users)
        made = object.__new__(Unclipped)
        for name in bounds.Weights.__slots__:
            setattr(made, name, getattr(right, name))
        return made


class UnclippedGradients(Adaptive):
    """An allocation of such weights."""

    def weights(self, n_tasks, count):
        return NeverClipping(super().weights(n_tasks, count))


class LabelsBeyondTheirBound(WrongSums):
    """E6, first half: noise is scaled to labels of at most 1 in absolute value, and they reach 2."""

    def changed(self, users, about, right):
        return resealed(right, right._reveal(_KEY), right.l2_sensitivity / about.labels.bound)


class MeanWithTooLittleNoise(WrongSums):
    """E6, second half: a tenth of the noise that the accounting states."""

    kind = ClippedParts

    def changed(self, users, about, right):
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
