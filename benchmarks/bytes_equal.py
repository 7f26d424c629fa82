"""Claim: with the same releases, every command writes the same bytes whatever the data are.

Each command that takes private data runs twice: on data, and on data that 55 of 120 users have left (or whose values
are turned round, where numbers of rows are public), given what the first run released. stdout and every file (model,
statement, card, pages, exports) are compared byte by byte. Commands are found by enumeration; those that are not
compared are named with a reason. Leaks that are put in on purpose must be found.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

LEAVING = range(5, 60)


def measure(quick: bool) -> Outcome:
    """Run every scenario twice, then the leaks; in the quick form every fourth, since the suite runs all."""
    runs: Any = importlib.import_module("command_runs")
    rows = runs.made_rows()
    kinds = (
        ("users left", runs.WITHOUT_USERS, runs.without(rows, *LEAVING)),
        ("values turned", runs.OTHER_VALUES, runs.turned(rows, *LEAVING)),
    )
    table = []
    for kind, scenarios, other in kinds:
        for name, steps in list(scenarios.items())[:: 4 if quick else 1]:
            with tempfile.TemporaryDirectory() as folder:
                first, second, _ = runs.written_twice(steps, rows, other, Path(folder))
            size = sum(map(len, first.values()))
            table.append(
                [name, kind, " ".join(step[0] for step in steps), len(first), size, len(runs.unequal(first, second))]
            )
    print_table(["run", "neighbour", "commands", "outputs", "bytes", "outputs that differ"], table)
    missing = _missing(runs)
    leaks = _leaks(quick)
    differ, outputs = sum(row[5] for row in table), sum(row[3] for row in table)
    return Outcome(
        {"outputs": outputs, "differ": differ, "commands not covered": missing, "leaks": leaks},
        {"differ": 0, "commands not covered": [], "leaks": "all found"},
        differ == 0 and not missing and all(leaks.values()),
        f"{len(table)} runs of commands on two data sets each, given the same releases: {differ} of {outputs} outputs "
        f"({sum(row[4] for row in table):,} bytes) differ; {sum(leaks.values())} of {len(leaks)} planted leaks found",
        {"not compared": runs.NOT_COMPARED, "users": 120, "leaving": len(LEAVING)},
    )


def _missing(runs: Any) -> list[str]:
    """Return the commands that are neither run nor named."""
    ran = {step[0] for steps in (*runs.WITHOUT_USERS.values(), *runs.OTHER_VALUES.values()) for step in steps}
    return sorted(set(runs.program.commands) - ran - set(runs.NOT_COMPARED))


def _leaks(quick: bool) -> dict[str, bool]:
    planted: Any = importlib.import_module("planted.pipelines")
    return {case.name: case.wrong().caught for case in planted.cases()[: 1 if quick else None]}
