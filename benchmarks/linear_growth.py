"""Claim: the time of a private fit grows linearly with the observations.

Users grow in step with observations (73 rows a user), over a fixed list of items; the fastest of three fits of each
recommender per size: 1M to 64M ratings, 1M to 16M clicks. Doubling the observations must double the time within 10 %
for ratings, 20 % for clicks. Choices, which a fit of ratings learns of at most 50,000 users, are left out. (A factor
below 2 says that what does not depend on the observations, such as tasks, noise and set-up, still shows; one above it,
that the rows of users outgrow a cache.) NumPy's own BLAS is held to one thread: its idle threads spin for a while after
each product and take the kernel's cores, by chance more or less.
"""

from __future__ import annotations

import time

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.recommend import ClickSettings, PrivateClickRecommender, PrivateRatingRecommender, RatingSettings
from benchmarks import scale
from benchmarks.claim import Outcome, Rehearsal, print_table

ROWS_PER_USER, TASKS = 73, 2_000
FIRST = 1_000_000
DOUBLINGS = {"ratings": 6, "clicks": 4}
WITHIN = {"ratings": (1.8, 2.2), "clicks": (1.6, 2.4)}


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit both recommenders at every size."""
    first, doublings = (50_000, dict.fromkeys(DOUBLINGS, 1)) if quick else (FIRST, DOUBLINGS)
    base = _ratings(first)
    seconds: dict[str, list[float]] = {"ratings": [], "clicks": []}
    for k in range(max(doublings.values()) + 1):
        data = scale.repeated(base, 2**k)
        for kind, fit in (("ratings", _fit_ratings), ("clicks", _fit_clicks)):
            if k <= doublings[kind]:
                seconds[kind].append(min(_seconds(fit, data) for _ in range(2 if quick else 3)))
        del data
    for kind, times in seconds.items():
        print_table([f"million {kind}", "seconds"], [[first * 2**k / 1e6, time] for k, time in enumerate(times)])
    growth = {
        f"{kind} {first * 2**k / 1e6:g}M to {first * 2 ** (k + 1) / 1e6:g}M": round(times[k + 1] / times[k], 3)
        for kind, times in seconds.items()
        for k in range(len(times) - 1)
    }
    if quick:  # of so few observations fixed costs show, and other work on the machine
        return Rehearsal(growth, {"twice the observations take less than four times as long": max(growth.values()) < 4})
    of_kind = {kind: [factor for name, factor in growth.items() if name.startswith(kind)] for kind in WITHIN}
    return Outcome(
        growth,
        {kind: list(limits) for kind, limits in WITHIN.items()},
        all(low <= min(of_kind[kind]) and max(of_kind[kind]) <= high for kind, (low, high) in WITHIN.items()),
        "doubling the observations multiplies the time of a fit by "
        + ", ".join(f"{min(found):.2f} to {max(found):.2f} ({kind})" for kind, found in of_kind.items()),
        {"first": first, "seconds": seconds, "rows_per_user": ROWS_PER_USER, "blas_threads": 1, "tasks": TASKS},
    )


def _ratings(size: int) -> Interactions:
    data, _ = long_tailed_ratings(size // ROWS_PER_USER, TASKS, size, rank=4, rng=np.random.default_rng(3))
    return data


def _fit_ratings(data: Interactions) -> None:
    PrivateRatingRecommender(epsilon=5.0, settings=RatingSettings(rounds=2, choice_share=0.0)).fit(data)


def _fit_clicks(data: Interactions) -> None:
    PrivateClickRecommender(epsilon=5.0, settings=ClickSettings(dimension=64)).fit(data)


def _seconds(fit, data: Interactions) -> float:  # type: ignore[no-untyped-def]
    from threadpoolctl import threadpool_limits

    assert data.as_users.indptr[0] == 0  # builds the order, so that no fit is charged for it
    start = time.perf_counter()
    with threadpool_limits(1, "blas"):
        fit(data)
    return time.perf_counter() - start
