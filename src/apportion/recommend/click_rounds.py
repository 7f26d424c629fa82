"""Parts of a round on clicks that need released values alone: where it starts, and what is made of its release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.sparse_rows import SparseRows
from apportion.linalg.places import PROCESSORS, Place
from apportion.postprocessing import feature_rows
from apportion.postprocessing.low_rank import Denoised, denoise_rows
from apportion.recommend.features.prior import regressors

Floats = NDArray[np.floating[Any]]


def random_start(found: Floats, dimension: int, rng: np.random.Generator) -> Denoised:
    """Return random vectors, longer for popular tasks, that cancel out for a user of average taste."""
    vectors = rng.standard_normal((len(found), dimension)) * np.sqrt(found)[:, None]
    vectors -= found @ vectors / found.sum()
    return Denoised(vectors, np.zeros(len(found)))


@dataclass(frozen=True, eq=False)
class ReleasedVectors:
    """One release of vectors, and the standard deviation of its noise."""

    values: NDArray[np.float64]
    stddev: float

    def with_another(self, before: ReleasedVectors) -> ReleasedVectors:
        """Return the average with a release of about the same vectors, weighted by precision.

        The other one has coordinates of its own. It is turned by the rotation that brings it closest to this one.
        """
        left, _, right = np.linalg.svd(before.values.T @ self.values)
        ours, theirs = 1 / self.stddev**2, 1 / before.stddev**2
        values = ours * self.values + theirs * (before.values @ (left @ right))
        return ReleasedVectors(values / (ours + theirs), float(1 / np.sqrt(ours + theirs)))


def beside_popularity(released: Floats, exposure: Floats) -> NDArray[np.float64]:
    """Return the vectors without what popularity alone explains."""
    vectors = np.asarray(released, np.float64)
    return np.asarray(vectors - np.outer(exposure / (exposure @ exposure), exposure @ vectors))


def denoised_vectors(
    released: Floats,
    stddev: float,
    exposure: Floats,
    least_popularity: float,
    steps: int,
    features: SparseRows | None = None,
    place: Place = PROCESSORS,
) -> Denoised:
    """Return the vectors of a round without what popularity alone explains, by empirical Bayes.

    Args:
        released: one row per task.
        stddev: of its noise.
        exposure: released popularity under the weights of the round.
        least_popularity: fraction of the mean popularity below which a task's prior variance does not fall.
        steps: EM steps.
        features: public ones that move the mean of the prior; None for none.
        place: where to compute if there are none.
    """
    vectors = beside_popularity(released, exposure)
    spread = np.maximum(exposure, least_popularity * exposure.mean())
    if features is None:
        return denoise_rows(vectors, stddev, spread, steps, place)
    explanatory = regressors(np.ones((len(vectors), 1)), features)
    return feature_rows.denoise_rows(vectors, stddev, spread, explanatory, steps)
