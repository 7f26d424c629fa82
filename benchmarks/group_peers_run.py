"""Numbers by group by PipelineDP or Tumult Analytics on rows in a file, for an interpreter that has the package.

`python group_peers_run.py PACKAGE ROWS.npz STATISTIC GROUPS ROWS EPSILON LAW COPIES` counts, adds up or averages by
group, with at most so many groups of a user and so many rows in each, and prints seconds and estimates as JSON. Several
copies are as many runs in one query: each has users and groups of its own, so its noise is that of a single run.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

DELTA = 1e-6


@dataclass(frozen=True)
class Query:
    """What is asked, of which rows."""

    users: Any
    groups: Any
    values: Any
    ends: tuple[float, float]
    all_groups: int
    statistic: str
    n_groups: int
    n_rows: int
    epsilon: float
    law: str


def by_pipelinedp(asked: Query) -> dict[int, float]:
    """Ask PipelineDP's local runner."""
    dp: Any = importlib.import_module("pipeline_dp")
    rows = list(zip(asked.users.tolist(), asked.groups.tolist(), asked.values.tolist(), strict=True))
    delta = DELTA if asked.law == "Gaussian" else 0.0
    accountant = dp.NaiveBudgetAccountant(total_epsilon=asked.epsilon, total_delta=delta)
    params = dp.AggregateParams(
        noise_kind=getattr(dp.NoiseKind, asked.law.upper()),
        metrics=[getattr(dp.Metrics, asked.statistic.upper())],
        max_partitions_contributed=asked.n_groups,
        max_contributions_per_partition=asked.n_rows,
        min_value=asked.ends[0],
        max_value=asked.ends[1],
    )
    columns = dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    engine: Any = dp.DPEngine(accountant, dp.LocalBackend())
    result = engine.aggregate(rows, params, columns, public_partitions=list(range(asked.all_groups)))
    accountant.compute_budgets()
    return {int(group): float(getattr(metrics, asked.statistic)) for group, metrics in result}


def by_tumult(asked: Query) -> dict[int, float]:
    """Ask Tumult Analytics on a local Spark session, with pure or zero-concentrated differential privacy."""
    tmlt: Any = importlib.import_module("tmlt.analytics")
    frames: Any = importlib.import_module("pandas")
    held = {"user": asked.users, "group": asked.groups, "value": asked.values}
    table = _spark().createDataFrame(frames.DataFrame(held))
    budget = tmlt.PureDPBudget(asked.epsilon) if asked.law == "Laplace" else tmlt.RhoZCDPBudget(_rho(asked.epsilon))
    unit = tmlt.AddRowsWithID("user")
    session = tmlt.Session.from_dataframe(budget, "rows", table, protected_change=unit)
    keys = tmlt.KeySet.from_dict({"group": list(range(asked.all_groups))})
    query = tmlt.QueryBuilder("rows").enforce(tmlt.MaxGroupsPerID("group", asked.n_groups))
    grouped = query.enforce(tmlt.MaxRowsPerGroupPerID("group", asked.n_rows)).groupby(keys)
    low, high = asked.ends
    query = {
        "count": lambda: grouped.count(name="found"),
        "sum": lambda: grouped.sum("value", low, high, name="found"),
        "mean": lambda: grouped.average("value", low, high, name="found"),
    }[asked.statistic]()
    found = session.evaluate(query, budget).toPandas()
    return {int(group): float(value) for group, value in zip(found["group"], found["found"], strict=True)}


def _rho(epsilon: float) -> float:
    """The ρ of zero-concentrated privacy that gives ε at δ: ρ + 2 √(ρ ln 1/δ) = ε."""
    log = -math.log(DELTA)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def _spark() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = importlib.import_module("pyspark.sql").SparkSession.builder.master("local[1]")
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.driver.memory": "3g"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


PACKAGES = {"pipelinedp": by_pipelinedp, "tumult": by_tumult}


def main() -> None:
    """Aggregate once."""
    warnings.simplefilter("ignore")
    package, path, statistic, n_groups, n_rows, epsilon, law, copies = sys.argv[1:9]
    held, many = np.load(path), int(copies)
    of_copy = np.repeat(np.arange(many), len(held["users"]))
    all_groups, all_users = int(held["n_groups"]), int(held["users"].max()) + 1
    users = np.tile(held["users"], many) + of_copy * all_users
    groups = np.tile(held["groups"], many) + of_copy * all_groups
    low, high = held["ends"].tolist()
    sizes = (all_groups * many, statistic, int(n_groups), int(n_rows), float(epsilon), law)
    asked = Query(users, groups, np.tile(held["values"], many), (low, high), *sizes)
    started = time.perf_counter()
    found = PACKAGES[package](asked)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "estimates": [found[k] for k in sorted(found)]}))


if __name__ == "__main__":
    main()
