"""One round on ratings as the speed claims run it: random item parameters, all users in one pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from apportion import linalg
from apportion.data import Interactions
from apportion.linalg import RatingRound, TaskWeights

LATENT, CLIP, SUMMARY_CLIP = 8, 0.7, 2.0


def told(n_tasks: int) -> RatingRound:
    """Random item parameters, as users are told them at the beginning of a round."""
    rng = np.random.default_rng(3)
    features = 0.3 * rng.standard_normal((n_tasks, 2 + LATENT))
    features[:, 0] = 1
    precision = 1 / np.array([0.15, 0.15] + [1.0] * LATENT)
    return RatingRound(
        features=features,
        trust=1 / rng.uniform(0.8, 1.5, n_tasks),
        base=np.diag(precision),
        base_rhs=precision * np.eye(2 + LATENT)[1],
        scales=np.array([1.0] + [1.2 / np.sqrt(LATENT)] * LATENT),
        value_range=(1.0, 5.0),
        centre=3.5,
        unit=1.0,
        clip_norm=CLIP,
        step=linalg.step_below(CLIP, 32),
        summary_clip=SUMMARY_CLIP,
        summary_step=linalg.step_below(SUMMARY_CLIP, 32),
    )


def our_round(data: Interactions) -> Callable[[], None]:
    """One pass over all users with random item parameters."""
    about = told(data.n_tasks)
    weights = TaskWeights(np.random.default_rng(4).uniform(0.1, 1, data.n_tasks))

    def run() -> None:
        by_task = np.zeros((about.n_tasks, about.width), np.int64)
        total = np.zeros(about.summary_width, np.int64)
        linalg.rating_round(data.by_user.indptr, data.tasks, data.values, weights, about, by_task, total)

    return run
