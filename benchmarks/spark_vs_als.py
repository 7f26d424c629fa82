"""Claim: a private fit on Apache Spark takes no longer than Spark's own ALS, and at most twice as long as in memory.

10 million ratings in a Parquet file, read by a session of `local[2]`. *ALS:* a default private fit of the frame, from
reading it to the model, against `pyspark.ml.recommendation.ALS` on the same frame in the same session, with rank 8 and
10 iterations. *Memory:* a private fit with a public list of items, of rows that are on the workers already, against the
same fit by the engine of memory, whose rows are in memory: start-up, that is reading the rows and bringing them to
their users, is in neither. Before anything is timed, both fit a small frame, so that Java and the worker processes have
started.

The quick form has no Java. It fits frames in this process, and counts how often rows are sent to a worker.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apportion.data import Interactions, Vocabulary
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import Engine, LocalEngine, SparkEngine
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateRatingRecommender
from benchmarks import scale
from benchmarks.claim import PARTIAL, Outcome, Rehearsal, UnavailableError, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

RANK, ITERATIONS = 8, 10
TARGET = {"over_als": 1.0, "over_memory": 2.0}
PARTITIONS = 2
SMALL = 20_000  # ratings that are fitted first
_PYTHON = Path(__file__).parents[1] / ".venv-spark" / "bin" / "python"


def measure(quick: bool) -> Outcome | Rehearsal:
    """Time a private fit, that of ALS, and the one of memory."""
    if quick:
        return _in_memory()
    python = Path(os.environ.get("APPORTION_SPARK_PYTHON", _PYTHON))
    if shutil.which("java") is None or not python.exists():
        raise UnavailableError("Apache Spark is not here; `make test-spark` installs Java and PySpark.")
    ratings = int(os.environ.get("APPORTION_RATINGS", scale.OBSERVATIONS))
    path = _written(ratings)
    command = [str(python), "-m", "benchmarks.spark_vs_als", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(python))
    if made.returncode:
        raise UnavailableError(f"Apache Spark could not be started: {made.stderr.strip().splitlines()[-1]}")
    seconds = json.loads(made.stdout.strip().splitlines()[-1])
    print_table(["", "seconds"], list(seconds.items()))
    value = {
        "over_als": round(seconds["private fit of the frame"] / seconds["ALS"], 3),
        "over_memory": round(seconds["private fit of rows on workers"] / seconds["private fit in memory"], 3),
    }
    return Outcome(
        value,
        TARGET,
        all(value[name] <= TARGET[name] for name in TARGET) and ratings == scale.OBSERVATIONS,
        f"a private fit of {ratings / 1e6:g}M ratings on Spark takes {value['over_als']:.2f}x of ALS and "
        f"{value['over_memory']:.2f}x of the engine of memory",
        {"ratings": ratings, "rank": RANK, "iterations": ITERATIONS, "master": "local[2]", "seconds": seconds},
    )


def _environment(python: Path) -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}


def _in_memory() -> Rehearsal:
    """Fit a small table on frames in this process; count the buckets whose rows are sent."""
    from frames_in_memory import FrameInMemory, SparkInMemory  # type: ignore[import-not-found]

    sent: Counter[str] = Counter()

    class Counting(FrameInMemory):  # type: ignore[misc]
        def mapInArrow(self, work: Any, schema: str) -> Any:  # noqa: N802 - Spark's name
            for batch in (batch for batches in self.partitions for batch in batches):
                sent["with rows" if "body" in batch.schema.names else "by name"] += batch.num_rows
            return super().mapInArrow(work, schema)

    data = long_tailed_ratings(400, 20, 8000, rank=2, rng=np.random.default_rng(0))[0].with_public_tasks()
    engine = SparkEngine(SparkInMemory(Counting), np.float64, partitions=PARTITIONS)
    here, there = (_vectors(data, each) for each in (LocalEngine(np.float64, exact=True), engine))
    few = 0 < 4 * sent["with rows"] <= sent["by name"]
    same = bool(here.size and (here == there).all())
    shows = {"the bits of memory": same, "most passes send no rows": few}
    return Rehearsal({"buckets": engine.buckets, "sent": dict(sent)}, shows)


def _vectors(data: Interactions, engine: Engine) -> Any:
    return PrivateRatingRecommender(20.0, engine=engine, noise=SeededNoise(3)).fit(data).model_.vectors


def _written(ratings: int) -> Path:
    """A Parquet file of so many ratings, in any order, stored beside the claims."""
    path = PARTIAL / f"ratings-{ratings}.parquet"
    if not path.exists():
        data = _data(ratings)
        PARTIAL.mkdir(exist_ok=True)
        _write(path, data)
    return path


def _data(ratings: int) -> Interactions:
    return scale.ratings(scale.USERS * ratings // scale.OBSERVATIONS, scale.TASKS, ratings)


def _write(path: Path, data: Interactions) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    order = np.random.default_rng(0).permutation(data.n_observations)
    columns = {"user": data.users, "item": data.tasks, "rating": data.values}
    table = pa.table({name: pa.array(column[order]) for name, column in columns.items()})
    pq.write_table(table, path, row_group_size=1 << 20)


# -- what runs in the environment of Apache Spark --


def _timed(path: Path) -> dict[str, float]:
    """Seconds of each fit."""
    data = Interactions.read(path).with_public_tasks()
    memory = scale.best_of(2, lambda: PrivateRatingRecommender(1.0).fit(data))
    spark = _session()
    frame = spark.read.parquet(str(path))
    small = frame.limit(SMALL).persist()
    engine = SparkEngine(spark, np.float64, partitions=PARTITIONS)
    for fit in (_private(engine, small), _als(small)):
        fit()
    whole = scale.best_of(1, _private(engine, frame))
    als = scale.best_of(1, _als(frame))
    again = _of_workers(engine, frame, data.task_ids)
    spark.stop()
    return {
        "private fit of the frame": whole,
        "ALS": als,
        "private fit of rows on workers": again,
        "private fit in memory": memory,
    }


def _of_workers(engine: SparkEngine, frame: Any, listed: Vocabulary) -> float:
    """Seconds of a fit to rows that are on the workers; a fit before it brings them there."""
    with engine.read(frame) as rows:
        data = rows.on_list(listed)
        PrivateRatingRecommender(1.0, engine=engine).fit(data)
        return scale.best_of(2, lambda: PrivateRatingRecommender(1.0, engine=engine).fit(data))


def _private(engine: SparkEngine, frame: Any) -> Callable[[], Any]:
    return lambda: PrivateRatingRecommender(1.0, engine=engine).fit(frame)


def _als(frame: Any) -> Callable[[], Any]:
    from pyspark.ml.recommendation import ALS

    columns = {"userCol": "user", "itemCol": "item", "ratingCol": "rating"}
    return lambda: ALS(rank=RANK, maxIter=ITERATIONS, seed=0, **columns).fit(frame)


def _session() -> Any:
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "8g"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


if __name__ == "__main__":
    print(json.dumps(_timed(Path(sys.argv[1]))))
