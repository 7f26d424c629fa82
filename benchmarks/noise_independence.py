"""Claim: no draw of noise depends on another, in one source, its copies, threads, processes, and in whole fits.

Every scene (tests/noise_scenes.py) makes two streams, or one that is compared with itself, at every lag. A scene
accuses independent streams with probability at most 1e-9 (Chernoff's bound, added up over the lags). The noise of every
release of every recommender is compared likewise. Sources that repeat, that keep a key for each shape, that go on in
one stream after a copy or a fork must be found out, so that the comparison is one that can fail.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

from apportion.auditing.streams import dependence
from apportion.privacy import SeededNoise, SystemNoise
from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

REPETITIONS, SIZE = 20, 1 << 17
QUICK_REPETITIONS, QUICK_SIZE = 1, 1 << 13


def measure(quick: bool) -> Outcome:
    """Play every scene for both sources, then look at fits and at wrong sources."""
    scenes: Any = importlib.import_module("noise_scenes")
    repetitions, size = (QUICK_REPETITIONS, QUICK_SIZE) if quick else (REPETITIONS, SIZE)
    rows, looks, worst = [], 0, 0.0
    for name, make, played in (
        ("secure", SystemNoise, (*scenes.WITHIN, *scenes.COPIES)),
        ("seeded", partial(SeededNoise, 11), scenes.WITHIN),
    ):
        for scene in played:
            seen = [scenes.look(scene, make, size) for _ in range(repetitions if name == "secure" else 1)]
            excess, runs = max(one.excess for one in seen), sum(one.runs for one in seen)
            rows.append([name, seen[0].scene, len(seen), round(excess, 3), runs])
            looks, worst = looks + len(seen), max(worst, excess if not runs else float("inf"))
    print_table(["source", "scene", "played", "correlation over what chance allows", "runs drawn twice"], rows)
    fits = _fits(scenes, repetitions)
    caught = _wrong_sources(quick)
    return Outcome(
        value={"worst": round(worst, 3), "worst_fit": round(max(fits), 3), "looks": looks + len(fits), "wrong": caught},
        target={"worst": 1.0, "worst_fit": 1.0, "wrong": "all caught"},
        holds=worst <= 1 and max(fits) <= 1 and all(caught.values()),
        headline=f"{looks} scenes of draws and {len(fits)} whole fits: the largest correlation at any lag is "
        f"{max(worst, *fits):.2f} of what chance allows at {scenes.ALPHA:g}, no run of numbers was drawn twice; "
        f"{sum(caught.values())} of {len(caught)} sources that repeat are found out",
        settings={"repetitions": repetitions, "numbers": size, "false_alarm_rate": scenes.ALPHA * (looks + len(fits))},
    )


def _fits(scenes: Any, repetitions: int) -> list[float]:
    """For every recommender, exact or not: the largest correlation between releases, over what chance allows."""
    from private_estimators import PRIVATE_ESTIMATORS

    made = list(PRIVATE_ESTIMATORS.values())[:: 4 if repetitions == 1 else 1]
    return [
        dependence(scenes.noise_of_a_fit(make, SystemNoise(exact=exact)), alpha=scenes.ALPHA).excess
        for make in made
        for exact in (False, True)
        for _ in range(min(repetitions, 3))
    ]


def _wrong_sources(quick: bool) -> dict[str, bool]:
    """Whether each wrong source is found out; in the quick form one of them, since the suite looks at all."""
    planted: Any = importlib.import_module("planted.noise")
    return {case.name: case.wrong().caught for case in planted.cases()[:: 4 if quick else 1]}
