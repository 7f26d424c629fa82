"""Claim: 200M generated ratings of 5M users are fitted from disk on two cores within 4 GiB, in time linear in them.

Ratings are generated to Parquet files, sharded by `apportion shard`, and fitted from disk, each in a process of its own
whose peak of resident memory is measured. The time per rating of a fit from disk is compared with that of the same fit
in memory, on the smallest size, each the faster of two runs. Linear: the time per rating of the largest is at most that
of the smallest and a quarter, for fits and for sharding.

Time is that of the processors, of all threads, which a machine that others use changes little; that of the clock is
stored beside it. APPORTION_ALONE names a command that runs another one while everything else waits; fits are run by it,
and then their time by the clock has to be within the same limits.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claim import Outcome, Rehearsal, print_table

SIZES = (25_000_000, 75_000_000, 200_000_000)
QUICK_SIZES = (60_000,)
RATINGS_OF_A_USER, ITEMS = 40, 20_000
USERS_OF_A_FILE = 125_000
GIB, MEMORY = 2**30, "1GiB"
LIMITS = {"peak_gib": 4.0, "over_memory": 1.5, "growth": 1.25, "shard_growth": 1.25}
CLOCK_LIMITS = {"over_memory_by_clock": 1.5, "growth_by_clock": 1.25}  # on a machine alone
SEED = 7

_PROGRAM = """
import json, sys, time
from benchmarks.process_memory import peak_bytes
from apportion.cli.main import program
start, used = time.perf_counter(), time.process_time()
program(sys.argv[1:], standalone_mode=False)
seconds, used = time.perf_counter() - start, time.process_time() - used
print(json.dumps({"seconds": seconds, "used": used, "peak": peak_bytes()}))
"""

_IN_MEMORY = """
import json, sys, time
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.recommend import PrivateRatingRecommender
data = Interactions.read(sys.argv[1]).with_public_tasks()
start, used = time.perf_counter(), time.process_time()
PrivateRatingRecommender(1.0, engine=LocalEngine("float64", exact=True)).fit(data)
print(json.dumps({"seconds": time.perf_counter() - start, "used": time.process_time() - used}))
"""

_ON_DISK = """
import json, sys, time
from apportion.data.on_disk import UserFolder
from apportion.engines import DiskEngine
from apportion.recommend import PrivateRatingRecommender
from benchmarks.process_memory import peak_bytes
data = UserFolder.open(sys.argv[1]).with_public_tasks()
start, used = time.perf_counter(), time.process_time()
PrivateRatingRecommender(1.0, engine=DiskEngine(sys.argv[2], "float64")).fit(data)
seconds, used = time.perf_counter() - start, time.process_time() - used
print(json.dumps({"seconds": seconds, "used": used, "peak": peak_bytes()}))
"""


def measure(quick: bool) -> Outcome | Rehearsal:
    """Shard and fit every size."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for size in QUICK_SIZES if quick else SIZES:
            found.append(_measured(Path(place), size, in_memory=not found, runs=1 if quick or found else 2))
            print(found[-1], file=sys.stderr, flush=True)
    names = ("ratings", "shard", "shard_used", "fit", "fit_used", "shard_gib", "fit_gib")
    print_table(
        ["ratings", "shard, s", "of processors", "fit, s", "of processors", "peak of shard, GiB", "peak of fit, GiB"],
        [[each[name] for name in names] for each in found],
    )
    value = _ratios(found)
    if quick:
        return Rehearsal(value, {"sharded and fitted from disk within the memory": value["peak_gib"] < 1.0})
    limits = LIMITS | (CLOCK_LIMITS if os.environ.get("APPORTION_ALONE") else {})
    return Outcome(
        value=value,
        target=limits,
        holds=all(value[name] <= limit for name, limit in limits.items()),
        headline=f"{value['ratings']:,} ratings fitted from disk within {value['peak_gib']:.2f} GiB, at "
        f"{value['over_memory']:.2f} times the time of memory; {value['growth']:.2f} times the time per rating of "
        f"{SIZES[0]:,}, and {value['shard_growth']:.2f} times for sharding",
        settings={"seed": SEED, "memory": MEMORY, "sizes": found, "ratings_of_a_user": RATINGS_OF_A_USER},
    )


