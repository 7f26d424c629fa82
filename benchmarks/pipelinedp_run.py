"""PipelineDP's local runner on rows in a file, for an interpreter that has it: prints seconds and estimates as JSON.

`python -m benchmarks.pipelinedp_run ROWS.npz STATISTIC GROUPS ROWS EPSILON` counts, adds up or averages by group, with
at most so many groups of a user and so many rows in each.
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
    path, statistic, n_groups, n_rows, epsilon = sys.argv[1:]
    held = np.load(path)
    low, high = held["ends"].tolist()
    rows = list(zip(held["users"].tolist(), held["groups"].tolist(), held["values"].tolist(), strict=True))
    started = time.perf_counter()
    accountant = dp.NaiveBudgetAccountant(total_epsilon=float(epsilon), total_delta=DELTA)
    engine: Any = dp.DPEngine(accountant, dp.LocalBackend())
    params = dp.AggregateParams(
        noise_kind=dp.NoiseKind.GAUSSIAN,
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
    result = engine.aggregate(rows, params, columns, public_partitions=list(range(int(held["n_groups"]))))
    accountant.compute_budgets()
    found = {int(group): float(getattr(metrics, statistic)) for group, metrics in result}
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "estimates": [found[k] for k in sorted(found)]}))


if __name__ == "__main__":
    main()
