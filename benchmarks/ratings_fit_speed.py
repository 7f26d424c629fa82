"""Claim: a private fit of ratings at the machine's limit, and no slower than `implicit` without privacy.

Two parts, each a ratio in one run. *Round:* the users' side of one round on 136,677 x 20,108 with 10 million ratings,
8 latent dimensions, by the fused kernel and by the NumPy reference that it equals bit for bit. *Fit:* a whole default
fit of the same data against `implicit`'s fit with as many factors, 15 iterations and the same threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from apportion import linalg
from apportion.data import Interactions
from apportion.linalg import RatingRound, TaskWeights
from apportion.recommend import PrivateRatingRecommender
from benchmarks import peers, scale
from benchmarks.claim import Outcome, UnavailableError, print_table

LATENT, ITERATIONS, CLIP, SUMMARY_CLIP = 8, 15, 0.7, 2.0
TARGET = {"round": 1 / 15, "fit": 1.0}
QUICK_TARGET = {"round": 0.5, "fit": 20.0}


def measure(quick: bool) -> Outcome:
    """Time the round both ways, then the fit and its peer."""
    data = ratings(8_000, 1_500, 300_000) if quick else ratings()
    fused = scale.best_of(3, our_round(data))
    with linalg.use_backend("numpy"):
        plain = scale.best_of(1, our_round(data))
    ours = scale.best_of(1, lambda: PrivateRatingRecommender(epsilon=1.0).fit(data))
    theirs = scale.best_of(1, implicit_fit(data))
    speed = 1e9 * fused / data.n_observations * scale.threads()
    print_table(
        ["", "seconds"],
        [["round, fused", fused], ["round, NumPy", plain], ["fit, private", ours], ["fit, implicit", theirs]],
    )
    print(f"{speed:.1f} ns of one thread for a rating in a round")
    value = {"round": round(fused / plain, 4), "fit": round(ours / theirs, 4)}
    target = QUICK_TARGET if quick or not linalg.compiled_available() else TARGET
    return Outcome(
        value,
        target,
        all(value[name] <= target[name] for name in value),
        f"a default private fit of 10M ratings takes {value['fit']:.2f}x of implicit's fit; the users' side of a round "
        f"{value['round']:.3f}x of its NumPy reference",
        {"shape": [data.n_users, data.n_tasks, data.n_observations], "seconds": [fused, plain, ours, theirs]},
    )


def ratings(
    n_users: int = scale.USERS, n_tasks: int = scale.TASKS, n_observations: int = scale.OBSERVATIONS
) -> Interactions:
    """The long-tailed clicks of the other speed claims, each with a rating from 1 to 5 in halves."""
    clicks = scale.clicks(n_users, n_tasks, n_observations)
    rng = np.random.default_rng(11)
    quality, mood = rng.standard_normal(n_tasks), rng.standard_normal(n_users)
    noise = rng.standard_normal(clicks.n_observations)
    values = 3.5 + 0.4 * quality[clicks.tasks] + 0.4 * mood[clicks.users] + 0.8 * noise
    rounded = np.clip(np.round(2 * values) / 2, 1, 5).astype(np.float32)
    return Interactions.from_arrays(clicks.users, clicks.tasks, rounded, task_ids=np.arange(n_tasks))


def our_round(data: Interactions) -> Callable[[], None]:
    """One pass over all users with random item parameters."""
    rng = np.random.default_rng(3)
    features = 0.3 * rng.standard_normal((data.n_tasks, 2 + LATENT))
    features[:, 0] = 1
    precision = 1 / np.array([0.15, 0.15] + [1.0] * LATENT)
    about = RatingRound(
        features=features,
        trust=1 / rng.uniform(0.8, 1.5, data.n_tasks),
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
    weights = TaskWeights(rng.uniform(0.1, 1, data.n_tasks))

    def run() -> None:
        by_task = np.zeros((about.n_tasks, about.width), np.int64)
        total = np.zeros(about.summary_width, np.int64)
        linalg.rating_round(data.by_user.indptr, data.tasks, data.values, weights, about, by_task, total)

    return run


def implicit_fit(data: Interactions) -> Callable[[], None]:
    """The peer's default fit, with as many factors and threads."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError as missing:
        raise UnavailableError("the package `implicit` is not installed") from missing
    from threadpoolctl import threadpool_limits

    matrix = peers.as_matrix(data)

    def run() -> None:
        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(
                factors=LATENT, iterations=ITERATIONS, num_threads=scale.threads(), random_state=0
            )
            model.fit(matrix, show_progress=False)

    return run
