"""Claim: the errors of the skew paper and of its code, planted on purpose, are caught by record and replay.

Each planted estimator claims the guarantee of the paper and breaks it in one way (tests/paper_errata.py). A catch is a
release that moves by more than its declared sensitivity when a user leaves, or a sum that does not add up over users,
on random data or on data built to reach the bounds. The same algorithms without the error must pass on all of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.claim import Outcome, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def measure(quick: bool) -> Outcome:
    """Audit the planted errors and their repairs."""
    from paper_errata import PLANTED, REPAIRED

    n_data_sets = 3 if quick else 60
    planted = {name: _audited(make, n_data_sets) for name, make in PLANTED.items()}
    repaired = {name: _audited(make, n_data_sets) for name, make in REPAIRED.items()}
    rows = [[name, *_shown(found)] for name, found in {**planted, **repaired}.items()]
    print_table(["algorithm", "largest ratio to the declared sensitivity", "adds up over users"], rows)
    caught = {name: found[0] > 1.05 or not found[1] for name, found in planted.items()}
    passed = {name: found[0] <= 1 + 1e-9 and found[1] for name, found in repaired.items()}
    return Outcome(
        value={name: round(found[0], 6) for name, found in {**planted, **repaired}.items()},
        target={"planted": "above 1.05, or sums that do not add up", "repaired": "at most 1"},
        holds=all(caught.values()) and all(passed.values()),
        headline=f"{sum(caught.values())} of {len(caught)} planted errors of the skew paper and its code caught by "
        f"record and replay; {sum(passed.values())} of {len(passed)} repaired algorithms pass",
        settings={"data_sets": n_data_sets, "users_removed": "one of 12 in each, and both at the bound"},
    )


def _audited(make: Any, n_data_sets: int) -> tuple[float, bool]:
    """The largest ratio found, and whether all runs agreed and added up."""
    from apportion.auditing import AuditError

    from private_estimators import at_the_bound, audit_estimator
    from strategies import random_interactions

    at_bound, extreme = at_the_bound()
    cases = [(at_bound, user, user) for user in extreme]
    cases += [(random_interactions(seed), seed % 12, seed) for seed in range(n_data_sets)]
    largest, adds_up = 0.0, True
    for data, user, seed in cases:
        try:
            findings = audit_estimator(make, data, user, epsilon=50.0, seed=seed)
        except AuditError:
            adds_up = False
            continue
        largest = max([largest, *(f.ratio for f in findings)])
        adds_up &= all(f.gap <= 1e-7 for f in findings)
    return largest, adds_up


def _shown(found: tuple[float, bool]) -> tuple[float, str]:
    return found[0], "yes" if found[1] else "no"
