"""Claim: canary users in whole fits show at most ε on every engine, and an engine that counts users twice is found.

The check knows nothing of the code. Each canary is in or out by a coin, alone in a group or with an item of its own,
and one fit is made; how many coins are guessed right bounds ε from below. Fits are of sums by group (Laplace noise,
false alarms 1e-6 each) and of both recommenders (1e-3 each), on engines in memory, in torch, on disk from a folder of
users, in a federation of four clients, and on Spark (Sail), where it is installed. Seeds are fixed.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from apportion.auditing.canaries import audit_one_run
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import DiskEngine, LocalEngine, TorchEngine
from apportion.federated import FederatedEngine, Trust
from apportion.privacy import Budget, Session
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

EPSILON, DELTA = 1.0, 1e-5
SEEDS, CANARIES = 5, 1000
KINDS = {"ratings": PrivateRatingRecommender, "clicks": PrivateClickRecommender}


def measure(quick: bool) -> Outcome:
    """Every engine: sums by group once and twice, and both recommenders; in the quick form two engines, groups only."""
    groups: Any = importlib.import_module("group_canaries")
    table = []
    for name, make in list(_engines().items())[: 2 if quick else None]:
        seeds = range(1 if quick else SEEDS)
        once = [groups.shown_by_canaries(make(), seed=seed) for seed in seeds]
        twice = [groups.shown_by_canaries(groups.CountsTwice(make()), seed=seed) for seed in seeds]
        fits = {} if quick else {kind: _shown(kind, name, make) for kind in KINDS}
        table.append([name, max(once), min(twice), *(round(fits.get(kind, 0.0), 3) for kind in KINDS)])
    print_table(["engine", "groups, at most", "counted twice, at least", *KINDS], table)
    shown = max(max(row[1], *row[3:]) for row in table)
    found = min(row[2] for row in table)
    return Outcome(
        {"engines": len(table), "shown": round(shown, 3), "counted twice": round(found, 3)},
        {"shown": f"at most {EPSILON}", "counted twice": f"above {EPSILON}"},
        shown <= EPSILON < found,
        f"on {len(table)} engines canaries show an epsilon of at most {shown:.2f} of {EPSILON:g}; of engines that "
        f"count users twice they show at least {found:.2f}",
        {"epsilon": EPSILON, "seeds": SEEDS, "canaries in groups": groups.CANARIES, "in recommenders": CANARIES,
         "engines": [row[0] for row in table]},
    )  # fmt: skip


def _engines() -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "memory": lambda: LocalEngine(np.float64, exact=True, runs=3),
        "disk": lambda: DiskEngine("4MiB", np.float64),
        "federated": lambda: FederatedEngine(Trust(4)),
    }
    if find_spec("torch") is not None:
        found["torch"] = lambda: TorchEngine("cpu", np.float64, exact=True)
    if find_spec("pysail") is not None:
        passes: Any = importlib.import_module("engine_passes")
        found["Spark"] = partial(passes.spark_engine, 3, np.float64)
    return found


def _shown(kind: str, name: str, make: Callable[[], Any]) -> float:
    """What canaries show in a fit of a recommender; on disk, the users are read from a folder."""
    folders: Any = importlib.import_module("user_folders")
    data, _ = long_tailed_ratings(300, 30, 3000, rank=2, rng=np.random.default_rng(0), stars="whole")
    with tempfile.TemporaryDirectory() as folder:

        def fit(some: Any, noise: Any) -> Any:
            held = folders.folder_of(some, Path(folder) / "users") if name == "disk" else some
            made = KINDS[kind](EPSILON, DELTA, dimension=2, rounds=2, engine=make())
            return made.fit(held, session=Session(Budget(EPSILON, DELTA), noise=noise)).model_

        found = audit_one_run(fit, data, value=5.0, canaries=CANARIES, rng=np.random.default_rng(1))
    return found.lower_bound
