"""PipelineDP's local runner on rows in a file, for an interpreter that has it: prints seconds and estimates as JSON.

`python -m benchmarks.pipelinedp_run ROWS.npz STATISTIC GROUPS ROWS EPSILON [LAW COPIES]` counts, adds up or averages by
group, with at most so many groups of a user and so many rows in each. Several copies are as many runs in one query:
each has users and groups of its own, so its noise is that of a single run.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import numpy as np

DELTA = 1e-6


def main() -> None:
    """Aggregate once."""
    dp: Any = importlib.import_module("pipeline_dp")
    path, statistic, n_groups, n_rows, epsilon, law, copies = (*sys.argv[1:], "Gaussian", "1")[:7]
    held = np.load(path)
    (low, high), all_groups = held["ends"].tolist(), int(held["n_groups"])
    places = [(copy * len(held["users"]), copy * all_groups) for copy in range(int(copies))]
    columns_held = [held[name].tolist() for name in ("users", "groups", "values")]
    rows = [(u + a, g + b, v) for a, b in places for u, g, v in zip(*columns_held, strict=True)]
    started = time.perf_counter()
    delta = DELTA if law == "Gaussian" else 0.0
    accountant = dp.NaiveBudgetAccountant(total_epsilon=float(epsilon), total_delta=delta)
    engine: Any = dp.DPEngine(accountant, dp.LocalBackend())
    params = dp.AggregateParams(
        noise_kind=getattr(dp.NoiseKind, law.upper()),
        metrics=[{"count": dp.Metrics.COUNT, "sum": dp.Metrics.SUM, "mean": dp.Metrics.MEAN}[statistic]],
        max_partitions_contributed=int(n_groups),
        max_contributions_per_partition=int(n_rows),
        min_value=low,
        max_value=high,
    )
    columns = dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    result = engine.aggregate(rows, params, columns, public_partitions=list(range(all_groups * int(copies))))
    accountant.compute_budgets()
    found = {int(group): float(getattr(metrics, statistic)) for group, metrics in result}
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "estimates": [found[k] for k in sorted(found)]}))


if __name__ == "__main__":
    main()
