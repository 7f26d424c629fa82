"""Standardisation of each task's features and labels by its own means and deviations. Each party does it for itself.

A task's means and deviations come from its own rows alone and stay with its party. A model w of standardised features
is a model of the original features with coefficients w_j / s_j and intercept c - Σ w_j mean_j / s_j, where c is the
mean of the labels or, if labels are classes, the coefficient of a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LARGEST = 1e100  # limit of a number, so that its square is finite
_LEAST = 1e-12  # least deviation relative to the largest value; below it, the feature counts as constant


@dataclass(frozen=True, eq=False)
class Standardisation:
    """The means and deviations by which each task's features and labels are standardised.

    Attributes:
        means: the means of features, [tasks, features].
        scales: the deviations of features, [tasks, features].
        label_means: the mean label of each task; 0 if labels are classes.
        constant: whether a constant is appended as the last feature.
    """

    means: Floats
    scales: Floats
    label_means: Floats
    constant: bool

    @classmethod
    def of(cls, matrices: Sequence[Floats], labels: Sequence[Floats], *, deviations: bool, classes: bool) -> Self:
        """Take means and, if wanted, deviations of every task's rows.

        Args:
            matrices: features, one matrix for each task.
            labels: one column for each task.
            deviations: whether features are divided by their deviations; a constant feature is not.
            classes: whether labels are classes, which have no mean to start from.
        """
        means = np.stack([_mean(matrix) for matrix in matrices])
        scales = np.ones_like(means)
        if deviations:
            scales = np.stack([_deviation(matrix, mean) for matrix, mean in zip(matrices, means, strict=True)])
        starts = np.zeros(len(labels)) if classes else np.array([float(_mean(column)) for column in labels])
        return cls(means, scales, starts, classes)

    def standardised(self, matrices: Sequence[Floats], labels: Sequence[Floats]) -> tuple[list[Floats], list[Floats]]:
        """Return features and labels minus their means, divided by their deviations."""
        rows = [
            (_clipped(matrix) - mean) / scale
            for matrix, mean, scale in zip(matrices, self.means, self.scales, strict=True)
        ]
        if self.constant:
            rows = [np.column_stack([one, np.ones(len(one))]) for one in rows]
        return rows, [_clipped(column) - start for column, start in zip(labels, self.label_means, strict=True)]

    def in_given_units(self, models: Floats) -> tuple[Floats, Floats]:
        """Return coefficients and intercepts of models, in the units of the data."""
        slopes = models[:, :-1] if self.constant else models
        coefficients = slopes / self.scales
        starts = models[:, -1] if self.constant else self.label_means
        return coefficients, starts - np.einsum("md,md->m", coefficients, self.means)


def _clipped(values: Floats) -> Floats:
    return np.clip(values, -_LARGEST, _LARGEST)


def _mean(values: Floats) -> Floats:
    return np.asarray(_clipped(values).mean(axis=0) if len(values) else np.zeros(values.shape[1:]))


def _deviation(matrix: Floats, mean: Floats) -> Floats:
    if not len(matrix):
        return np.ones(matrix.shape[1])
    clipped = _clipped(matrix)
    found = np.sqrt(np.square(clipped - mean).mean(axis=0))
    return np.asarray(np.where(found > _LEAST * np.abs(clipped).max(axis=0), found, 1.0))
