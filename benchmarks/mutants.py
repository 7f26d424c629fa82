"""Claim: of 300 machine-made changes that break privacy, the audits notice at least 98 %.

Operators (tests/mutation/operators.py) are applied at every place of the privacy-relevant packages where they parse. A
seeded sample takes from every package and operator, more often from those where privacy was broken before. A judge with
means of its own decides whether a mutant breaks privacy. Mutants that it finds to break privacy are given to the tests
that run the function they change, for twenty seconds of one core. Mutants that crash, or that the judge finds nothing
wrong with, are counted and left. So are, before the sample is drawn, places that no scenario of the judge runs and
functions of estimators that hold the same on neighbours, given what was released: they see nothing private. Both the
judge and the tests must pass the library as it is.

Give another sample by `APPORTION_MUTANTS_SEED`, a smaller one by `APPORTION_MUTANTS`, fewer processes by
`APPORTION_MUTANTS_PROCESSES`, and an end by `APPORTION_MUTANTS_MINUTES`. Answers are kept in benchmarks/partial, so
that a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import time
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

AFTER = ("audits.py", "forks.py", "strata.py", "__init__.py")
JUDGE = sorted(path for path in (TESTS / "mutation").glob("*.py") if path.name not in AFTER)
"""What decides which mutants break privacy; it is frozen before any mutant is given to the tests."""

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
    run = _Run(everything, seed)
    found = run.audited(run.breaking(wanted))
    honest = run.honest()
    survivors = [f"{_line(mutant)}: {why}" for mutant, (why, noticed) in found.items() if noticed is None]
    _show(_by_package(found))
    print("survivors:", *survivors, sep="\n  ")
    killed = len(found) - len(survivors)
    share = killed / max(len(found), 1)
    return Outcome(
        {"breaking": len(found), "killed": killed, "share": round(share, 4), "honest": honest, **run.counted},
        {"breaking": WANTED, "share": LEAST_KILLED, "honest": "passes"},
        len(found) >= WANTED and share >= LEAST_KILLED and honest == "passes",
        f"{killed} of {len(found)} mutants that break privacy are noticed by the audits that run their function",
        {"seed": seed, "mutants": len(everything), "judge": _hash(JUDGE), "not reached": run.blind,
         "by package": _by_package(found), "survivors": survivors},
    )  # fmt: skip


def _rehearsal(everything: list[Any]) -> Rehearsal:
    """The judge accuses two mutants, by two scenarios, and not the library, by all of them."""
    chosen = [next(m for m in everything if str(m).startswith(start)) for start in QUICK]
    accused = [_judged_alone(str(mutant), "ratings", "covariance") for mutant in chosen]
    honest = _judged_alone("")
    return Rehearsal(
        {"judged": accused, "mutants": len(everything)},
        {"the library is not accused": honest == "holds", "mutants are many": len(everything) > 10_000,
         "noise of the wrong size is accused": set(accused) == {"breaks"}},
    )  # fmt: skip


def _judged_alone(mutant: str, *scenarios: str) -> str:
    command = [sys.executable, "-m", "mutation.judge", mutant, *scenarios]
    places = [ROOT / "src"] if mutant else []  # the library as it is needs its kernel, which an installed one has
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(*places), cwd=ROOT, check=True)
    return str(json.loads(done.stdout.splitlines()[-1])["verdict"])


class _Run:
    """Workers that answer, what they answered before, and the sample."""

    def __init__(self, everything: list[Any], seed: int) -> None:
        source = _hash([PACKAGE])
        PARTIAL.mkdir(exist_ok=True)
        self._verdicts = _Kept(f"mutants-judged-{source}-{_hash(JUDGE)}.jsonl")
        self._audits = _Kept(f"mutants-audited-{source}.jsonl", _test_stands)
        lines = PARTIAL / f"mutants-lines-{source}-{_hash(JUDGE)}.json"
        tests = PARTIAL / f"mutants-tests-{source}.jsonl"
        self._judges, self._tests = _Workers("judge", str(lines)), tests
        self._pool = ThreadPoolExecutor(_processes())
        self._judged = self._judges.ask("")["verdict"]
        places = importlib.import_module("mutation.worker").places_of(lines)
        reached = _reached(everything, places)
        self.blind = dict(Counter(mutant.package for mutant in everything) - Counter(m.package for m in reached))
        near = [each for each in reached if places.can_break(each)]
        self.counted: Counter[str] = Counter({"near": len(near), "reached": len(reached), "judged": 0})
        self._strata = importlib.import_module("mutation.strata").Strata(near, seed, places.function)

    def breaking(self, wanted: int) -> dict[Any, str]:
        """Mutants that break privacy, and why."""
        found: dict[Any, str] = {}
        until = time.monotonic() + 60 * float(os.environ.get("APPORTION_MUTANTS_MINUTES", "inf"))
        while len(found) < wanted and time.monotonic() < until:
            if not (drawn := [each for _ in range(AT_ONCE) if (each := self._strata.draw())]):
                break
            broken = self._broken(drawn)
            found |= dict(list(broken.items())[: wanted - len(found)])
            print(f"{self.counted['judged']} judged, {len(found)} break privacy", flush=True)
        return found

    def audited(self, broken: dict[Any, str]) -> dict[Any, tuple[str, str | None]]:
        """Why mutants break privacy, and which test noticed."""
        auditors = _Workers("audits", str(self._tests))
        self._whole = auditors.ask("")
        answers = self._pool.map(lambda each: self._audits.of(str(each), auditors.ask), broken)
        found = {}
        for (each, why), answer in zip(broken.items(), answers, strict=True):
            found[each] = why, answer["noticed"]
            print(f"{len(found)} {answer['noticed'] or 'SURVIVES'} <- {_line(each)}: {why}", flush=True)
        return found

    def honest(self) -> str:
        """Whether judge and audits find nothing wrong with the library as it is."""
        held = self._whole
        print("the library as it is:", self._judged)
        print_table(["audits", "seconds", "fail"], [[held["audits"], held["seconds"], held["noticed"]]])
        return "passes" if self._judged == "holds" and not held["noticed"] else "fails"

    def _broken(self, drawn: list[Any]) -> dict[Any, str]:
        """Of these mutants those that break privacy, and why."""
        verdicts = list(self._pool.map(lambda each: self._verdicts.of(str(each), self._judges.ask), drawn))
        broken = {each: v["why"] for each, v in zip(drawn, verdicts, strict=True) if v["verdict"] == "breaks"}
        for each, verdict in zip(drawn, verdicts, strict=True):
            self._strata.tell(each, breaks=each in broken)
            self.counted.update(["judged", *({verdict["verdict"]} - {"breaks"})])
        return broken


def _reached(everything: list[Any], places: Any) -> list[Any]:
    """Mutants at places that some scenario of the judge runs."""
    runs = {(each.module, each.place): each for each in everything}
    runs = {at: bool(places.running_line(each)) for at, each in runs.items()}
    return [each for each in everything if runs[each.module, each.place]]


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
                    env=_environment(ROOT / "src"), cwd=ROOT,
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


def _environment(*before: Path) -> dict[str, str]:
    paths = os.pathsep.join([*map(str, (*before, TESTS, ROOT)), os.environ.get("PYTHONPATH", "")])
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


def _by_package(found: dict[Any, tuple[str, str | None]]) -> dict[str, list[int]]:
    """Mutants that break privacy, and those that were noticed."""
    packages = sorted({mutant.package for mutant in found})
    seen = {name: [held for mutant, (_, held) in found.items() if mutant.package == name] for name in packages}
    return {name: [len(held), len([each for each in held if each])] for name, held in seen.items()}


def _show(by_package: dict[str, list[int]]) -> None:
    rows = [[name, broken, noticed, broken - noticed] for name, (broken, noticed) in by_package.items()]
    print_table(["package", "break privacy", "noticed", "survive"], rows)
