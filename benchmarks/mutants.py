"""Claim: of 300 machine-made changes that break privacy, the audits notice at least 98 %.

Operators (tests/mutation/operators.py) are applied at every place of the privacy-relevant packages where they parse. A
seeded sample takes from every package and operator, more often from those where privacy was broken before. A judge with
means of its own decides whether a mutant breaks privacy. Mutants that it finds to break privacy are given to the tests
of their package, for twenty seconds of one core. Mutants that crash, or that the judge finds nothing wrong
with, are counted and left. Both the judge and the tests must pass the library as it is.

Give another sample by `APPORTION_MUTANTS_SEED`, a smaller one by `APPORTION_MUTANTS`, and fewer processes by
`APPORTION_MUTANTS_PROCESSES`. Answers are kept in benchmarks/partial, so that a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks.claim import PARTIAL, Outcome, Rehearsal, print_table

ROOT = Path(__file__).parents[1]
TESTS, PACKAGE = ROOT / "tests", ROOT / "src" / "apportion"
sys.path.insert(0, str(TESTS))

WANTED, LEAST_KILLED, SEED = 300, 0.98, 1
AT_ONCE = 8  # mutants that are drawn before the sample looks at answers: the same on every machine
QUICK = (
    "apportion.privacy.mechanisms.gaussian|over becomes times",
    "apportion.privacy.mechanisms.gaussian|a quotient keeps its numerator",
)
"""Two operators whose first mutants, noise of the wrong size, the quick form judges."""


def measure(quick: bool) -> Outcome | Rehearsal:
    """Judge mutants until enough break privacy, and audit those."""
    sources: Any = importlib.import_module("mutation.sources")
    everything = sources.every_mutant(PACKAGE)
    if quick:
        return _rehearsal(everything)
    wanted, seed = (
        int(os.environ.get(f"APPORTION_MUTANTS{name}", given)) for name, given in (("", WANTED), ("_SEED", SEED))
    )
    run = _Run(sources.Strata(everything, seed), seed)
    found = run.breaking(wanted)
    honest = run.honest()
    survivors = [f"{_line(mutant)}: {why}" for mutant, (why, noticed) in found.items() if noticed is None]
    _show({mutant: noticed is not None for mutant, (_, noticed) in found.items()})
    print("survivors:", *survivors, sep="\n  ")
    killed = len(found) - len(survivors)
    share = killed / max(len(found), 1)
    return Outcome(
        {"breaking": len(found), "killed": killed, "share": round(share, 4), "honest": honest, **run.counted},
        {"breaking": WANTED, "share": LEAST_KILLED, "honest": "passes"},
        len(found) >= WANTED and share >= LEAST_KILLED and honest == "passes",
        f"{killed} of {len(found)} mutants that break privacy are noticed by the audits of their package",
        {"seed": seed, "mutants": len(everything), "survivors": survivors},
    )


def _rehearsal(everything: list[Any]) -> Rehearsal:
    """The judge accuses two mutants and not the library."""
    chosen = [next(m for m in everything if str(m).startswith(start)) for start in QUICK]
    accused = [_judged_alone(str(mutant)) for mutant in chosen]
    honest = _judged_alone("")
    return Rehearsal(
        {"judged": accused, "mutants": len(everything)},
        {"the library is not accused": honest == "holds", "mutants are many": len(everything) > 10_000,
         "noise of the wrong size is accused": set(accused) == {"breaks"}},
    )  # fmt: skip


def _judged_alone(mutant: str) -> str:
    command = [sys.executable, "-m", "mutation.judge", mutant, "ratings", "covariance"]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), cwd=ROOT, check=True)
    return str(json.loads(done.stdout.splitlines()[-1])["verdict"])


class _Run:
    """Workers that answer, what they answered before, and the sample."""

    def __init__(self, strata: Any, seed: int) -> None:
        self._strata, source = strata, _hash([PACKAGE])
        PARTIAL.mkdir(exist_ok=True)
        self._verdicts = _Kept(f"mutants-judged-{source}-{_hash([TESTS / 'mutation'])}.jsonl")
        self._audits = _Kept(f"mutants-audited-{source}.jsonl", _test_stands)
        self._honest = _Kept(f"mutants-honest-{source}-{_hash([TESTS])}.jsonl")
        lines = PARTIAL / f"mutants-lines-{source}-{_hash([TESTS / 'mutation'])}.json"
        self._judges, self._auditors = _Workers("judge", str(lines)), _Workers("audits")
        self._pool = ThreadPoolExecutor(_processes())
        self.counted: Counter[str] = Counter()
        self.counted.update({"judged": 0, "holds": 0, "fails": 0})

    def honest(self) -> str:
        """Whether judge and audits find nothing wrong with the library as it is."""
        judged = self._honest.of("", self._judges.ask)
        audited = {name: self._honest.of(name, self._auditors.ask) for name in self._strata.packages}
        print("the library as it is:", judged["verdict"])
        rows = [[name, held["of"], held["audits"], held["seconds"], held["noticed"]] for name, held in audited.items()]
        print_table(["package", "audits", "run within 20 s", "seconds", "fails"], rows)
        passes = judged["verdict"] == "holds" and not any(held["noticed"] for held in audited.values())
        return "passes" if passes else "fails"

    def breaking(self, wanted: int) -> dict[Any, tuple[str, str | None]]:
        """Mutants that break privacy: why, and which test noticed."""
        found: dict[Any, tuple[str, str | None]] = {}
        while len(found) < wanted and (drawn := [each for _ in range(AT_ONCE) if (each := self._strata.draw())]):
            verdicts = list(self._pool.map(lambda each: self._verdicts.of(str(each), self._judges.ask), drawn))
            broken = {each: v["why"] for each, v in zip(drawn, verdicts, strict=True) if v["verdict"] == "breaks"}
            for each, verdict in zip(drawn, verdicts, strict=True):
                self._strata.tell(each, breaks=each in broken)
                self.counted.update(["judged", *({verdict["verdict"]} - {"breaks"})])
            told = list(self._pool.map(lambda each: self._audits.of(str(each), self._auditors.ask), broken))
            for (each, why), answer in zip(broken.items(), told, strict=True):
                if len(found) < wanted:
                    found[each] = why, answer["noticed"]
                    print(f"{len(found)} {answer['noticed'] or 'SURVIVES'} <- {_line(each)}: {why}", flush=True)
        return found


class _Kept:
    """Answers in a file, one a line; those that do not stand any more are asked for again."""

    def __init__(self, name: str, stands: Callable[[dict[str, Any]], bool] = lambda answer: True) -> None:
        self._path = PARTIAL / name
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        read: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._held = {str(held["mutant"]): held for held in read if stands(held)}

    def of(self, mutant: str, ask: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """The answer for a mutant."""
        if mutant not in self._held:
            self._held[mutant] = {"mutant": mutant, **ask(mutant)}
            with self._path.open("a") as file:
                file.write(json.dumps(self._held[mutant]) + "\n")
        return self._held[mutant]


def _test_stands(answer: dict[str, Any]) -> bool:
    """Whether the test that noticed a mutant is as it was; a survivor is always asked about again."""
    noticed = answer["noticed"]
    path = ROOT / str(noticed).split("::")[0]
    return noticed is not None and (not path.is_file() or answer.get("test") == _hash([path]))


class _Workers:
    """Processes that have imported the library and answer one mutant after another."""

    def __init__(self, *arguments: str) -> None:
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        for _ in range(_processes()):
            command = [sys.executable, "-m", "mutation.worker", *arguments]
            self._idle.put(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                    env=_environment(), cwd=ROOT,
                )
            )  # fmt: skip

    def ask(self, mutant: str) -> dict[str, Any]:
        """The answer of the next process that is idle."""
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(mutant + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        self._idle.put(process)
        path = ROOT / str(answer.get("noticed")).split("::")[0]
        return {**answer, "test": _hash([path])} if path.is_file() else answer


def _environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(TESTS), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "APPORTION_THREADS": "1"}


def _processes() -> int:
    return int(os.environ.get("APPORTION_MUTANTS_PROCESSES", len(os.sched_getaffinity(0))))


def _hash(places: Sequence[Path]) -> str:
    """Of all Python files there."""
    total = hashlib.sha256()
    for place in places:
        for path in sorted([place] if place.is_file() else place.rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()[:12]


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
