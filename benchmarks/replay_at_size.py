"""Claim: at a size that crosses every block of the code, no user adds more than the sensitivity that a sum declares.

A million users, one of them with 50,001 rows, others with a half, a quarter, ... of it, and one item that 400,000 users
have. Every pass of every estimator is repeated without a heavy user and on that user alone: the sums must add up, in
whole numbers where they are whole numbers, and what the user adds stays within the sensitivity. For statistics whose
numbers of rows are public the user's values are turned round instead. Boundaries are read from the sources, those of
the compiled kernel included; blocks larger than the data are made smaller for the run. What was measured is kept in
benchmarks/partial, so that a full run that was stopped goes on.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from apportion.auditing.boundaries import NOT_SIZES, Sizes, block_sizes, small_blocks
from apportion.engines import LocalEngine, TorchEngine
from benchmarks import source
from benchmarks.claim import PARTIAL, Outcome, Rehearsal, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

LIMIT = 1 + 1e-9
QUICK = ("clicks", "mean, private sizes")


def measure(quick: bool) -> Outcome | Rehearsal:
    """Go through estimators and engines."""
    sizes: Any = importlib.import_module("at_size")
    passes: Any = importlib.import_module("engine_passes")
    medium = sizes.LargeWorld(100_000, 20_001)
    engines = {
        "memory": (LocalEngine(np.float64, exact=True), sizes.SUITE if quick else sizes.FULL),
        "memory, floats": (LocalEngine(np.float64), sizes.SUITE if quick else medium),
        "torch": (TorchEngine("cpu", np.float64, exact=True), sizes.SUITE if quick else medium),
    }
    place = PARTIAL / f"replay-at-size-{source.fingerprint('replay-at-size')[:12]}.jsonl"
    kept = {} if quick else _kept(place)
    rows: list[list[Any]] = []
    for name in QUICK if quick else passes.FITS:
        for engine, (adds_up, world) in list(engines.items())[: 1 if quick else None]:
            row = kept.get((name, engine)) or _row(sizes, passes, name, engine, adds_up, world)
            rows.append(row)
            print(*row, flush=True)
            if not quick and (name, engine) not in kept:
                with place.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print_table(["estimator", "engine", "sums", "largest ratio", "largest gap", "seconds"], rows)
    crossed = _crossed(sizes)
    largest, gap = max(row[3] for row in rows), max(row[4] for row in rows)
    if quick:
        return Rehearsal(
            {"largest": largest, "gap": gap}, {"nobody adds more": largest <= LIMIT, "no gap": gap <= 1e-9}
        )
    return Outcome(
        {"largest": largest, "gap": gap, "sums": sum(row[2] for row in rows), "boundaries": crossed},
        {"largest": LIMIT, "gap": 1e-9},
        largest <= LIMIT and gap <= 1e-9,
        f"{len(passes.FITS)} estimators on {len(engines)} engines, {sizes.FULL.n_users:,} users, up to "
        f"{sizes.FULL.heaviest:,} rows of one: largest ratio to a declared sensitivity {largest:.9f}, "
        f"{crossed['beyond the data']} of {crossed['found']} boundaries not crossed",
        {"users": sizes.FULL.n_users, "rows_of_one_user": sizes.FULL.heaviest, "other engines": [100_000, 20_001]},
    )


def _kept(place: Path) -> dict[tuple[str, str], list[Any]]:
    """Rows of a run that was stopped, by estimator and engine."""
    place.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    return {(row[0], row[1]): row for row in rows}


def _row(sizes: Any, passes: Any, name: str, engine: str, adds_up: Any, world: Any) -> list[Any]:
    """Estimator, engine, number of sums, largest ratio and gap, seconds."""
    start = time.perf_counter()
    ratio, gap, sums = _largest(sizes, passes, name, adds_up, world)
    return [name, engine, sums, ratio, gap, round(time.perf_counter() - start, 1)]


def _largest(sizes: Any, passes: Any, name: str, engine: Any, world: Any) -> tuple[float, float, int]:
    """The largest ratio and gap of any pass, and how many sums there were."""
    moved = []
    with small_blocks(world.measures, all_numbers=True):
        for one in passes.passes_of(name, engine, world=world):
            for user in world.heavy_users[[0, 2]]:
                moved += sizes.moved_by(one, int(user), engine)
    ratio, gap = (max((float(getattr(m, what)) for m in moved), default=0.0) for what in ("ratio", "gap"))
    return ratio, gap, len(moved)


def _crossed(sizes: Any) -> dict[str, int]:
    """How many boundaries there are, and how many of them were crossed as they are or made smaller."""
    full: Sizes = sizes.FULL.measures
    found = {**block_sizes(), **sizes.kernel_constants(Path(__file__).parents[1] / "src" / "apportion" / "linalg")}
    rows = [[name, number, ", ".join(full.beyond(number))] for name, number in found.items()]
    print_table(["boundary", "number", "crossed by"], [[*row[:2], row[2] or _why(row[0])] for row in rows])
    return {"found": len(rows), "beyond the data": sum(not row[2] and row[0] in NOT_SIZES for row in rows)}


def _why(name: str) -> str:
    return NOT_SIZES.get(name, "made smaller")
