"""Claim: every bug of the planted suite is caught by the auditor, and no twin without the bug is accused.

The suite (tests/planted) holds mechanisms that claim a guarantee and lack it: the errors found in papers and in
published code, and habits that cost the guarantee. Each has a twin that differs in nothing but the bug. Record and
replay compares numbers and cannot accuse a right mechanism; the audits that draw accuse one with probability at most
1e-5 each, by exact binomial bounds, and the rate of all of them together is at most the sum.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

DATA_SETS = 40  # random ones for each replay; the quick form keeps the suite's own number
MOST_FALSE_ALARMS = 1e-3


def measure(quick: bool) -> Outcome:
    """Audit every bug and every twin; in the quick form every tenth, since the suite audits all."""
    planted = importlib.import_module("planted")
    settings: Any = importlib.import_module("planted.cases")
    if not quick:
        settings.DATA_SETS = DATA_SETS
    cases: list[Any] = list(planted.CASES[::10] if quick else planted.CASES)
    found = [(case, case.wrong(), case.honest()) for case in cases]
    print_table(
        ["bug", "seen in", "method", "caught", "evidence", "twin passes"],
        [
            [case.name, case.source, case.method, _word(wrong.caught), wrong.evidence[:70], _word(not honest.caught)]
            for case, wrong, honest in found
        ],
    )
    caught = sum(wrong.caught for _, wrong, _ in found)
    passed = sum(not honest.caught for _, _, honest in found)
    alarms = round(sum(honest.false_alarm for _, _, honest in found), 9)
    print(f"overall false-alarm rate: at most {alarms:.2g}\n")
    return Outcome(
        value={"bugs": len(found), "caught": caught, "twins_passed": passed, "false_alarm_rate": alarms},
        target={"caught": "all", "twins_passed": "all", "false_alarm_rate": MOST_FALSE_ALARMS},
        holds=caught == passed == len(found) and alarms <= MOST_FALSE_ALARMS,
        headline=f"{caught} of {len(found)} planted bugs caught, {passed} of {len(found)} twins pass; the probability "
        f"of accusing any right twin is at most {alarms:.2g}",
        settings={
            "confidence_of_each_audit_by_draws": 1 - planted.ALPHA,
            "methods": {
                m: sum(c.method == m for c in cases) for m in ("replay", "likelihood", "tester", "noise", "bytes")
            },
            "random_data_sets_per_replay": settings.DATA_SETS,
        },
    )


def _word(yes: bool) -> str:
    return "yes" if yes else "NO"
