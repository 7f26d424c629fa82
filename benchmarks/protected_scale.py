"""Claim: a round with 10,000 tasks of 200 features takes seconds, and its time grows linearly with the tasks.

A round is what parties compute and send, the release, what the curator reads from it, and what parties learn from the
matrix that they get back. Private EM (five priors a round beside learning alone) and the low-rank method; 30 rows a
task, models of rank 5, ε = 10. The time of the second of two rounds is taken, the first one having paid for what is
done once, in seconds of the processor with one thread, so that what else runs on the machine does not count. Doubling
the tasks must multiply it by 1.6 to 2.4, each the least of two fits.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from apportion.parties import ProtectedMultiTask
from apportion.privacy import SeededNoise
from benchmarks.claim import Outcome, Rehearsal, print_table

SIZES, FEATURES, ROWS, RANK = (2_500, 5_000, 10_000), 200, 30, 5
MOST_SECONDS = 10.0
STRUCTURES = ("em", "low-rank")
Floats = NDArray[np.float64]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit both methods at every size."""
    sizes, features = ((100, 200), 40) if quick else (SIZES, FEATURES)
    seconds: dict[str, list[float]] = {structure: [] for structure in STRUCTURES}
    for size in sizes:
        data = _tasks(size, features)
        for structure in STRUCTURES:
            seconds[structure].append(min(_second_round(data, structure) for _ in range(1 if quick else 2)))
    print_table(
        ["tasks", *(f"{name}, s a round" for name in STRUCTURES)], list(zip(sizes, *seconds.values(), strict=True))
    )
    growth = {
        f"{name} {sizes[k]} to {sizes[k + 1]}": round(times[k + 1] / times[k], 3)
        for name, times in seconds.items()
        for k in range(len(sizes) - 1)
    }
    last = {name: round(times[-1], 2) for name, times in seconds.items()}
    low, high = 1.6, 2.4
    if quick:  # so few tasks take milliseconds
        return Rehearsal(
            {"growth": growth}, {"twice the tasks take less than ten times as long": max(growth.values()) < 10}
        )
    linear = low <= min(growth.values()) and max(growth.values()) <= high
    return Outcome(
        value={"seconds a round": last, "growth": growth},
        target={"seconds a round": MOST_SECONDS, "growth": [low, high]},
        holds=linear and max(last.values()) <= MOST_SECONDS,
        headline=_headline(sizes[-1], features, last, growth),
        settings={"tasks": list(sizes), "features": features, "rows": ROWS, "seconds": seconds, "blas_threads": 1},
    )


def _headline(tasks: int, features: int, last: dict[str, float], growth: dict[str, float]) -> str:
    times = f"{last['em']:.1f} s a round of EM, {last['low-rank']:.1f} s of the low-rank method"
    factors = f"{min(growth.values()):.2f} to {max(growth.values()):.2f}"
    return f"{tasks:,} tasks x {features} features: {times}; doubling the tasks multiplies it by {factors}"


def _second_round(data: tuple[list[Floats], list[Floats]], structure: str) -> float:
    from threadpoolctl import threadpool_limits

    times: list[float] = []
    model = ProtectedMultiTask(10.0, structure=structure, rounds=2, noise=SeededNoise(1))
    with threadpool_limits(1, "blas"):
        model.fit(*data, progress=lambda *_: times.append(time.process_time()))
    return times[1] - times[0]


def _tasks(n_tasks: int, n_features: int) -> tuple[list[Floats], list[Floats]]:
    rng = np.random.default_rng(4)
    models = rng.standard_normal((n_tasks, RANK)) @ rng.standard_normal((RANK, n_features))
    features = [rng.standard_normal((ROWS, n_features)) for _ in range(n_tasks)]
    labels = [x @ w + 3 * rng.standard_normal(ROWS) for x, w in zip(features, models, strict=True)]
    return features, labels
