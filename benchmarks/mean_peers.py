"""Peers of a mean over rows: the error of a sample limit in closed form, and PipelineDP, OpenDP and Tumult as they are.

A sample limit keeps at most H rows of each user and divides a noisy sum of centred values by a noisy count, half of ε
for each. Packages are run with interpreters of environments of their own, which APPORTION_PIPELINEDP_PYTHON,
APPORTION_OPENDP_PYTHON and APPORTION_TUMULT_PYTHON name (pipeline-dp 0.3.1, opendp 0.16, tmlt.analytics 0.21 with a
Java machine were used); one without such a name is not run, and the result says so.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.interpreters import interpreter_of, printed_by
from benchmarks.mean_peers_run import PACKAGES
from benchmarks.real_rows import RealRows

LIMITS = tuple(2**k for k in range(11))  # public
CAREFUL = 8  # rows of a user that are kept by an analyst who has not looked
RUNS, RUNS_OF_MANY_ROWS, MANY_ROWS = 20, 5, 20_000
MOST_ROWS = {"tumult": 5_000}  # of a set: a query over copies of more takes minutes


def limit_error(rows: RealRows, epsilon: float, limit: int) -> float:
    """Root mean squared error of a sample limit: what it does to the mean, the choice of rows, and the noise."""
    sizes = rows.sizes
    means = np.bincount(rows.users, rows.values) / sizes
    within = np.bincount(rows.users, np.square(rows.values - means[rows.users])) / np.maximum(sizes - 1, 1)
    middle, half = np.mean(rows.ends), (rows.ends[1] - rows.ends[0]) / 2
    kept = np.minimum(sizes, limit)
    total = kept.sum()
    mean = (kept * means).sum() / total
    drawn = (kept * within * (1 - kept / sizes)).sum() / total**2
    noise = 2 * (2 * limit / epsilon / total) ** 2 * (half**2 + (mean - middle) ** 2)
    return float(np.sqrt((mean - rows.values.mean()) ** 2 + drawn + noise))


def best_limit(rows: RealRows, epsilon: float, limits: Sequence[int]) -> tuple[float, int]:
    """The least error of these limits, which takes the data to know, and the limit."""
    return min((limit_error(rows, epsilon, int(limit)), int(limit)) for limit in limits)


def package_errors(package: str, sets: Sequence[RealRows], epsilon: float) -> dict[str, Any] | None:
    """By set, root mean squared errors at the best public limit in hindsight and at the careful one; None if absent."""
    interpreter = interpreter_of(package)
    if interpreter is None:
        return None
    asked = [rows for rows in sets if len(rows.values) < MOST_ROWS.get(package, len(rows.values) + 1)]
    limits = [(best_limit(rows, epsilon, LIMITS)[1], CAREFUL) for rows in asked]
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for k, (rows, pair) in enumerate(zip(asked, limits, strict=True)):
            np.savez(Path(folder) / f"{k}.npz", users=rows.users, values=rows.values, ends=rows.ends)
            runs = RUNS if len(rows.values) < MANY_ROWS else RUNS_OF_MANY_ROWS
            jobs += [{"file": f"{k}.npz", "epsilon": epsilon, "limit": limit, "runs": runs} for limit in pair]
        (Path(folder) / "jobs.json").write_text(json.dumps(jobs))
        found = iter(printed_by(interpreter, "mean_peers_run.py", package, folder, folder=folder))
    return {
        rows.name: [[limit, _error(rows, next(found)), limit_error(rows, epsilon, limit)] for limit in pair]
        for rows, pair in zip(asked, limits, strict=True)
    }


def _error(rows: RealRows, estimates: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(np.array(estimates) - rows.values.mean()))))


__all__ = ["CAREFUL", "LIMITS", "PACKAGES", "best_limit", "limit_error", "package_errors"]
