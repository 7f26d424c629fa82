"""Denoises rows whose prior mean is a function of public features: `low_rank` with features.

Model: row i of B is β_i + e_i with e_i ~ N(0, σ² I) known and β_i = √h_i θ_i, θ_i ~ N(Cᵀ (1, x_i), Σ), where h_i grows
with the task's exposure and x_i are its features. Rows of C have the variance τ_g² Σ of their group g. Everything is
diagonal in the eigenbasis of Σ. Σ, τ and C are fitted from the released rows of all tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.feature_prior import Regressors, _conjugate_gradients, group_means
from apportion.postprocessing.low_rank import Denoised

Floats = NDArray[np.floating[Any]]

_FLAT = 1e-3
_EXPLAINED_AT_FIRST = 0.2  # share of the rows' variance that each group is expected to explain


@dataclass(frozen=True)
class _Basis:
    """Σ in its eigenbasis, and the posterior of rows of relative exposure h under it."""

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, covariance: Floats, relative: Floats) -> _Basis:
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 1e-9)
        return cls(values, vectors, relative / (relative * values + 1))

    @property
    def gain(self) -> NDArray[np.float64]:
        return self.weights * self.values


def denoise_rows(noisy: Floats, stddev: float, spread: Floats, regressors: Regressors, steps: int) -> Denoised:
    """Return posterior means of rows with features. Everything is fitted in `steps` steps.

    Args:
        noisy: one row per task.
        stddev: the standard deviation of the noise on every entry.
        spread: h, relative prior variance of each task's row.
        regressors: the tasks' features, and covariates if there are any.
        steps: as in `low_rank.denoise_rows`; stopping early regularises.
    """
    rows = np.asarray(noisy, np.float64) / stddev
    relative = np.asarray(spread, np.float64)[:, None] / np.mean(spread)
    covariance = rows.T @ (rows / relative) / len(rows)
    shares = _EXPLAINED_AT_FIRST / regressors.group_squares()
    coefficients = np.zeros((regressors.covariates.shape[1] + regressors.features.shape[1], rows.shape[1]))
    for step in range(steps + 1):
        basis = _Basis.of(covariance, relative)
        turned = coefficients @ basis.vectors
        turned, spreads = _least_squares(rows @ basis.vectors, relative, regressors, basis, turned, shares)
        expected = np.sqrt(relative) * regressors.times(turned)
        apart = basis.gain * (rows @ basis.vectors - expected)
        coefficients = turned @ basis.vectors.T
        if step == steps:
            break
        left = np.diag((basis.values / (relative * basis.values + 1)).mean(axis=0))
        covariance = basis.vectors @ ((apart / relative).T @ apart / len(rows) + left) @ basis.vectors.T
        shares = _shares(regressors, turned / np.sqrt(basis.values), spreads / basis.values)
    resolved = (basis.gain * basis.values).sum(axis=1) / basis.values.sum()
    return Denoised(stddev * ((expected + apart) @ basis.vectors.T), resolved)


def _least_squares(
    rows: Floats, relative: Floats, regressors: Regressors, basis: _Basis, start: Floats, shares: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return coefficients given Σ and τ, in Σ's eigenbasis, and approximate variances."""
    flat = np.full(regressors.covariates.shape[1], _FLAT)
    penalty = np.concatenate([flat, 1 / shares[regressors.groups]])[:, None] / basis.values
    diagonal = regressors.squares_times(basis.weights) + penalty

    def applied(coefficients: Floats) -> NDArray[np.float64]:
        return regressors.transposed_times(basis.weights * regressors.times(coefficients)) + penalty * coefficients

    target = regressors.transposed_times(basis.weights / np.sqrt(relative) * rows)
    return _conjugate_gradients(applied, target, start, diagonal), 1 / diagonal


def _shares(regressors: Regressors, scaled: Floats, spreads: Floats) -> NDArray[np.float64]:
    """Return τ² of every group: the mean of the squared coefficients and their variances, over Σ (EM)."""
    known = regressors.covariates.shape[1]
    seconds = group_means(regressors, np.square(scaled[known:]) + spreads[known:])
    return np.asarray(np.maximum(seconds.mean(axis=1), 1e-8))
