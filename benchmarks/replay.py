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
from pathlib import Path
from typing import Any

from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def measure(quick: bool) -> Outcome:
    """Run the audit on more data sets than the suite does."""
    from private_estimators import PRIVATE_ESTIMATORS

    rows, largest, idlest = [], 0.0, 1.0
    for name, make in PRIVATE_ESTIMATORS.items():
        on_random = _largest_on_random_data(make, 2 if quick else 60)
        at_bound = _largest_at_the_bound(make)
        rows.append([name, len(at_bound), on_random, min(at_bound.values())])
        largest, idlest = max(largest, on_random, *at_bound.values()), min(idlest, *at_bound.values())
    print_table(["estimator", "releases", "largest ratio, random data", "least reached, data at the bound"], rows)
    return Outcome(
        value={"largest": largest, "least_reached": idlest},
        target={"largest": 1 + 1e-9, "least_reached": 0.9},
        holds=largest <= 1 + 1e-9 and idlest >= 0.9,
        headline=f"largest ratio of a pre-noise difference to its declared sensitivity {largest:.9f}; every bound "
        f"reached to at least {idlest:.3f}",
        settings={"data_sets": 2 if quick else 60, "users_removed": "each of the first 12", "precision": "float64"},
    )


def _ratios(make: Any, data: Any, user: int, seed: int, epsilon: float) -> dict[str, float]:
    from private_estimators import audit_estimator

    findings = audit_estimator(make, data, user, epsilon=epsilon, seed=seed)
    return {f.name: f.ratio if f.gap <= 1e-7 else float("inf") for f in findings}


def _largest_on_random_data(make: Any, n_data_sets: int) -> float:
    from strategies import random_interactions

    seeds = itertools.product(range(n_data_sets), range(12))
    return max(
        max(_ratios(make, random_interactions(seed), user, seed, (0.5, 5.0, 100.0)[seed % 3]).values())
        for seed, user in seeds
    )


def _largest_at_the_bound(make: Any) -> dict[str, float]:
    from private_estimators import at_the_bound

    data, users = at_the_bound()
    best: dict[str, float] = {}
    for seed, user in itertools.product(range(4), users):
        for name, ratio in _ratios(make, data, user, seed, 50.0).items():
            best[name] = max(ratio, best.get(name, 0.0))
    return best
