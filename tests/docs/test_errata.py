"""The table of errata names each of them once, with proofs that exist and planted bugs that the suite holds."""

from __future__ import annotations

import re
from pathlib import Path

import planted

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "errata.md"
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| E\d", line)
    for cells in [[cell.strip() for cell in line.strip("| ").split(" | ")]]
}


def test_every_erratum_has_one_row():
    assert list(ROWS) == [*(f"E{k}" for k in range(1, 15)), "E14b", "E15", "E16", "E17", "E18"]
    assert all(len(cells) == 4 and all(cells) for cells in ROWS.values())


def test_planted_bugs_are_those_of_the_suite():
    for name, cells in ROWS.items():
        listed = [] if cells[3] == "–" else cells[3].split("; ")
        assert sorted(listed) == sorted(case.name for case in planted.CASES if case.source == name), name


def test_proofs_exist():
    for name, cells in ROWS.items():
        (link,) = re.findall(r"\]\(([^)]+)\)", cells[2])
        assert (PAGE.parent / link).exists(), name
