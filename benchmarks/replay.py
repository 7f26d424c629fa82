"""Claim: no release of any private estimator moves by more than its declared sensitivity when a user leaves.

Each estimator is fitted to random small data sets; the run is repeated without one user (rows taken out, and rebuilt
from scratch) and on that user alone, fed what the first run released. All runs must ask for the same releases and
return the same model, and hidden sums must add up over users. The largest ratio of the pre-noise difference to the
declared sensitivity is reported, over all releases, and on data built to reach the bound the largest ratio of each
release, which shows that the bound is not idle.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

Ratios = Callable[[Any, int, int, float], dict[str, float]]


REACHING = ("ridge, adaptive", "ridge, equal split", "squared loss, adaptive")
"""Regressions that the data at the bound were built for; the others' weights leave some of a user's unit unused."""

_SEEDS = 4  # of the noise that users at the bound meet

IDLE = ("encoder, convex loss",)
"""Of the estimators with torch: a slope or a curvature at its bound needs scores that these data do not bring about."""


def measure(quick: bool) -> Outcome:
    """Run the audit on more data sets than the suite does."""
    from private_estimators import PRIVATE_ESTIMATORS, PRIVATE_REGRESSIONS, audits_with_torch

    many, few = ((1, 2), (1, 1)) if quick else ((12, 12), (4, 6))  # data sets, and users to take out
    rows, largest, idlest = [], 0.0, 1.0
    every = 3 if quick else 1  # the suite replays all of them, on its own data
    audits = [
        (name, partial(_recommender_ratios, make), True, many)
        for name, make in list(PRIVATE_ESTIMATORS.items())[::every]
    ]
    audits += [
        (name, partial(_regression_ratios, make), name in REACHING, many)
        for name, make in list(PRIVATE_REGRESSIONS.items())[::every]
    ]
    audits += [
        (name, partial(_ratios, audit), name not in IDLE, few)
        for name, audit in list(audits_with_torch().items())[:: 4 * every if quick else 1]
    ]
    for name, ratios, reaches, sizes in audits:
        on_random = _largest_on_random_data(ratios, *sizes)
        at_bound = _largest_at_the_bound(ratios)
        largest = max(largest, on_random, *at_bound.values())
        if reaches:
            idlest = min(idlest, *at_bound.values())
        rows.append([name, len(at_bound), on_random, min(at_bound.values()) if reaches else "-"])
    print_table(["estimator", "releases", "largest ratio, random data", "least reached, data at the bound"], rows)
    return Outcome(
        value={"largest": largest, "least_reached": idlest},
        target={"largest": 1 + 1e-9, "least_reached": 0.9},
        holds=largest <= 1 + 1e-9 and idlest >= 0.9,
        headline=f"{len(rows)} private estimators: largest ratio of a pre-noise difference to its declared sensitivity "
        f"{largest:.9f}; bounds reached to at least {idlest:.3f} on data built for it",
        settings={
            "data_sets": many[0],
            "users_removed": f"each of the first {many[1]}",
            "with torch": f"{len(audits_with_torch())} of them, on {few[0]} data sets without each of {few[1]} users",
            "precision": "float64",
        },
    )


def _recommender_ratios(make: Any, data: Any, user: int, seed: int, epsilon: float) -> dict[str, float]:
    from private_estimators import audit_estimator

    return _by_name(audit_estimator(make, data, user, epsilon=epsilon, seed=seed))


def _regression_ratios(make_for: Any, data: Any, user: int, seed: int, epsilon: float) -> dict[str, float]:
    from private_estimators import audit_regression

    return _by_name(audit_regression(make_for(data.n_tasks), data, user, epsilon=epsilon, seed=seed))


def _ratios(audit: Any, data: Any, user: int, seed: int, epsilon: float) -> dict[str, float]:
    return _by_name(audit(data, user, epsilon=epsilon, seed=seed))


def _by_name(findings: list[Any]) -> dict[str, float]:
    return {f.name: f.ratio if f.gap <= 1e-7 else float("inf") for f in findings}


def _largest_on_random_data(ratios: Ratios, n_data_sets: int, n_users: int) -> float:
    from strategies import random_interactions

    return max(
        max(ratios(random_interactions(seed), user, seed, (0.5, 5.0, 100.0)[seed % 3]).values())
        for seed, user in itertools.product(range(n_data_sets), range(n_users))
    )


def _largest_at_the_bound(ratios: Ratios) -> dict[str, float]:
    from private_estimators import at_the_bound

    data, users = at_the_bound()
    best: dict[str, float] = {}
    for seed, user in itertools.product(range(_SEEDS), users):
        for name, ratio in ratios(data, user, seed, 50.0).items():
            best[name] = max(ratio, best.get(name, 0.0))
    return best
