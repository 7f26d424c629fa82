"""Task parameters from noisy statistics: a prior fitted across tasks, then each task's posterior mean.

For every task i the released statistic is modelled as

    b_i = t_i A θ_i + e_i,    cov(e_i) = s_i A + diag(ν) + v_i A Σ Aᵀ,    θ_i ~ N(Mᵀ f_i, Σ)

with t_i the exposure and v_i its variance, A the second moment of the features that all tasks share, s_i A the
sampling noise of the labels, ν the known variance of the privacy noise and f_i public or released covariates. M and Σ
are fitted by EM over all tasks. A tail task falls back to what its covariates predict, a head task to its data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import solve_or_zero

Floats = NDArray[np.floating[Any]]

_TASKS_AT_A_TIME = 4096


@dataclass(frozen=True)
class Prior:
    """θ_i ~ N(coefficientsᵀ f_i, covariance)."""

    coefficients: NDArray[np.float64]
    covariance: NDArray[np.float64]

    def widened(self, dimension: int, variance: float) -> Prior:
        """Return the same prior with further independent coordinates of mean 0 and this variance."""
        known = len(self.covariance)
        covariance = variance * np.eye(dimension)
        covariance[:known, :known] = self.covariance
        coefficients = np.zeros((len(self.coefficients), dimension))
        coefficients[:, :known] = self.coefficients
        return Prior(coefficients, covariance)


@dataclass(frozen=True)
class Evidence:
    """The releases about all tasks, in the notation above.

    Attributes:
        statistics: b, one row per task.
        design: A.
        exposure: t.
        exposure_variance: v.
        sampling: s.
        noise_variance: ν, one per coordinate.
    """

    statistics: NDArray[np.float64]
    design: NDArray[np.float64]
    exposure: NDArray[np.float64]
    exposure_variance: NDArray[np.float64]
    sampling: NDArray[np.float64]
    noise_variance: NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """Posterior means and variances of all tasks, and the prior they came from."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    prior: Prior


def fit(evidence: Evidence, covariates: Floats, start: Prior, steps: int) -> Posterior:
    """Fit the prior by EM, then return every task's posterior."""
    projection = np.linalg.solve(covariates.T @ covariates + 1e-3 * np.eye(covariates.shape[1]), covariates.T)
    prior = start
    for _ in range(steps - 1):
        mean, _, spread = _posterior(evidence, covariates, prior)
        coefficients = projection @ mean
        apart = mean - covariates @ coefficients
        covariance = (apart.T @ apart + spread) / len(mean)
        prior = Prior(coefficients, covariance + 1e-8 * np.eye(len(covariance)))
    mean, variance, _ = _posterior(evidence, covariates, prior)
    return Posterior(mean, variance, prior)


def _posterior(
    evidence: Evidence, covariates: Floats, prior: Prior
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return posterior means, their variances, and the sum of their covariances, a few thousand tasks at a time."""
    n_tasks, width = evidence.statistics.shape
    means, variances = np.empty((n_tasks, width)), np.empty((n_tasks, width))
    spread = np.zeros((width, width))
    for tasks in _chunks(n_tasks):
        means[tasks], covariance = _posterior_of(evidence, covariates, prior, tasks)
        variances[tasks] = np.einsum("nii->ni", covariance)
        spread += covariance.sum(axis=0)
    return means, variances, spread


def _posterior_of(
    evidence: Evidence, covariates: Floats, prior: Prior, tasks: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    design, covariance = evidence.design, prior.covariance
    exposure = evidence.exposure[tasks]
    spread = design @ covariance @ design.T
    signal = np.square(exposure) + evidence.exposure_variance[tasks]
    total = signal[:, None, None] * spread + evidence.sampling[tasks, None, None] * _positive(design)
    total += np.diag(evidence.noise_variance)
    crossed = exposure[:, None, None] * (design @ covariance)
    gain = solve_or_zero(total, crossed).swapaxes(1, 2)
    expected = covariates[tasks] @ prior.coefficients
    surprise = evidence.statistics[tasks] - exposure[:, None] * (expected @ design.T)
    mean = expected + np.einsum("nij,nj->ni", gain, surprise)
    return mean, covariance - gain @ crossed


def _positive(matrix: Floats, floor: float = 1e-3) -> NDArray[np.float64]:
    """Return the symmetric part with its eigenvalues raised to a floor."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    raised: NDArray[np.float64] = (vectors * np.maximum(values, floor)) @ vectors.T
    return raised


def _chunks(length: int) -> Iterator[slice]:
    return (slice(k, min(k + _TASKS_AT_A_TIME, length)) for k in range(0, length, _TASKS_AT_A_TIME))
