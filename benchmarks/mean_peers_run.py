"""Means over rows by PipelineDP, OpenDP or Tumult Analytics, for an interpreter that has the package.

`python mean_peers_run.py PACKAGE FOLDER` reads jobs.json, a list of {"file", "epsilon", "limit", "runs"}, and the named
files with users, values and the public range; it prints a list of estimates for each job. The unit is a user with all
rows, neighbours add or remove one, ε is that of the whole mean and δ is 0. PipelineDP and Tumult take all runs of a job
in one query: every run is a group with users of its own, so each group's noise is that of a single query.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Rows = tuple[Any, Any, float, float]  # users, values, and both ends of the range
STEPS = 1 << 20  # of half the range


def by_pipelinedp() -> Callable[[Rows, float, int, int], list[float]]:
    """PipelineDP's local runner with Laplace noise."""
    dp: Any = importlib.import_module("pipeline_dp")

    def means(rows: Rows, epsilon: float, limit: int, runs: int) -> list[float]:
        users, values, low, high = rows
        accountant = dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=0.0)
        params = dp.AggregateParams(
            noise_kind=dp.NoiseKind.LAPLACE,
            metrics=[dp.Metrics.MEAN],
            max_partitions_contributed=1,
            max_contributions_per_partition=limit,
            min_value=low,
            max_value=high,
        )
        columns = dp.DataExtractors(
            privacy_id_extractor=lambda row: (row[0], row[2]),
            partition_extractor=lambda row: row[2],
            value_extractor=lambda row: row[1],
        )
        copies = [(user, value, run) for run in range(runs) for user, value in zip(users, values, strict=True)]
        engine = dp.DPEngine(accountant, dp.LocalBackend())
        found = engine.aggregate(copies, params, columns, public_partitions=list(range(runs)))
        accountant.compute_budgets()
        return [float(metrics.mean) for _, metrics in found]

    return means


def by_opendp() -> Callable[[Rows, float, int, int], list[float]]:
    """OpenDP's sum of centred values and count, half of ε each; the rows of a user are drawn before, as it asks for.

    Values are whole numbers of a 2^-20 of half the range: its sum of floats has twice the sensitivity.
    """
    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")

    def means(rows: Rows, epsilon: float, limit: int, runs: int) -> list[float]:
        users, values, low, high = np.asarray(rows[0]), np.asarray(rows[1]), rows[2], rows[3]
        middle, half = (low + high) / 2, (high - low) / 2
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
        bounded = space >> dp.t.then_clamp((-STEPS, STEPS)) >> dp.t.then_sum()
        measured = [
            dp.binary_search_chain(lambda scale, chain=chain: chain >> dp.m.then_laplace(scale), limit, epsilon / 2)
            for chain in (bounded, space >> dp.t.then_count())
        ]
        estimates = []
        for run in range(runs):
            kept = np.rint((values - middle) / half * STEPS)[drawn(users, limit, run)].astype(int).tolist()
            top, count = (each(kept) for each in measured)
            estimates.append(float(np.clip(middle + half * top / STEPS / max(count, 1), low, high)))
        return estimates

    return means


def drawn(users: Any, limit: int, seed: int) -> Any:
    """Which rows are kept: at most so many of each user, at random."""
    order = np.lexsort((np.random.default_rng(seed).random(len(users)), users))
    ordered = users[order]
    first = np.searchsorted(ordered, ordered)
    return order[np.arange(len(users)) - first < limit]


def by_tumult() -> Callable[[Rows, float, int, int], list[float]]:
    """Tumult Analytics on a local Spark session, pure differential privacy."""
    tmlt: Any = importlib.import_module("tmlt.analytics")
    sql: Any = importlib.import_module("pyspark.sql")
    pandas: Any = importlib.import_module("pandas")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.driver.memory": "3g"}
    builder = sql.SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def means(rows: Rows, epsilon: float, limit: int, runs: int) -> list[float]:
        users, values, low, high = rows
        frame = pandas.DataFrame({
            "user": [f"{user}/{run}" for run in range(runs) for user in users],
            "value": np.tile(values, runs),
            "run": np.repeat(np.arange(runs), len(users)),
        })  # fmt: skip
        budget = tmlt.PureDPBudget(epsilon)
        session = tmlt.Session.from_dataframe(
            budget, "rows", spark.createDataFrame(frame), protected_change=tmlt.AddRowsWithID("user")
        )
        keys = tmlt.KeySet.from_dict({"run": list(range(runs))})
        query = tmlt.QueryBuilder("rows").enforce(tmlt.MaxRowsPerID(limit)).groupby(keys).average("value", low, high)
        found = session.evaluate(query, budget).toPandas()
        return [float(mean) for mean in found["value_average"]]

    return means


PACKAGES = {"pipelinedp": by_pipelinedp, "opendp": by_opendp, "tumult": by_tumult}


def main() -> None:
    """Run all jobs."""
    warnings.simplefilter("ignore")
    package, folder = sys.argv[1], Path(sys.argv[2])
    means = PACKAGES[package]()
    found = []
    for job in json.loads((folder / "jobs.json").read_text()):
        held = np.load(folder / job["file"])
        rows = held["users"].tolist(), held["values"].tolist(), *held["ends"].tolist()
        found.append(means(rows, job["epsilon"], job["limit"], job["runs"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