def _ratios(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the claim, from those of every size."""
    least, most = found[0], found[-1]
    more = most["ratings"] / least["ratings"]
    return {
        "ratings": most["ratings"],
        "peak_gib": round(max(each[name] for each in found for name in ("shard_gib", "fit_gib")), 3),
        "over_memory": round(least["fit_used"] / least["memory_used"], 3),
        "growth": round(most["fit_used"] / least["fit_used"] / more, 3),
        "shard_growth": round(most["shard_used"] / least["shard_used"] / more, 3),
        "over_memory_by_clock": round(least["fit"] / least["memory"], 3),
        "growth_by_clock": round(most["fit"] / least["fit"] / more, 3),
        "shard_growth_by_clock": round(most["shard"] / least["shard"] / more, 3),
    }


def _measured(place: Path, size: int, *, in_memory: bool, runs: int) -> dict[str, Any]:
    folder, users = place / f"ratings-{size}", place / f"users-{size}"
    found: dict[str, Any] = {"ratings": generate(folder, size)}
    files = str(folder / "*.parquet")
    done = {"shard": _run(_PROGRAM, "shard", files, "--out", str(users), "--memory", MEMORY)}
    done["fit"] = _fitted(_ON_DISK, str(users), MEMORY, runs=runs)
    if in_memory:
        done["memory"] = _fitted(_IN_MEMORY, str(users), runs=runs)
    for name, each in done.items():
        found |= {name: round(each["seconds"], 3), f"{name}_used": round(each["used"], 3)}
    found |= {f"{name}_gib": round(done[name]["peak"] / GIB, 3) for name in ("shard", "fit")}
    for path in [*folder.iterdir(), *users.iterdir()]:
        path.unlink()
    return found


def generate(folder: Path, size: int) -> int:
    """Write about so many ratings, users in a mixed order over many files; return how many."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    folder.mkdir()
    n_users, rng, written = size // RATINGS_OF_A_USER, np.random.default_rng(SEED), 0
    everybody = rng.permutation(n_users).astype(np.int64)
    quality = rng.standard_normal(ITEMS)
    for number, first in enumerate(range(0, n_users, USERS_OF_A_FILE)):
        users = np.repeat(everybody[first : first + USERS_OF_A_FILE], RATINGS_OF_A_USER)
        items = (ITEMS * rng.random(len(users)) ** 3).astype(np.int64)  # item k is drawn in proportion to k^(-2/3)
        order = np.argsort(users * ITEMS + items)
        users, items = users[order], items[order]
        once = np.concatenate([[True], (users[1:] != users[:-1]) | (items[1:] != items[:-1])])
        users, items = users[once], items[once]
        mixed = rng.permutation(len(users))
        values = np.clip(np.round(3.5 + 0.5 * quality[items] + rng.standard_normal(len(items))), 1, 5)
        table = pa.table({"user": users[mixed], "item": items[mixed], "rating": values[mixed]})
        parquet.write_table(table, folder / f"part-{number:04d}.parquet")
        written += len(users)
    return written


def _fitted(script: str, *arguments: str, runs: int) -> dict[str, Any]:
    """The least of several fits by either time, which on a shared machine is that of the least disturbed one."""
    alone = shlex.split(os.environ.get("APPORTION_ALONE", ""))
    made = [_run(script, *arguments, before=alone) for _ in range(runs)]
    return made[0] | {name: min(each[name] for each in made) for name in ("seconds", "used")}


def _run(script: str, *arguments: str, before: Sequence[str] = ()) -> dict[str, Any]:
    done = subprocess.run([*before, sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
