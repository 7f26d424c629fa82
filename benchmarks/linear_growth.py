"""Claim: the time of a private fit grows linearly with the observations.

Users grow in step with observations (73 rows a user), over a fixed list of items; the fastest of three fits of each
recommender per size. Doubling the observations must double the time within 20 %: a factor from 1.6 to 2.4. (A factor
below 2 says that what does not depend on the observations, such as tasks, noise and set-up, still shows.) NumPy's own
BLAS is held to one thread: its idle threads spin for a while after each product and take the kernel's cores, by
chance more or less.
"""

from __future__ import annotations

import time

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.recommend import ClickSettings, PrivateClickRecommender, PrivateRatingRecommender, RatingSettings
from benchmarks.claim import Outcome, Rehearsal, print_table

ROWS_PER_USER, TASKS = 73, 2_000
SIZES = [1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit both recommenders at every size."""
    sizes = [50_000, 100_000] if quick else SIZES
    seconds: dict[str, list[float]] = {"ratings": [], "clicks": []}
    for size in sizes:
        data = _ratings(size)
        for kind, fit in (("ratings", _fit_ratings), ("clicks", _fit_clicks)):
            seconds[kind].append(min(_seconds(fit, data) for _ in range(2 if quick else 3)))
    rows = [[size, seconds["ratings"][k], seconds["clicks"][k]] for k, size in enumerate(sizes)]
    print_table(["observations", "ratings s", "clicks s"], rows)
    growth = {
        f"{kind} {sizes[k] / 1e6:g}M to {sizes[k + 1] / 1e6:g}M": round(times[k + 1] / times[k], 3)
        for kind, times in seconds.items()
        for k in range(len(sizes) - 1)
    }
    low, high = 1.6, 2.4
    if quick:  # of so few observations fixed costs show, and other work on the machine
        return Rehearsal(growth, {"twice the observations take less than four times as long": max(growth.values()) < 4})
    return Outcome(
        growth,
        {"at_least": low, "at_most": high},
        low <= min(growth.values()) and max(growth.values()) <= high,
        f"doubling the observations multiplies the time of a fit by {min(growth.values()):.2f} to "
        f"{max(growth.values()):.2f} (1.6 to 2.4 asked), from {sizes[0]:,} to {sizes[-1]:,}",
        {"sizes": sizes, "seconds": seconds, "rows_per_user": ROWS_PER_USER, "blas_threads": 1, "tasks": TASKS},
    )


def _ratings(size: int) -> Interactions:
    rng = np.random.default_rng(3)
    data, _ = long_tailed_ratings(size // ROWS_PER_USER, TASKS, size, rank=4, rng=rng)
    assert data.by_task.n_segments == TASKS  # builds both orders, so that no fit is charged for them
    return data


def _fit_ratings(data: Interactions) -> None:
    PrivateRatingRecommender(epsilon=5.0, settings=RatingSettings(rounds=2)).fit(data)


def _fit_clicks(data: Interactions) -> None:
    PrivateClickRecommender(epsilon=5.0, settings=ClickSettings(dimension=64)).fit(data)


def _seconds(fit, data: Interactions) -> float:  # type: ignore[no-untyped-def]
    from threadpoolctl import threadpool_limits

    start = time.perf_counter()
    with threadpool_limits(1, "blas"):
        fit(data)
    return time.perf_counter() - start
