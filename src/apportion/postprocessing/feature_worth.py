"""Which groups of features say more of the releases than chance would.

A prior with many features follows noise as well as tasks, and that costs accuracy where features are worthless. So a
group takes part in a fit only if the scores of tasks that it joins are alike. With the scores u_i that are left after
the covariates, and features x_i, that is the squared length of Σ_i x_i u_i. Random signs of the scores show how large
it is by chance, whatever the noise. Its distribution is taken for that of a multiple of a chi-squared number, with the
mean and the variance that it has over signs. Everything is computed from released and public values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import unpack
from apportion.postprocessing.empirical_bayes import Evidence, noisy_design, seen_in, spread_of
from apportion.postprocessing.feature_prior import FeaturePrior, Regressors, group_means, least_squares

Floats = NDArray[np.floating[Any]]

_BY_CHANCE = 0.2  # how often a worthless group passes; real ones of small data sets need that much
_SIGNS = 32


def worth_fitting(evidence: Evidence, regressors: Regressors, covariance: Floats) -> NDArray[np.bool_]:
    """Return for every group and coordinate whether its features say more of the tasks than chance would.

    Args:
        evidence: the releases about all tasks.
        regressors: of the prior mean.
        covariance: of the tasks around it.
    """
    from scipy.stats import chi2

    scores, own = _left_by_covariates(evidence, regressors, covariance)
    rng = np.random.default_rng(0)
    found = _lengths(regressors, scores, own)
    chance = np.stack([
        _lengths(regressors, scores * rng.choice([-1.0, 1.0], (len(scores), 1)), own) for _ in range(_SIGNS)
    ])  # fmt: skip
    with np.errstate(all="ignore"):  # what is not finite is not worth it
        mean = chance.mean(axis=0)
        freedom = 2 * np.square(mean) / chance.var(axis=0)
        return np.asarray(chi2.sf(found / mean * freedom, freedom) < _BY_CHANCE)


def _left_by_covariates(
    evidence: Evidence, regressors: Regressors, covariance: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the scores of all tasks around a prior mean of covariates alone, and their precisions by coordinate."""
    alone = regressors.without_features()
    prior = FeaturePrior.starting(alone, len(covariance), covariance, 1.0)
    spread = spread_of(evidence, covariance)
    seen = seen_in(evidence, noisy_design(evidence), spread, evidence.statistics, each=True)
    weights = np.asarray(unpack(seen.each))
    coefficients, _ = least_squares(alone, weights, seen.scores, prior)
    left = seen.scores - np.einsum("nij,nj->ni", weights, alone.times(coefficients))
    return left, np.maximum(np.einsum("nii->ni", weights), 0.0)


def _lengths(regressors: Regressors, scores: Floats, own: Floats) -> NDArray[np.float64]:
    """Return the mean squared entry of Σ_i x_i u_i of every group and coordinate, beyond what covariates explain."""
    dense = regressors.covariates
    left = np.empty_like(scores)
    for c, (score, weight) in enumerate(zip(scores.T, own.T, strict=True)):
        weighted = weight[:, None] * dense
        gram = dense.T @ weighted
        gram += 1e-9 * max(float(np.trace(gram)), 1e-300) * np.eye(len(gram))
        left[:, c] = score - weighted @ np.linalg.solve(gram, dense.T @ score)
    return group_means(regressors, np.square(regressors.features.T @ left))
