"""Claim: a fit over clients releases what a fit in memory does, for the same noise, bit for bit.

In simulation, 500 clients with a few people each run secure aggregation on the sparse graph for every pass of a rating
and a click recommender, whose server has no rows; questions travel as bytes. Over real processes, 8 nodes of Flower on
this machine make a pass with two releases over TLS. That part needs an interpreter that has Flower: `make
test-federated` sets one up, or APPORTION_FLOWER_PYTHON names one.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.users import UserParts, Users
from apportion.engines import LocalEngine
from apportion.federated import DataElsewhere, FederatedEngine, Question, SimulatedClients, Terms, Total, Trust
from apportion.federated.values import from_bytes, to_bytes
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))
CLIENTS, QUICK_CLIENTS, PROCESSES = 500, 12, 8
ESTIMATORS = {"ratings": PrivateRatingRecommender, "clicks": PrivateClickRecommender}


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit twice, over clients and in memory; then over processes."""
    if quick:
        few = _simulated(Trust(QUICK_CLIENTS))
        return Rehearsal({"unequal": few}, {"fits over a few clients agree with memory": not any(few.values())})
    python, trust = _flower(), Trust(CLIENTS, colluding=CLIENTS // 10, dropping=CLIENTS // 10)
    differing = {**_simulated(trust), "processes": _over_processes(python)}
    return Outcome(
        value={"unequal": differing, "clients": CLIENTS, "processes": PROCESSES},
        target={"unequal": 0},
        holds=not any(differing.values()),
        headline=f"fits over {CLIENTS} simulated clients and a pass over {PROCESSES} real processes: "
        f"{sum(differing.values())} numbers differ from a fit in memory",
        settings={"neighbours": trust.degree.neighbours, "threshold": trust.degree.threshold, "seed": 1},
    )


def _simulated(trust: Trust) -> dict[str, int]:
    """Return how many numbers differ for each estimator, over simulated clients."""
    unequal = {name: _unequal(make, trust) for name, make in ESTIMATORS.items()}
    print_table(["fit", "released and published numbers that differ"], [list(each) for each in unequal.items()])
    return unequal


class _ClientsWithRows:
    """Simulated clients that hold the rows, and read questions from bytes."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        return SimulatedClients().add_up(terms, from_bytes(to_bytes(question)), self._users)


def _unequal(estimator: Any, trust: Trust) -> int:
    """How many numbers of the model differ, and how many releases."""
    made, _ = long_tailed_ratings(2 * trust.n_clients, 20, 12 * trust.n_clients, rank=2, rng=np.random.default_rng(1))
    listed = DataElsewhere.of_items(made.task_ids.ids)
    data = Interactions.from_codes(
        made.users, made.tasks, made.values, user_ids=made.user_ids, task_ids=listed.task_ids
    )
    settings = {"epsilon": 5.0, "dimension": 2, "rounds": 1}
    engine = FederatedEngine(trust, _ClientsWithRows(data.as_users), np.float64)
    here, there = (
        estimator(**settings, noise=SeededNoise(1, exact=True), engine=used).fit(given)
        for used, given in ((LocalEngine(np.float64, exact=True), data), (engine, listed))
    )
    releases = sum(
        int(one != two) for one, two in zip(here.statement_.releases, there.statement_.releases, strict=True)
    )
    arrays = ((getattr(fit.model_, name) for fit in (here, there)) for name in ("vectors", "popularity", "reliability"))
    return releases + sum(int(np.count_nonzero(one != two)) for one, two in arrays)


def _flower() -> str:
    """Return an interpreter that has Flower."""
    named = os.environ.get("APPORTION_FLOWER_PYTHON", str(ROOT / ".venv-federated" / "bin" / "python"))
    if not Path(named).exists():
        raise UnavailableError("There is no Python with Flower here; run `make test-federated`, which sets one up.")
    return named


def _over_processes(python: str) -> int:
    """Run a pass over real processes; return how many released numbers differ from those of memory."""
    files, one_pass, app = (
        importlib.import_module(name) for name in ("federation_files", "one_pass", "apportion.cli.federate_app")
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, rows = files.write_federation(folder, PROCESSES, noise="server", timeout=300)
        call = "import sys; from pathlib import Path; from loopback_federation import run_over_loopback; "
        call += "run_over_loopback(Path(sys.argv[1]), Path(sys.argv[2]), list(map(Path, sys.argv[3:])))"
        path = os.pathsep.join([str(TESTS), str(ROOT / "src")])
        asked = [python, "-c", call, str(folder), str(config), *map(str, rows)]
        subprocess.run(asked, env={**os.environ, "PYTHONPATH": path}, check=True)
        there = json.loads((folder / "released.json").read_text())
        everybody = folder / "all.csv"
        everybody.write_text("user,item,rating\n" + "".join(each.read_text().split("\n", 1)[1] for each in rows))
        federation = app.Federation.read(config)
        here = one_pass.released(LocalEngine(np.float64, exact=True), app.users_of(federation, everybody))
    names = ("number of users", "popularity")
    return sum(one != two for name in names for one, two in zip(here[name], there[name], strict=True))
