"""Claim: whatever a cluster loses, repeats or delays, a fit gives the same bits or stops with one clear sentence.

A cluster of two workers on this machine (Spark's `local-cluster`, each executor a process of its own), with speculation
on. During every fit executors are killed at random moments, with the shuffles and cached buckets that they hold, so
tasks are repeated and doubled. The model and the statement of each fit are compared with those of memory: same bits,
each release charged once; or the fit stopped with one sentence, and nothing was released after it.

The quick form has no Java. It runs the same fits on frames in this process that repeat, reorder and lose partitions.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import Engine, LocalEngine, SparkEngine
from apportion.errors import ApportionError
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateRatingRecommender
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

FITS, QUICK_FITS = 100, 12
USERS, ITEMS, RATINGS = 2000, 60, 20_000
QUICK_USERS, QUICK_RATINGS = 60, 300
KILLS_EVERY = (0.5, 6.0)  # seconds between two kills
MOST_KILLS = 3  # in one fit
_PYTHON = Path(__file__).parents[1] / ".venv-spark" / "bin" / "python"


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit again and again on a cluster that fails."""
    if quick:
        seen = _in_memory()
        ended = seen["same bits"] + seen["refused"]
        shows = {"same bits or a refusal": ended == QUICK_FITS, "both occur": ended > seen["refused"] > 0}
        return Rehearsal(dict(seen), shows)
    python = Path(os.environ.get("APPORTION_SPARK_PYTHON", _PYTHON))
    if shutil.which("java") is None or not python.exists():
        raise UnavailableError("Apache Spark is not here; `make test-spark` installs Java and PySpark.")
    made = subprocess.run([python, "-m", "benchmarks.spark_faults"], capture_output=True, text=True, check=False)
    if made.returncode:
        raise UnavailableError(f"The cluster could not be started: {made.stderr.strip().splitlines()[-1]}")
    seen = Counter(json.loads(made.stdout.strip().splitlines()[-1]))
    print_table(["what happened", "times"], [list(each) for each in seen.items()])
    ended = seen["same bits"] + seen["refused"]
    return Outcome(
        value={**seen, "wrong": FITS - ended},
        target={"wrong": 0, "same bits": "most"},
        holds=ended == FITS and seen["same bits"] > FITS / 2 and seen["executors killed"] >= FITS,
        headline=f"{FITS} fits, {seen['executors killed']} executors killed: {seen['same bits']} the same in every "
        f"bit, {seen['refused']} stopped with one sentence, {FITS - ended} wrong",
        settings={"fits": FITS, "users": USERS, "items": ITEMS, "ratings": RATINGS, "workers": 2, "speculation": True},
    )


def _data(users: int, ratings: int) -> Interactions:
    return long_tailed_ratings(users, ITEMS, ratings, rank=2, rng=np.random.default_rng(0))[0].with_public_tasks()


def _fit(data: Any, engine: Engine) -> str:
    """A digest of everything that is learned and stated: equal for equal bits and equal charges."""
    fitted = PrivateRatingRecommender(5.0, dimension=2, rounds=2, engine=engine, noise=SeededNoise(7)).fit(data)
    model = fitted.model_
    parts = (model.vectors.tobytes(), model.popularity.tobytes(), fitted.statement_.to_json().encode())
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _tried(data: Any, engine: Engine, wanted: str) -> str:
    try:
        return "same bits" if _fit(data, engine) == wanted else "wrong"
    except ApportionError as error:
        return "refused" if "\n" not in str(error) else "wrong"


def _in_memory() -> Counter[str]:
    from frames_in_memory import FaultyFrame, SparkInMemory  # type: ignore[import-not-found]

    data = _data(QUICK_USERS, QUICK_RATINGS)
    wanted, seen = _fit(data, LocalEngine(exact=True)), Counter[str]()
    for number in range(QUICK_FITS):
        frames = SparkInMemory(partial(FaultyFrame, rng=random.Random(number)))
        anew = data.where(np.ones(data.n_observations, bool))
        seen[_tried(anew, SparkEngine(frames, partitions=2), wanted)] += 1
    return seen


# -- what runs in the environment of Apache Spark --


def _executors() -> list[int]:
    """The processes of executors that this driver's Java started."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    own, left = [], [os.getpid()]
    while left:
        found = children.get(left.pop(), [])
        left += found
        own += [each for each in found if "CoarseGrainedExecutorBackend" in _command(each)]
    return own


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


@contextmanager
def _killing(rng: random.Random, seen: Counter[str]) -> Iterator[None]:
    """Kill an executor now and then, until the fit is done."""
    done = threading.Event()

    def kill() -> None:
        for _ in range(MOST_KILLS):
            while not done.wait(rng.uniform(*KILLS_EVERY)):
                running = _executors()
                if len(running) > 1:  # one is left, so that a slow machine gets on
                    os.kill(rng.choice(running), signal.SIGKILL)
                    seen["executors killed"] += 1
                    break

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _cluster() -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "600m",
        "spark.speculation": "true",
        "spark.speculation.interval": "20ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.task.maxFailures": "12",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _on_cluster(fits: int) -> Counter[str]:
    """So many fits with killed executors, each on the frame itself, read and bucketed anew."""
    data, seen = _data(USERS, RATINGS), Counter[str]()
    wanted = _fit(data, LocalEngine(exact=True))
    spark = _cluster()
    ids = {"user": data.user_ids.ids_of(data.users), "item": data.task_ids.ids_of(data.tasks), "rating": data.values}
    import pyarrow as pa

    frame = spark.createDataFrame(pa.table({name: pa.array(column) for name, column in ids.items()})).repartition(4)
    engine = SparkEngine(spark, partitions=4)
    for number in range(fits):
        began = time.monotonic()
        with _killing(random.Random(number), seen), engine.read(frame) as rows:
            seen[_tried(rows.on_list(data.task_ids), engine, wanted)] += 1
        print(f"fit {number}: {dict(seen)}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    spark.stop()
    return seen


if __name__ == "__main__":
    print(json.dumps(_on_cluster(int(os.environ.get("APPORTION_FITS", FITS)))))
