"""Parts of a round on clicks that need released values alone: where it starts, and what is made of its release."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.sparse_rows import SparseRows
from apportion.postprocessing import feature_rows
from apportion.postprocessing.low_rank import Denoised, denoise_rows
from apportion.recommend.features.prior import regressors

Floats = NDArray[np.floating[Any]]


def random_start(found: Floats, dimension: int, rng: np.random.Generator) -> Denoised:
    """Return random vectors, longer for popular tasks, that cancel out for a user of average taste."""
    vectors = rng.standard_normal((len(found), dimension)) * np.sqrt(found)[:, None]
    vectors -= found @ vectors / found.sum()
    return Denoised(vectors, np.zeros(len(found)))


def denoised_vectors(
    released: Floats,
    stddev: float,
    exposure: Floats,
    least_popularity: float,
    steps: int,
    features: SparseRows | None = None,
) -> Denoised:
    """Return the vectors of a round without what popularity alone explains, by empirical Bayes.

    Args:
        released: one row per task.
        stddev: of its noise.
        exposure: released popularity under the weights of the round.
        least_popularity: fraction of the mean popularity below which a task's prior variance does not fall.
        steps: EM steps.
        features: public ones that move the mean of the prior; None for none.
    """
    vectors = np.asarray(released, np.float64)
    vectors -= np.outer(exposure / (exposure @ exposure), exposure @ vectors)
    spread = np.maximum(exposure, least_popularity * exposure.mean())
    if features is None:
        return denoise_rows(vectors, stddev, spread, steps)
    explanatory = regressors(np.ones((len(vectors), 1)), features)
    return feature_rows.denoise_rows(vectors, stddev, spread, explanatory, steps)
