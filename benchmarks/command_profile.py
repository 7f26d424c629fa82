"""Where the time of each command goes, on ten million rows: `python -m benchmarks.command_profile`.

Every command runs in a process of its own under Python's profiler, on a Parquet file of ten million generated ratings
with text ids. Time in NumPy, Arrow and other libraries counts for the part of `apportion` that called them; work in
other threads counts as the wait for it. DuckDB's time to sort the same file by user stands beside them.
`docs/performance.md` shows what was measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import read_speed
from benchmarks.claim import print_table

ROWS = 10_000_000
PARTS = {
    "data": "reading",
    "engines": "user side", "linalg": "user side", "privacy": "user side", "allocation": "user side",
    "recommend": "estimator", "statistics": "estimator", "estimators": "estimator", "postprocessing": "estimator",
    "evaluation": "estimator", "auditing": "estimator",
    "report": "pages", "cli": "pages",
}  # fmt: skip
COLUMNS = ("reading", "user side", "estimator", "pages", "start")

_COMMAND = """
import cProfile, json, pstats, sys, time
began = time.perf_counter()
profile = cProfile.Profile()
profile.enable()
from apportion.cli.main import main
code = 0
try:
    sys.argv = ["apportion", *sys.argv[1:]]
    main()
except SystemExit as stop:
    code = stop.code or 0
profile.disable()
from benchmarks.command_profile import by_part
print("\\n" + json.dumps({"code": code, "total": time.perf_counter() - began, "parts": by_part(profile)}))
"""


def by_part(profile: Any) -> dict[str, float]:
    """Return seconds by part of `apportion`; what a library takes goes to those who called it, by their shares."""
    import pstats

    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    seconds: dict[str, float] = defaultdict(float)
    known: dict[Any, dict[str, float]] = {}
    for function, (_, _, own, _, _) in stats.items():
        for part, share in _owners(function, stats, known).items():
            seconds[part] += own * share
    return dict(seconds)


def _owners(function: Any, stats: Any, known: dict[Any, dict[str, float]]) -> dict[str, float]:
    """Shares of parts in a function's time: its own part, or those of its callers."""
    if function in known:
        return known[function]
    part, callers = _part(function[0]), stats[function][4]
    whole = sum(each[3] for each in callers.values())
    known[function] = {part or "start": 1.0}  # also for calls in a circle
    if not part and whole > 0:
        shares: dict[str, float] = defaultdict(float)
        for caller, (_, _, _, spent) in callers.items():
            for owner, share in _owners(caller, stats, known).items():
                shares[owner] += share * spent / whole
        known[function] = dict(shares)
    return known[function]


def _part(file: str) -> str | None:
    folders = Path(file).parts
    if "importlib" in file:
        return "start"
    room = folders[folders.index("apportion") + 1] if "apportion" in folders[:-1] else ""
    return PARTS.get(room)


def commands(file: Path, folder: Path) -> dict[str, list[str]]:
    """What is run, by name; the first makes the model that others use."""
    model, some = str(folder / "ratings"), str(folder / "some.parquet")
    rows = ["--user", "user", "--value", "rating", "--range", "1", "5", "--epsilon", "1"]
    return {
        "fit": ["fit", str(file), "--epsilon", "1", "--items", "from-data", "--out", model],
        "fit --clicks": ["fit", str(file), "--clicks", "--epsilon", "1", "--items", "from-data",
                         "--out", str(folder / "clicks")],
        "recommend": ["recommend", model, some, "--out", str(folder / "lists.parquet")],
        "mean": ["mean", str(file), *rows],
        "quantile": ["quantile", str(file), *rows],
        "count --by": ["count", str(file), "--user", "user", "--by", "item", "--epsilon", "1"],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every command and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    rows = parser.parse_args(arguments).rows
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, file = read_speed.write(folder, rows)
        _write_some(file, folder / "some.parquet")
        for command, words in commands(file, folder).items():
            found = _run(words)
            lines.append([command, found["total"], *(found["parts"].get(part, 0.0) for part in COLUMNS)])
        sorting = read_speed._seconds_duckdb(file)
    print_table(["command", "seconds", *COLUMNS], lines)
    print(f"DuckDB sorts the file by user in {sorting:.2f} s.")
    return 0


def _write_some(file: Path, out: Path, users: int = 20_000) -> None:
    """The rows of so many users, as histories to recommend from."""
    import pyarrow.compute as pc
    import pyarrow.parquet as parquet

    table = parquet.read_table(file)
    chosen = pc.unique(table["user"])[:users]
    parquet.write_table(table.filter(pc.is_in(table["user"], chosen)), out)


def _run(words: list[str]) -> dict[str, Any]:
    root = Path(__file__).parents[1]
    order = [sys.executable, "-c", _COMMAND, *words]
    done = subprocess.run(order, capture_output=True, text=True, check=True, cwd=root)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["code"]:
        raise RuntimeError(f"apportion {' '.join(words)} ended with {found['code']}: {done.stderr}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
