"""A process that has imported the library, and judges or audits one mutant after another in copies of itself.

Run it as `python -m mutation.worker judge FILE` or `... audits`. It reads names of mutants, one a line, and answers
each in one line of JSON. An empty name stands for the library as it is.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mutation import forks, judge, live
from mutation.reached import ROOT, Lines, noted
from mutation.sources import PACKAGES, Mutant, install

JUDGED_SECONDS = 60
ENOUGH = 1.0  # seconds of scenarios for one mutant, beyond the first; the shortest that run the place come first


def imported() -> Lines:
    """Import everything that is changed; returns the lines of functions that ran meanwhile."""
    lines: Lines = set()
    with noted(lines):
        for package in PACKAGES:
            held = importlib.import_module(f"apportion.{package}")
            for found in pkgutil.walk_packages(held.__path__, f"{held.__name__}."):
                _import(found.name)
    return lines


def _import(name: str) -> None:
    with suppress(ImportError):  # an engine whose package is not installed
        importlib.import_module(name)


def path_of(mutant: Mutant) -> Path:
    """The file of a mutant."""
    return Path(ROOT).parent / Path(*mutant.module.split(".")).with_suffix(".py")


class Places:
    """Where mutants are, and which of the things that can notice run there.

    Args:
        at_import: lines that run while modules are imported.
        reached: lines that each thing runs.
    """

    def __init__(self, at_import: Lines, reached: dict[str, Lines]) -> None:
        self._at_import, self._reached = at_import, reached

    def names(self, mutant: Mutant) -> list[str]:
        """Things that can notice a mutant; where it is in no function, all that run any function of its module."""
        first, last, inside = _statements(path_of(mutant))[mutant.place]
        if not inside or self._run(self._at_import, mutant, first, last):
            first, last = 1, 10_000
        return [name for name, lines in self._reached.items() if self._run(lines, mutant, first, last)]

    def codes(self, mutant: Mutant) -> dict[live.Place, Any] | None:
        """New code of living functions; None where modules must be imported again."""
        first, last, inside = _statements(path_of(mutant))[mutant.place]
        if not inside or self._run(self._at_import, mutant, first, last):
            return None
        return live.changed_functions(mutant, path_of(mutant))

    def _run(self, lines: Lines, mutant: Mutant, first: int, last: int) -> bool:
        name = str(path_of(mutant))
        return any((name, line) in lines for line in range(first, min(last, _length(name)) + 1))


@lru_cache(maxsize=512)
def _length(name: str) -> int:
    return len(Path(name).read_text(encoding="utf-8").splitlines())


@lru_cache(maxsize=512)
def _statements(path: Path) -> dict[int, tuple[int, int, bool]]:
    return live.statement_lines(path)


def changed(mutant: Mutant, codes: dict[live.Place, Any] | None) -> None:
    """Change the library in this process."""
    if codes is not None:
        live.give(codes, path_of(mutant))
        return
    forgotten = ("apportion", "mutation.judged", "federated_cases", "transport_cases")
    for name in [name for name in sys.modules if name.startswith(forgotten) and "_kernel" not in name]:
        del sys.modules[name]
    install(mutant)


# -- judging --


def judging(kept: Path) -> Callable[[str], dict[str, Any]]:
    """What answers with a verdict.

    Args:
        kept: where the lines are kept that every scenario runs.
    """
    at_import = imported()
    traced = _all_traced(kept)
    traced = dict(sorted(traced.items(), key=lambda held: held[1][1]))
    places = Places(at_import, {name: lines for name, (lines, _) in traced.items()})
    seconds = {name: held for name, (_, held) in traced.items()}

    def answer(text: str) -> dict[str, Any]:
        if not text:
            return _as_answer(forks.in_copy(judge.verdict, JUDGED_SECONDS))
        mutant = Mutant.parse(text)
        names, codes = places.names(mutant), places.codes(mutant)
        if not names:
            return {"verdict": judge.HOLDS, "why": "no scenario runs it"}
        until = list(itertools.accumulate(seconds[name] for name in names))
        names = [name for name, after in zip(names, [0.0, *until[1:]], strict=True) if after <= ENOUGH]
        return _as_answer(forks.in_copy(lambda: _judged(mutant, codes, names), JUDGED_SECONDS))

    return answer


def _judged(mutant: Mutant, codes: dict[live.Place, Any] | None, names: list[str]) -> tuple[str, str]:
    changed(mutant, codes)
    return judge.verdict(names)


def _as_answer(found: tuple[str, str] | None) -> dict[str, Any]:
    verdict, why = found or (judge.FAILS, "no answer")
    return {"verdict": verdict, "why": why[:200]}


def _all_traced(kept: Path) -> dict[str, tuple[Lines, float]]:
    """Lines that every scenario runs, and how long it takes."""
    if not kept.exists():
        found = {name: _traced(name) for name in judge.scenarios()}
        kept.with_suffix(".new").write_text(json.dumps(found))
        kept.with_suffix(".new").rename(kept)
    told = json.loads(kept.read_text())
    return {name: ({(path, line) for path, line in lines}, seconds) for name, (lines, seconds) in told.items()}


def _traced(scenario: str) -> tuple[list[tuple[str, int]], float]:
    def traced() -> tuple[list[tuple[str, int]], float]:
        lines: Lines = set()
        with noted(lines):
            judge.scenarios()[scenario]()
        began = time.process_time()
        judge.scenarios()[scenario]()
        return sorted(lines), time.process_time() - began

    found: tuple[list[tuple[str, int]], float] = forks.in_copy(traced, 600)
    return found


# -- the process --


def answered(answer: Callable[[str], dict[str, Any]], asked: Iterator[str], handle: int) -> None:
    """Answer line by line."""
    for line in asked:
        os.write(handle, json.dumps(answer(line.rstrip("\n"))).encode() + b"\n")


def main() -> None:
    """Judge, or audit."""
    import numpy as np

    np.seterr(all="ignore")
    handle = os.dup(1)
    os.dup2(2, 1)  # what anything prints is no answer
    if sys.argv[1] == "judge":
        answered(judging(Path(sys.argv[2])), iter(sys.stdin.readline, ""), handle)
        return
    from mutation.audits import audit

    audit(lambda answer: answered(answer, iter(sys.stdin.readline, ""), handle))


if __name__ == "__main__":
    main()
