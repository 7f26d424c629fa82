"""Claim: a fit over clients releases what a fit in memory does, for the same noise, bit for bit.

In simulation, 500 clients with a few people each run secure aggregation on the sparse graph for every pass of a rating
and a click recommender, whose server has no rows. Over real processes, `apportion federate server` and 8 of `apportion
federate client` on this machine fit both recommenders by letters, over TLS: ratings by HTTPS, clicks by Flower. That
part needs an interpreter that has Flower: `make test-federated` sets one up, or APPORTION_FLOWER_PYTHON names one.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from apportion.cli.federate_app import rows_of
from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.users import UserParts, Users
from apportion.engines import LocalEngine
from apportion.federated import DataElsewhere, FederatedEngine, Question, SimulatedClients, Terms, Total, Trust
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender, load
from apportion.transport.configuration import Federation
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
CLIENTS, QUICK_CLIENTS, PROCESSES = 500, 12, 8
CARRIERS = {"ratings": "https", "clicks": "flower"}
PUBLISHED = ("vectors", "popularity", "reliability")
ESTIMATORS = {"ratings": PrivateRatingRecommender, "clicks": PrivateClickRecommender}


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit over clients, over processes, and in memory."""
    if quick:
        few = _simulated(Trust(QUICK_CLIENTS))
        return Rehearsal({"unequal": few}, {"fits over a few clients agree with memory": not any(few.values())})
    python, trust = _flower(), Trust(CLIENTS, colluding=CLIENTS // 10, dropping=CLIENTS // 10)
    differing = {**_simulated(trust), **{f"{kind}, processes": _over_processes(python, kind) for kind in ESTIMATORS}}
    return Outcome(
        value={"unequal": differing, "clients": CLIENTS, "processes": PROCESSES},
        target={"unequal": 0},
        holds=not any(differing.values()),
        headline=f"fits over {CLIENTS} simulated clients and over {PROCESSES} real processes: "
        f"{sum(differing.values())} numbers differ from fits in memory",
        settings={"neighbours": trust.degree.neighbours, "threshold": trust.degree.threshold, "seed": 1},
    )


def _simulated(trust: Trust) -> dict[str, int]:
    """Return how many numbers differ for each estimator, over simulated clients."""
    unequal = {name: _unequal(make, trust) for name, make in ESTIMATORS.items()}
    print_table(["fit", "released and published numbers that differ"], [list(each) for each in unequal.items()])
    return unequal


class _ClientsWithRows:
    """Simulated clients that hold the rows."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        return SimulatedClients().add_up(terms, question, self._users)


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
    return releases + _differing(here.model_, there.model_)


def _differing(one: Any, two: Any) -> int:
    """How many published numbers of two models differ."""
    return sum(int(np.count_nonzero(getattr(one, name) != getattr(two, name))) for name in PUBLISHED)


def _flower() -> str:
    """Return an interpreter that has Flower."""
    named = os.environ.get("APPORTION_FLOWER_PYTHON", str(ROOT / ".venv-federated" / "bin" / "python"))
    if not Path(named).exists():
        raise UnavailableError("There is no Python with Flower here; run `make test-federated`, which sets one up.")
    return named


def _over_processes(python: str, kind: str) -> int:
    """Fit over real processes; return how many published numbers and releases differ from those of memory."""
    sys.path.insert(0, str(TESTS))
    files = importlib.import_module("federation_files")
    call = "import sys; from pathlib import Path; from loopback_federation import run_over_loopback; "
    call += "rows = list(map(Path, sys.argv[4:])); "
    call += "print(run_over_loopback(Path(sys.argv[1]), Path(sys.argv[2]), rows, 1500, carrier=sys.argv[3]))"
    path = os.pathsep.join([str(TESTS), str(ROOT / "src")])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, rows = files.write_federation(folder, PROCESSES, 160, kind=kind, noise="server", seed=1, timeout=180.0)
        asked = [python, "-c", call, str(folder), str(config), CARRIERS[kind], *map(str, rows)]
        said = subprocess.run(asked, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True)
        if not (folder / "out").exists():
            raise RuntimeError(said.stdout[-4000:])
        there = load(folder / "out")
        here = _fitted_in_memory(Federation.read(config), files.write_everybody(folder, rows))
    assert there.statement is not None
    return _differing(here.model_, there) + int(here.statement_.releases != there.statement.releases)


def _fitted_in_memory(federation: Federation, everybody: Path) -> Any:
    """Return the same fit by one machine that has all rows."""
    engine = LocalEngine("float32" if federation.kind == "clicks" else "float64", exact=True)
    settings = {"epsilon": 5.0, "dimension": 1, "rounds": 1, "noise": federation.source, "engine": engine}
    return ESTIMATORS[federation.kind](**settings).fit(rows_of(federation, everybody))
