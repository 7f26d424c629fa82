"""A process that has imported the library, and judges or audits one mutant after another in copies of itself.

Run it as `python -m mutation.worker judge FILE` or `... audits FILE`. It reads names of mutants, one a line, and
answers each in one line of JSON. An empty name stands for the library as it is. FILE keeps what scenarios or tests run.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mutation import forks, judge, live
from mutation.reached import ROOT, Lines, noted, place_of, states_noted
from mutation.sources import PACKAGES, Mutant, install

JUDGED_SECONDS = 60
MUTANT_SECONDS = 6  # one that runs longer has no answer
AT_IMPORT, PRIVATE = "while modules are imported", "functions that hold something else on a neighbour"
GUARDS = ("privacy", "engines", "training", "federated", "transport")
"""Packages where a change may break privacy whatever a function holds, or where that may be a tensor (not read)."""
SCENARIOS = 3  # that judge one mutant, of those that run its place: those that run the fewest lines


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


def settled() -> None:
    """Make copies of this process cheap: what is imported is not looked through again."""
    live.note_living(ROOT)
    gc.collect()
    gc.freeze()


def path_of(mutant: Mutant) -> Path:
    """The file of a mutant."""
    return Path(ROOT).parent / Path(*mutant.module.split(".")).with_suffix(".py")


class Places:
    """Where mutants are, and which of the things that can notice run there.

    Args:
        at_import: lines that run while modules are imported.
        reached: what each thing runs: lines, or functions by file and first line.
        private: functions that hold something else on a neighbour, given what was released.
    """

    def __init__(
        self, at_import: Lines, reached: dict[str, Iterable[Any]], private: Container[str] = frozenset()
    ) -> None:
        self._private = private
        self._at_import, self._by_place = _by_file(at_import), {}
        self._by_file: dict[str, set[str]] = {}
        for name, held in reached.items():
            for place in held:
                self._by_place.setdefault(place, {})[name] = None
                path = place[0] if isinstance(place, tuple) else str(Path(ROOT, place.split(":")[0]))
                self._by_file.setdefault(path, set()).add(name)
        self._order = {name: at for at, name in enumerate(reached)}

    def running_line(self, mutant: Mutant) -> list[str]:
        """Things that run the statement of a mutant; where it is in no function, all that run any of its module."""
        name, where = str(path_of(mutant)), _statements(path_of(mutant))[mutant.place]
        if self._imports(mutant):
            return self._sorted(self._by_file.get(name, ()))
        lines = range(where.first, where.last + 1)
        return self._sorted({each for line in lines for each in self._by_place.get((name, line), ())})

    def running_function(self, mutant: Mutant) -> list[str]:
        """Things that run the function of a mutant; where it is in no function, all that run any of its module."""
        name, where = str(path_of(mutant)), _statements(path_of(mutant))[mutant.place]
        if self._imports(mutant):
            return self._sorted(self._by_file.get(name, ()))
        return self._sorted(self._by_place.get(place_of(name, where.function), ()))

    def can_break(self, mutant: Mutant) -> bool:
        """Whether something private is near: outside the guards, functions that hold the same on neighbours are out."""
        function = self.function(mutant)
        near = place_of(str(path_of(mutant)), function) in self._private
        return near or not function or mutant.package in GUARDS

    @staticmethod
    def function(mutant: Mutant) -> int:
        """First line of the function that a mutant changes; 0 for none."""
        return _statements(path_of(mutant))[mutant.place].function

    def codes(self, mutant: Mutant) -> dict[live.Place, Any] | None:
        """New code of living functions; None where modules must be imported again."""
        return None if self._imports(mutant) else live.changed_functions(mutant, path_of(mutant))

    def _imports(self, mutant: Mutant) -> bool:
        """Whether the place of a mutant runs while modules are imported."""
        where = _statements(path_of(mutant))[mutant.place]
        ran = self._at_import.get(str(path_of(mutant)), set())
        return not where.function or any(line in ran for line in range(where.first, where.last + 1))

    def _sorted(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=self._order.__getitem__)


def _by_file(lines: Lines) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for path, line in lines:
        found.setdefault(path, set()).add(line)
    return found


@lru_cache(maxsize=512)
def _statements(path: Path) -> dict[int, live.Statement]:
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
    note_lines(imported(), kept)
    honest = judge.remembered()
    settled()
    places = places_of(kept)

    def answer(text: str) -> dict[str, Any]:
        if not text:
            return _as_answer(forks.in_copy(judge.verdict, JUDGED_SECONDS))
        mutant = Mutant.parse(text)
        names = places.running_line(mutant)[:SCENARIOS]
        if not names:
            return {"verdict": judge.HOLDS, "why": "no scenario runs it"}
        try:
            codes = places.codes(mutant)
        except (SyntaxError, ValueError):
            return {"verdict": judge.FAILS, "why": "it does not parse"}
        return _as_answer(forks.in_copy(lambda: _judged(mutant, codes, names, honest), MUTANT_SECONDS))

    return answer


def _judged(
    mutant: Mutant, codes: dict[live.Place, Any] | None, names: list[str], honest: dict[str, Any]
) -> tuple[str, str]:
    changed(mutant, codes)
    return judge.verdict(names, honest if codes is not None else {})


def _as_answer(found: tuple[str, str] | None) -> dict[str, Any]:
    verdict, why = found or (judge.FAILS, "no answer")
    return {"verdict": verdict, "why": why[:200]}


def note_lines(at_import: Lines, kept: Path) -> None:
    """Write down the lines that run while modules are imported, and those that every scenario runs."""
    if kept.exists():
        return
    found = {name: forks.in_copy(lambda name=name: _traced(name), 600) for name in judge.scenarios()}
    private = [forks.in_copy(lambda name=name: _private(name), 600) for name in judge.fitted_scenarios()]
    found |= {AT_IMPORT: _inside(at_import), PRIVATE: sorted({place for held in private for place in held})}
    kept.with_suffix(".new").write_text(json.dumps(found))
    kept.with_suffix(".new").rename(kept)


def places_of(kept: Path) -> Places:
    """Where mutants are, and which scenarios run there: those that run the fewest lines come first."""
    told = json.loads(kept.read_text())
    private = set(told.pop(PRIVATE))
    lines = {name: {(str(Path(ROOT, path)), line) for path, line in held} for name, held in told.items()}
    at_import = lines.pop(AT_IMPORT)
    return Places(at_import, dict(sorted(lines.items(), key=lambda held: len(held[1]))), private)


def _traced(scenario: str) -> list[tuple[str, int]]:
    lines: Lines = set()
    with noted(lines):
        judge.scenarios()[scenario]()
    return _inside(lines)


def _private(scenario: str) -> list[str]:
    """Functions that hold something else in a fit to a neighbour, given what was released."""
    fit, arrays, neighbours, _ = judge.fitted_scenarios()[scenario]
    states: tuple[dict[str, list[int]], ...] = ({}, {})
    with states_noted(states[0]):
        _, first = judge.watched(fit, arrays)
    with states_noted(states[1]):
        judge.watched(fit, neighbours[0], first)
    return [place for place in states[0] if states[0][place] != states[1].get(place)]


def _inside(lines: Lines) -> list[tuple[str, int]]:
    return sorted((path[len(ROOT) + 1 :], line) for path, line in lines)


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
    kept = Path(sys.argv[2])
    if sys.argv[1] == "judge":
        answered(judging(kept), iter(sys.stdin.readline, ""), handle)
        return
    from mutation.audits import audit

    audit(lambda answer: answered(answer, iter(sys.stdin.readline, ""), handle), kept)


if __name__ == "__main__":
    main()
