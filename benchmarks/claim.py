"""The frame of a claim: settings, machine, table, one JSON line, a stored result, an exit code.

A claim is a module of this package with a function `measure(quick)` that returns an `Outcome`. In its full form it
takes at most an hour on two cores; in its quick form at most ten seconds, on data small enough for a test suite. A
quick form that checks what the claim says, by the same limits on less data, returns an `Outcome` too. One that cannot
(other data, a machine's speed, fewer draws than the limit needs) returns a `Rehearsal`, which does not say that the
claim holds: it names what it checks instead.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import source

RESULTS = Path(__file__).parent / "results"
PARTIAL = Path(__file__).parent / "partial"


class UnavailableError(Exception):
    """Something that the claim needs (data, a device, a peer) is not here. The message says what, and how to get it."""


@dataclass(frozen=True)
class Outcome:
    """What a claim measured.

    Attributes:
        value: the measured figures, by name.
        target: what they were to reach, in the same names.
        holds: whether every one did.
        headline: one line that says what was measured.
        settings: everything needed to repeat it.
    """

    value: dict[str, Any]
    target: dict[str, Any]
    holds: bool
    headline: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rehearsal:
    """What a quick run showed that cannot decide its claim.

    Attributes:
        value: the measured figures, by name.
        shows: what was checked instead, in words, and whether it was so.
    """

    value: dict[str, Any]
    shows: dict[str, bool]


def data_folder() -> Path:
    """Return the folder of the real data sets: APPORTION_DATA, or else shared/data beside the checkout."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    return Path(os.environ.get("APPORTION_DATA", beside))


def need(path: Path, what: str) -> Path:
    """Return the path, or say that the claim cannot be measured here."""
    if not path.exists():
        raise UnavailableError(f"{what} is not at {path}; set APPORTION_DATA to the folder that holds it.")
    return path


def machine() -> str:
    """Return the processor, and how much of it the process may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    flags = next((line for line in lines if line.startswith("flags")), "")
    simd = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else platform.machine()
    return f"{model or platform.processor()}, {simd}, {len(os.sched_getaffinity(0))} cores"


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print an aligned table of plain text."""
    cells = [list(header), *([_cell(c) for c in row] for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    for row in cells:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    print(flush=True)


def run(name: str, measure: Callable[[bool], Outcome | Rehearsal], *, quick: bool) -> int:
    """Measure a claim, print it, store it if it was measured in full, and return the exit code."""
    print(f"claim {name}{' (quick form)' if quick else ''}; {machine()}; Python {platform.python_version()}\n")
    try:
        outcome = measure(quick)
    except UnavailableError as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        print(json.dumps({"claim": name, "value": None, "target": None, "holds": False, "why": str(missing)}))
        return 3
    if isinstance(outcome, Rehearsal):
        return _rehearsed(name, outcome, quick=quick)
    line = {"claim": name, "value": outcome.value, "target": outcome.target, "holds": outcome.holds}
    if not quick:
        _store(name, {**line, "headline": outcome.headline, "settings": outcome.settings, "machine": machine()})
    print(json.dumps(line, ensure_ascii=False), flush=True)
    return 0 if outcome.holds else 1


def _rehearsed(name: str, found: Rehearsal, *, quick: bool) -> int:
    """Print what a quick run showed, which does not decide the claim."""
    if not quick:
        raise TypeError(f"The full form of {name} returned a rehearsal: it must decide the claim.")
    print(json.dumps({"claim": name, "value": found.value, "holds": None, "shows": found.shows}, ensure_ascii=False))
    return 0 if all(found.shows.values()) else 1


def _store(name: str, result: dict[str, Any]) -> None:
    """Write a result with the hash of the source that it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({**result, "source": source.fingerprint(name)}, indent=2, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
