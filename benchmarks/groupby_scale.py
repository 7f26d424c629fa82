"""Claim: statistics by group take a fifth of the time of PipelineDP's local runner, and 100M rows fit on two cores.

Both count rows and take their mean by group, with a public list of groups; ours in one fit, the peer in one run for
each. The large form has 10^6 users and 10^4 groups. The peer runs in an interpreter of its own, named by
APPORTION_PIPELINEDP_PYTHON.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from apportion.privacy import SeededNoise
from apportion.statistics import UserGroupBy
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table
from benchmarks.group_peers import saved
from benchmarks.group_peers_run import DELTA
from benchmarks.group_sets import GroupRows
from benchmarks.interpreters import interpreter_of, printed_by

EPSILON = 1.0
LARGE, SMALL = (100_000_000, 1_000_000, 10_000), (2_000_000, 100_000, 1_000)
MOST_RATIO, MOST_MINUTES = 0.2, 15.0


def measure(quick: bool) -> Outcome | Rehearsal:
    """Seconds of one fit, and of the peer."""
    if quick:
        began, rows = time.process_time(), made(200_000, 10_000, 100)
        seconds, busy = own(rows), time.process_time() - began
        value = {"seconds at 200,000 rows": round(seconds, 3), "of the processor": round(busy, 3)}
        return Rehearsal(value, {"200,000 rows take less than 10 seconds of a processor": busy < 10})
    rows = made(*SMALL)
    mine, theirs = own(rows), sum(peer(rows, statistic) for statistic in ("count", "mean"))
    del rows
    large = own(made(*LARGE))
    print_table(["rows", "seconds", "PipelineDP"], [[SMALL[0], mine, theirs], [LARGE[0], large, "-"]])
    return Outcome(
        value={"ratio": round(mine / theirs, 4), "minutes at 100M rows": round(large / 60, 2)},
        target={"ratio": MOST_RATIO, "minutes at 100M rows": MOST_MINUTES},
        holds=mine <= MOST_RATIO * theirs and large <= 60 * MOST_MINUTES,
        headline=f"statistics by group: {mine / theirs:.3f} of the time of PipelineDP's local runner at 2M rows; "
        f"100M rows in {large / 60:.1f} minutes",
        settings={"epsilon": EPSILON, "delta": DELTA, "small": SMALL, "large": LARGE},
    )


def made(n_rows: int, n_users: int, n_groups: int) -> GroupRows:
    """Rows of users and groups at random, groups with a long tail."""
    rng = np.random.default_rng(0)
    groups = (n_groups * rng.random(n_rows, np.float32) ** 2).astype(np.int64)
    users = rng.integers(0, n_users, n_rows)
    return GroupRows("scale", rng.uniform(0, 10, n_rows), users, groups.clip(0, n_groups - 1), n_groups, (0.0, 10.0))


def own(rows: GroupRows) -> float:
    """Seconds of a fit, from arrays."""
    keys, started = [str(k) for k in range(rows.n_groups)], time.perf_counter()
    made_by = UserGroupBy(("count", "mean"), EPSILON, DELTA, value_range=rows.ends, keys=keys, noise=SeededNoise(0))
    made_by.fit(rows.values, users=rows.users, by=rows.groups)
    return time.perf_counter() - started


def peer(rows: GroupRows, statistic: str) -> float:
    """Seconds of PipelineDP's local runner, reading not counted."""
    interpreter = interpreter_of("pipelinedp")
    if interpreter is None:
        raise UnavailableError("PipelineDP is needed: name an interpreter that has it in APPORTION_PIPELINEDP_PYTHON.")
    with tempfile.TemporaryDirectory() as folder:
        path = saved(rows, Path(folder))
        asked = ("pipelinedp", path, statistic, 8, 4, EPSILON, "Gaussian", 1)
        return float(printed_by(interpreter, "group_peers_run.py", *asked)["seconds"])
