"""Denoises a matrix with one row per task. The rows are drawn from a common prior and have known noise.

Model: row i of B is β_i + e_i with e_i ~ N(0, σ² I) known and β_i ~ N(0, h_i Σ), where h_i grows with the task's
exposure and Σ is common. Σ is fitted by EM, and each row is replaced by its posterior mean. Directions within the noise
are shrunk away for all tasks; a tail task is shrunk more than a head task, in every direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Denoised:
    """Posterior means of all rows, and the fraction of each row's prior variance that the data resolved."""

    mean: NDArray[np.float64]
    resolved: NDArray[np.float64]


def denoise_rows(noisy: Floats, stddev: float, spread: Floats, steps: int) -> Denoised:
    """Return posterior means of rows with prior N(0, spread_i Σ), Σ fitted in `steps` EM steps.

    Args:
        noisy: one row per task.
        stddev: the standard deviation of the noise on every entry.
        spread: h, relative prior variance of each task's row.
        steps: EM steps, from the raw second moment. Stopping early regularises: rows have heavier tails than the
            prior, and EM run to the end shrinks too much (measured: 30 steps lose 0.01 to 0.02 Recall@20 against 3).
    """
    rows = np.asarray(noisy, np.float64) / stddev
    relative = np.asarray(spread, np.float64)[:, None] / np.mean(spread)
    root = np.sqrt(relative)
    covariance = _second_moment(rows / root)
    for _ in range(steps):
        means, leftover, basis, _ = _posterior(rows, relative, covariance)
        means /= root
        covariance = basis @ (_second_moment(means) + np.diag(leftover)) @ basis.T
    means, _, basis, kept = _posterior(rows, relative, covariance)
    return Denoised(stddev * (means @ basis.T), kept)


def _second_moment(rows: Floats) -> NDArray[np.float64]:
    return np.asarray(rows.T @ rows / len(rows))


def _posterior(
    rows: Floats, relative: Floats, covariance: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return posteriors in the eigenbasis of Σ.

    These are the means, the mean remaining variance over h, the basis, and the resolved share of each row.
    """
    values, basis = np.linalg.eigh(covariance)
    values = np.maximum(values, 1e-9)
    # the share of a coordinate that is shrunk away, computed in place because these arrays are large
    shrunk = relative * values
    shrunk += 1
    np.reciprocal(shrunk, out=shrunk)
    leftover = values * shrunk.mean(axis=0)
    resolved = 1 - shrunk @ values / values.sum()
    means = rows @ basis
    means *= np.subtract(1, shrunk, out=shrunk)
    return means, leftover, basis, resolved
