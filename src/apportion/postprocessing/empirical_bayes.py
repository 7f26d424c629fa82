"""Task parameters from noisy statistics: a prior fitted across tasks, then each task's posterior mean.

For every task i the released statistic is modelled as

    b_i = t_i A θ_i + e_i,    cov(e_i) = s_i A + diag(ν) + v_i A Σ Aᵀ,    θ_i ~ N(Mᵀ f_i, Σ)

with t_i the exposure and v_i its variance, A the second moment of the features that all tasks share, s_i A the
sampling noise of the labels, ν the known variance of the privacy noise and f_i public or released covariates. M and Σ
are fitted by EM over all tasks. The estimate of a tail task follows the prediction from its covariates, that of a head
task follows its data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import Information, NoisyDesign, information

Floats = NDArray[np.floating[Any]]

COEFFICIENT_PRECISION = 100.0
"""Prior precision of the entries of M, in labels: what covariates do is of the order of a tenth of a label."""


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
        whole: the tasks whose statistics are known in all coordinates; of others only the first is. None for all tasks.
        around: A c for every task, where b is the sum of what was released and t A c; see `exposure_told`.
        moves: what rounds say of exposures by how they differ, see `evidence.combine`.
    """

    statistics: NDArray[np.float64]
    design: NDArray[np.float64]
    exposure: NDArray[np.float64]
    exposure_variance: NDArray[np.float64]
    sampling: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    whole: NDArray[np.bool_] | None = None
    around: NDArray[np.float64] | None = None
    moves: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Posterior:
    """Posterior means and variances of all tasks, the prior they came from, and its prior mean for each task."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    prior: Prior
    expected: NDArray[np.float64]


def fit(evidence: Evidence, covariates: Floats, start: Prior, steps: int) -> Posterior:
    """Fit the prior by EM, then return every task's posterior."""
    model = noisy_design(evidence)
    prior = start
    for _ in range(steps - 1):
        mean, seen = _posterior(evidence, model, covariates, prior)
        coefficients = _coefficients(covariates, mean, prior.covariance)
        apart = mean - covariates @ coefficients
        covariance = (apart.T @ apart + left_in_all(seen, prior.covariance)) / len(mean)
        prior = Prior(coefficients, covariance + 1e-8 * np.eye(len(covariance)))
    mean, seen = _posterior(evidence, model, covariates, prior, each=True)
    return Posterior(mean, left_variances(seen, prior.covariance), prior, covariates @ prior.coefficients)


def _coefficients(covariates: Floats, mean: Floats, covariance: Floats) -> NDArray[np.float64]:
    """Return M given the tasks' parameters: a ridge regression in each principal direction of Σ."""
    variances, directions = np.linalg.eigh(covariance)
    gram, moments = covariates.T @ covariates, covariates.T @ mean @ directions
    ridges = COEFFICIENT_PRECISION * np.maximum(variances, 0.0)[:, None, None] * np.eye(len(gram))
    solved = np.linalg.solve(gram + 1e-9 * np.eye(len(gram)) + ridges, moments.T[:, :, None])[:, :, 0]
    return np.asarray(solved.T @ directions.T)


def _posterior(
    evidence: Evidence, model: NoisyDesign, covariates: Floats, prior: Prior, *, each: bool = False
) -> tuple[NDArray[np.float64], Information]:
    """Return posterior means, and the information of the statistics beyond the prior."""
    expected = covariates @ prior.coefficients
    surprise = evidence.statistics - evidence.exposure[:, None] * (expected @ evidence.design.T)
    seen = seen_in(evidence, model, spread_of(evidence, prior.covariance), surprise, each=each)
    return expected + seen.scores @ prior.covariance.T, seen


def noisy_design(evidence: Evidence) -> NoisyDesign:
    """Return the distribution of the statistics, without the part that the covariance of the prior adds."""
    return NoisyDesign(
        design=evidence.design,
        shape=positive(evidence.design),
        noise_variance=evidence.noise_variance,
        exposure=evidence.exposure,
        signal=np.square(evidence.exposure) + evidence.exposure_variance,
        sampling=evidence.sampling,
    )


def seen_in(evidence: Evidence, model: NoisyDesign, spread: Floats, statistics: Floats, *, each: bool) -> Information:
    """Return the information of these statistics, of the first coordinate alone where no more is known.

    Args:
        evidence: tells of which tasks all coordinates are known.
        model: the distribution of the statistics, from `noisy_design`.
        spread: what the covariance of the prior adds to it, from `spread_of`.
        statistics: of all tasks.
        each: whether every task's precision is wanted.
    """
    if evidence.whole is None or evidence.whole.all() or len(spread) == 1:
        return information(model, np.asarray(spread, np.float64), np.asarray(statistics, np.float64), each=each)
    whole, part = np.flatnonzero(evidence.whole), np.flatnonzero(~evidence.whole)
    held, seen = np.asarray(spread, np.float64), np.asarray(statistics, np.float64)
    known = information(_some(model, whole, len(held)), held, seen[whole], each=each)
    first = information(_some(model, part, 1), held[:1, :1], seen[part, :1], each=each)
    scores, total = np.zeros(seen.shape), known.total.copy()
    scores[whole], scores[part, :1] = known.scores, first.scores
    total[0, 0] += first.total[0, 0]
    precisions = np.zeros((len(scores) if each else 0, known.each.shape[1]))
    if each:
        precisions[whole], precisions[part, :1] = known.each, first.each
    return Information(scores, total, precisions)


def _some(model: NoisyDesign, tasks: NDArray[np.intp], width: int) -> NoisyDesign:
    """Return the first coordinates of some tasks."""
    return NoisyDesign(
        design=model.design[:width, :width],
        shape=model.shape[:width, :width],
        noise_variance=model.noise_variance[:width],
        exposure=model.exposure[tasks],
        signal=model.signal[tasks],
        sampling=model.sampling[tasks],
    )


def spread_of(evidence: Evidence, covariance: Floats) -> NDArray[np.float64]:
    """Return what parameters of this covariance add to the statistics of a task with exposure 1."""
    return np.asarray(evidence.design @ covariance @ evidence.design.T)


def left_in_all(seen: Information, covariance: Floats) -> NDArray[np.float64]:
    """Return the sum of all tasks' posterior covariances, Σ − Σ W_i Σ each."""
    return np.asarray(len(seen.scores) * covariance - covariance @ seen.total @ covariance)


def left_variances(seen: Information, covariance: Floats) -> NDArray[np.float64]:
    """Return the diagonals of all tasks' posterior covariances."""
    rows, columns = np.tril_indices(len(covariance))
    times = np.where(rows == columns, 1.0, 2.0)[:, None]  # a packed entry stands for itself and its mirror image
    return np.asarray(np.diag(covariance) - seen.each @ (times * covariance[rows] * covariance[columns]))


def positive(matrix: Floats, floor: float = 1e-3) -> NDArray[np.float64]:
    """Return the symmetric part with its eigenvalues raised to a floor."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    raised: NDArray[np.float64] = (vectors * np.maximum(values, floor)) @ vectors.T
    return raised
