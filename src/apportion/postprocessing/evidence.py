"""Combines the releases of several rounds into one body of evidence about all tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.empirical_bayes import Evidence
from apportion.postprocessing.popularity import Exposure
from apportion.postprocessing.running import VARIANCES, Beliefs

Floats = NDArray[np.floating[Any]]

# standard deviation of the mean error of predictions around its expectation, among data sets, in labels
_OFFSET_SPREAD = 0.05


@dataclass(frozen=True)
class SharedMoments:
    """The moments that all tasks share, as far as all rounds up to this one tell them.

    Attributes:
        beliefs: what is known of the level of each.
        design: second moment A of the features that tasks are regressed on.
        offset: mean residual of this round, in labels.
        offset_variance: of its noise.
    """

    beliefs: Beliefs
    design: NDArray[np.float64]
    offset: float
    offset_variance: float

    @property
    def residual_variance(self) -> float:
        """Mean squared residual of the labels."""
        return self.beliefs.residual.between(*VARIANCES).mean

    @property
    def clipped_variance(self) -> float:
        """The same after users' contributions were clipped."""
        return float(np.clip(self.beliefs.clipped.mean, 0.05, 4.0))


def shared_moments(released: Floats, stddev: float, before: Beliefs) -> SharedMoments:
    """Read the summed votes: (say, say·s², say·e², say·clipped e², say·e, say·q qᵀ / d), see `linalg.rating_round`.

    Levels are averaged with those of earlier rounds (`running`). The latent block is shrunk towards a multiple of the
    identity, as far as its noise requires, and kept positive.
    """
    latent = (int(np.sqrt(8 * (len(released) - 5) + 1)) - 1) // 2
    rows, columns = np.tril_indices(latent)
    traced = float(released[5:][rows == columns].sum())
    known = before.after(released[:4], traced if latent else None, stddev, latent)
    voters = max(known.voters.mean, 10.0)
    design = np.diag([float(np.clip(known.slope.mean, 0.2, 1.2))])
    if latent:
        level = float(np.clip(known.level.mean, 0.05, 1.5))
        block = _latent_block(released[5:] / voters, latent, level, stddev / voters)
        design = np.block([[design, np.zeros((1, latent))], [np.zeros((latent, 1)), block]])
    return SharedMoments(known, design, float(released[4]) / voters, (stddev / voters) ** 2)


def _latent_block(votes: Floats, latent: int, level: float, stddev: float) -> NDArray[np.float64]:
    rows, columns = np.tril_indices(latent)
    block = np.zeros((latent, latent))
    block[rows, columns] = votes * latent / np.where(rows == columns, 1.0, np.sqrt(2))
    block = block + np.tril(block, -1).T
    apart = block - np.trace(block) / latent * np.eye(latent)
    noise = np.square(stddev * latent) * latent * (latent + 1) / 2
    kept = max(0.0, 1.0 - noise / max(float(np.square(apart).sum()), 1e-12))
    values, vectors = np.linalg.eigh(level * np.eye(latent) + kept * apart)
    positive: NDArray[np.float64] = (vectors * np.maximum(values, 0.1 * level)) @ vectors.T
    return positive


@dataclass(frozen=True)
class RoundEvidence:
    """One round: statistics b with E b_i = t_i A θ_i, the design A, and the noise of each coordinate.

    Residuals were taken around parameters c; `around` is A c_i for every task.
    """

    statistics: NDArray[np.float64]
    design: NDArray[np.float64]
    stddev: NDArray[np.float64]
    offset: float
    offset_variance: float
    around: NDArray[np.float64]


def of_round(
    released: Floats, stddev: float, scales: Floats, moments: SharedMoments, centres: Floats, exposure: Exposure
) -> RoundEvidence:
    """Turn summed residual contributions into statistics of the parameters themselves.

    Residuals were taken around parameters `centres` c, so the sum estimates t_i A (θ_i − c_i); adding t_i A c_i gives
    t_i A θ_i.
    """
    around = centres @ moments.design.T
    shifted = released / scales + exposure.total[:, None] * around
    noise = np.asarray(stddev / scales, np.float64)
    return RoundEvidence(shifted, moments.design, noise, moments.offset, moments.offset_variance, around)


def combine(
    rounds: Sequence[RoundEvidence],
    exposure: Exposure,
    label_variance: float,
    have_vectors: NDArray[np.bool_] | None = None,
) -> Evidence:
    """Average rounds coordinate by coordinate, each weighted by the inverse of its noise variance.

    Args:
        rounds: all rounds so far.
        exposure: of the tasks.
        label_variance: of residuals, as clipped.
        have_vectors: the tasks of which rounds say more than the first coordinate; None for all.
    """
    width = max(len(r.stddev) for r in rounds)
    statistics, around = np.zeros((2, len(rounds[0].statistics), width))
    design, precision = np.zeros((width, width)), np.zeros(width)
    for r in rounds:
        known = len(r.stddev)
        weight = r.stddev**-2
        statistics[:, :known] += r.statistics * weight
        around[:, :known] += r.around * weight
        design[:known, :known] += weight[:, None] * r.design
        precision[:known] += weight
    statistics /= precision
    return Evidence(
        statistics,
        design / precision[:, None],
        exposure.total,
        exposure.variance,
        label_variance * exposure.squares,
        1 / precision,
        have_vectors,
        around / precision,
        _moves(rounds, exposure),
    )


def _moves(rounds: Sequence[RoundEvidence], exposure: Exposure) -> NDArray[np.float64]:
    """Return how what rounds released of each task moved with what they were around: (s, u), one row per task.

    In terms of the first parameter, round k released x_k = t (θ − c_k) and noise, so x_k + t c_k differs by the noise
    alone. Therefore, beyond the mean of that, rounds give an exposure t the log-likelihood −(2 t s + t² u)/2.
    """
    sums = np.zeros((5, len(exposure.total)))
    for r in rounds:
        slope = float(r.design[0, 0])
        x = (r.statistics[:, 0] - exposure.total * r.around[:, 0]) / slope
        c, weight = r.around[:, 0] / slope, (slope / float(r.stddev[0])) ** 2
        sums += weight * np.stack([np.ones_like(x), x, c, x * c, c * c])
    total = np.maximum(sums[0], 1e-300)
    return np.stack([sums[3] - sums[1] * sums[2] / total, sums[4] - np.square(sums[2]) / total], axis=1)


def offset(rounds: Sequence[RoundEvidence], left: float, expected: float) -> float:
    """Return the mean error of predictions: the mean residual of several rounds, shrunk towards an expected value.

    Args:
        rounds: the rounds whose residuals are those of the model.
        left: the part of an offset that remains in residuals after users' own biases absorbed the rest.
        expected: the mean error according to other releases; it is returned if there are no rounds.
    """
    if not rounds:
        return expected
    precision = np.array([1 / r.offset_variance for r in rounds])
    mean = float(precision @ np.array([r.offset for r in rounds]) / precision.sum()) / left
    noise = 1 / float(precision.sum()) / left**2
    trust = _OFFSET_SPREAD**2 / (_OFFSET_SPREAD**2 + noise)
    return expected + trust * (mean - expected)
