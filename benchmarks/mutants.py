"""Claim: of 300 machine-made changes that break privacy, the audits notice at least 98 %.

Operators (tests/mutation/operators.py) are applied at every place of the privacy-relevant packages where they parse; a
seeded sample takes from every package and operator in turn. A judge with means of its own decides whether a mutant
breaks privacy. Mutants that it finds to break privacy are given to the tests that cover their package. Mutants that
crash, or that the judge finds nothing wrong with, are counted and left. Give another sample by
`APPORTION_MUTANTS_SEED`, and a smaller one by `APPORTION_MUTANTS`.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.claim import Outcome, Rehearsal, print_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

WANTED, LEAST_KILLED, SEED = 300, 0.98, 1
QUICK = (
    "apportion.privacy.mechanisms.gaussian|over becomes times",
    "apportion.privacy.mechanisms.gaussian|a quotient keeps its numerator",
)
"""Two operators whose first mutants, noise of the wrong size, the quick form judges."""


def measure(quick: bool) -> Outcome | Rehearsal:
    """Judge mutants until enough break privacy, then audit those."""
    sources: Any = importlib.import_module("mutation.sources")
    everything = sources.every_mutant(ROOT / "src" / "apportion")
    if quick:
        return _rehearsal(everything)
    wanted = int(os.environ.get("APPORTION_MUTANTS", WANTED))
    seed = int(os.environ.get("APPORTION_MUTANTS_SEED", SEED))
    order = sources.sampled(everything, len(everything), seed)
    breaking, counted = _breaking(order, wanted)
    with ThreadPoolExecutor(_processes()) as pool:
        noticed = dict(zip(breaking, pool.map(_noticed, breaking), strict=True))
    survivors = [_line(mutant) for mutant, seen in noticed.items() if not seen]
    _show(noticed)
    print("survivors:", *survivors, sep="\n  ")
    share = sum(noticed.values()) / max(len(noticed), 1)
    return Outcome(
        {"breaking": len(breaking), "killed": sum(noticed.values()), "share": round(share, 4), **counted},
        {"breaking": WANTED, "share": LEAST_KILLED},
        len(breaking) >= WANTED and share >= LEAST_KILLED,
        f"{sum(noticed.values())} of {len(breaking)} mutants that break privacy are noticed by the audits that cover "
        "their package",
        {"seed": seed, "mutants": len(everything), "survivors": survivors},
    )


def _rehearsal(everything: list[Any]) -> Rehearsal:
    """The judge accuses two mutants and not the library."""
    chosen = [next(m for m in everything if str(m).startswith(start)) for start in QUICK]
    accused = [_judged(mutant)[0] for mutant in chosen]
    honest = _judged(None)[0]
    return Rehearsal(
        {"judged": accused, "mutants": len(everything)},
        {"the library is not accused": honest == "holds", "mutants are many": len(everything) > 10_000,
         "noise of the wrong size is accused": set(accused) == {"breaks"}},
    )  # fmt: skip


def _breaking(order: list[Any], wanted: int) -> tuple[list[Any], dict[str, int]]:
    """Mutants that break privacy, in the order of the sample, and how many did not."""
    found: list[Any] = []
    counted: Counter[str] = Counter()
    with ThreadPoolExecutor(_processes()) as pool:
        rest = iter(order)
        while some := list(islice(rest, 4 * _processes())):
            for mutant, (verdict, why) in zip(some, pool.map(_judged, some), strict=True):
                counted[verdict] += 1
                if verdict == "breaks":
                    print(f"{len(found) + 1}: {_line(mutant)}: {why}", flush=True)
                    found.append(mutant)
            if len(found) >= wanted:
                break
    return found[:wanted], {"holds": counted["holds"], "fails": counted["fails"]}


def _judged(mutant: Any) -> tuple[str, str]:
    done = _process("mutation.judge", "" if mutant is None else str(mutant), 120)
    if done is None or done.returncode != 0:
        return "fails", "no answer"
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["verdict"], answer["why"]


def _noticed(mutant: Any) -> bool:
    done = _process("mutation.audits", str(mutant), 600)
    return done is None or done.returncode != 0


def _process(module: str, mutant: str, seconds: int) -> subprocess.CompletedProcess[str] | None:
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "APPORTION_THREADS": "1"}
    try:
        return subprocess.run(
            [sys.executable, "-m", module, mutant], capture_output=True, text=True, env=given, timeout=seconds, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return None


def _processes() -> int:
    return len(os.sched_getaffinity(0))


def _line(mutant: Any) -> str:
    sources: Any = importlib.import_module("mutation.sources")
    path = ROOT / "src" / Path(*mutant.module.split("."))
    return f"{mutant.operator}: {sources.described(mutant, path.with_suffix('.py'))} ({mutant})"


def _show(noticed: dict[Any, bool]) -> None:
    packages = sorted({mutant.package for mutant in noticed})
    rows = []
    for package in packages:
        seen = [noticed[mutant] for mutant in noticed if mutant.package == package]
        rows.append([package, len(seen), sum(seen), len(seen) - sum(seen)])
    print_table(["package", "break privacy", "noticed", "survive"], rows)
