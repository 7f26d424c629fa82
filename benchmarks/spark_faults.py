"""Claim: whatever a cluster loses, repeats or delays, a fit gives the same bits or stops with one clear sentence.

A standalone master and two workers on this machine, each executor a process of its own, with speculation on. During
every fit, at random moments, executors are killed, with the shuffles and cached buckets that they hold; or halted for a
while, so that their tasks are late and doubled; or the files of their shuffles are deleted. In every second fit another
stage merges the sums, however small; in every third, workers keep no rows between passes. The model and the statement
of each fit are compared with those of memory: same bits, each release charged once; or the fit stopped with one
sentence, and nothing was released after it. Any other error counts as wrong. What each fit saw is kept in
benchmarks/partial as soon as the fit ends, so that a run that was stopped goes on; APPORTION_SECONDS stops one early.
The claim holds only if all fits were done.

The quick form has no Java. It runs the same fits on frames in this process that repeat, reorder and lose partitions.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from benchmarks import source
from benchmarks.claim import PARTIAL, Outcome, Rehearsal, UnavailableError, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

FITS, QUICK_FITS = 100, 12
USERS, ITEMS, RATINGS = 300, 30, 3000
PARTITIONS = 2
QUICK_USERS, QUICK_RATINGS = 60, 300
FAULTS = ("executors killed", "executors halted", "shuffles lost")
FAULTS_EVERY = (0.2, 4.0)  # seconds between two faults
MOST_FAULTS = 2  # in one fit
HALTED_FOR = (0.2, 1.0)  # seconds
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
    made = subprocess.run([python, "-m", "benchmarks.spark_faults"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise UnavailableError("The cluster could not be started, or did not get to the end; it says why above.")
    return _outcome(Counter(json.loads(made.stdout.strip().splitlines()[-1])))


def _outcome(seen: Counter[str]) -> Outcome:
    print_table(["what happened", "times"], [list(each) for each in seen.items()])
    done = seen["same bits"] + seen["refused"] + seen["wrong"]
    complete = done == FITS and seen["same bits"] > FITS / 2 and all(seen[fault] > 0 for fault in FAULTS)
    return Outcome(
        value={**seen, "fits": done, "wrong": seen["wrong"]},
        target={"fits": FITS, "wrong": 0, "same bits": "most"},
        holds=complete and not seen["wrong"],
        headline=f"{done} fits, {', '.join(f'{seen[fault]} {fault}' for fault in FAULTS)}: {seen['same bits']} the "
        f"same in every bit, {seen['refused']} stopped with one sentence, {seen['wrong']} wrong",
        settings={"fits": FITS, "users": USERS, "items": ITEMS, "ratings": RATINGS, "workers": 2, "speculation": True},
    )


def _data(users: int, ratings: int) -> Interactions:
    return long_tailed_ratings(users, ITEMS, ratings, rank=2, rng=np.random.default_rng(0))[0].with_public_tasks()


def _fit(data: Any, engine: Engine) -> str:
    """A digest of everything that is learned and stated: equal for equal bits and equal charges."""
    fitted = PrivateRatingRecommender(5.0, dimension=2, rounds=1, engine=engine, noise=SeededNoise(7)).fit(data)
    model = fitted.model_
    parts = (model.vectors.tobytes(), model.popularity.tobytes(), fitted.statement_.to_json().encode())
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _tried(fit: Callable[[], str], wanted: str) -> str:
    """How a fit ended; an error of the cluster that reaches the caller is not one clear sentence."""
    try:
        return "same bits" if fit() == wanted else "wrong"
    except ApportionError as error:
        return "refused" if "\n" not in str(error) else "wrong"
    except Exception as error:
        print(f"wrong: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return "wrong"


def _in_memory() -> Counter[str]:
    from frames_in_memory import FaultyFrame, SparkInMemory  # type: ignore[import-not-found]

    data = _data(QUICK_USERS, QUICK_RATINGS)
    wanted, seen = _fit(data, LocalEngine(exact=True)), Counter[str]()
    for number in range(QUICK_FITS):
        frames = SparkInMemory(partial(FaultyFrame, rng=random.Random(number)))
        anew = data.where(np.ones(data.n_observations, bool))
        seen[_tried(partial(_fit, anew, _engine(frames, 2, number)), wanted)] += 1
    return seen


def _engine(spark: Any, partitions: int, number: int) -> SparkEngine:
    """The engine of a fit: in every second one a second stage merges the sums, in every third workers keep nothing."""
    engine = SparkEngine(spark, partitions=partitions, kept=0 if number % 3 == 2 else "64MiB")
    if number % 2:
        engine.most_gathered = 0
    return engine


# -- what runs in the environment of Apache Spark --


def _executors() -> list[int]:
    """The processes of executors, which the workers started."""
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


@dataclass
class _Faults:
    """What goes wrong in one fit.

    Attributes:
        rng: decides what, and when.
        folder: where executors write.
        seen: counts.
    """

    rng: random.Random
    folder: Path
    seen: Counter[str]

    def commit(self, done: threading.Event) -> None:
        """Do something wrong now and then, until the fit is done."""
        for _ in range(MOST_FAULTS):
            if done.wait(self.rng.uniform(*FAULTS_EVERY)):
                return
            fault, running = self.rng.choice(FAULTS), _executors()
            if fault == "executors killed" and len(running) > 1:  # one is left, so that the fit gets on
                self._signal(self.rng.choice(running), signal.SIGKILL, fault)
            elif fault == "executors halted" and running:
                self._halt(self.rng.choice(running))
            elif fault == "shuffles lost":
                self._lose_a_shuffle()

    def _signal(self, process: int, sent: signal.Signals, fault: str) -> int:
        try:
            os.kill(process, sent)
        except ProcessLookupError:
            return 0
        self.seen[fault] += 1
        return 1

    def _halt(self, process: int) -> None:
        if self._signal(process, signal.SIGSTOP, "executors halted"):
            time.sleep(self.rng.uniform(*HALTED_FOR))
            self._signal(process, signal.SIGCONT, "executors let go on")

    def _lose_a_shuffle(self) -> None:
        """Delete what one executor holds of a shuffle."""
        files = sorted(self.folder.rglob("shuffle_*"))
        if files:
            chosen = self.rng.choice(files).parent.parent
            for file in chosen.rglob("shuffle_*"):
                file.unlink(missing_ok=True)
            self.seen["shuffles lost"] += 1


@contextmanager
def _failing(faults: _Faults) -> Iterator[None]:
    done = threading.Event()
    thread = threading.Thread(target=faults.commit, args=(done,))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _cluster(folder: Path) -> Iterator[Any]:
    """A session on a standalone master with two workers, all of them processes of this one."""
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.sql import SparkSession

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master, start = f"spark://127.0.0.1:{port}", [f"{_find_spark_home()}/bin/spark-class"]
    of_workers = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder), master]
    commands = [
        [*start, _DEPLOY + "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        *2 * [[*start, _DEPLOY + "worker.Worker", *of_workers]],
    ]
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(folder), "SPARK_DAEMON_MEMORY": "256m"}
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    processes = [subprocess.Popen(command, **quiet) for command in commands]
    builder = SparkSession.builder.master(master)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    here = os.pathsep.join(str(Path(each).resolve()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    spark = builder.config("spark.executorEnv.PYTHONPATH", here).getOrCreate()  # executors work in other folders
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()
        for process in processes:
            process.terminate()


_DEPLOY = "org.apache.spark.deploy."
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "600m",
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.task.maxFailures": "12",
    "spark.stage.maxConsecutiveAttempts": "12",
    "spark.deploy.maxExecutorRetries": "-1",
}


class _Done:
    """The fits that are done, one a line in a file: what was seen in each."""

    def __init__(self) -> None:
        PARTIAL.mkdir(exist_ok=True)
        self._path = PARTIAL / f"spark-faults-{source.fingerprint('spark-faults')[:16]}.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self.fits = {int(held["fit"]): Counter[str](held["seen"]) for held in map(json.loads, lines)}

    def add(self, number: int, seen: Counter[str]) -> None:
        """Keep what was seen in a fit."""
        self.fits[number] = seen
        with self._path.open("a") as file:
            file.write(json.dumps({"fit": number, "seen": seen}) + "\n")


def _on_cluster(fits: int) -> Counter[str]:
    """So many fits with faults, less those that were done before."""
    data, done = _data(USERS, RATINGS), _Done()
    left = [number for number in range(fits) if number not in done.fits]
    if left:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _cluster(Path(folder)) as spark:
            _fit_all(left, data, spark, Path(folder), done)
    return sum((done.fits[number] for number in range(fits) if number in done.fits), Counter[str]())


def _fit_all(numbers: list[int], data: Interactions, spark: Any, folder: Path, done: _Done) -> None:
    """Fit again and again, each time on the frame itself, read and bucketed anew."""
    wanted, frame = _fit(data, LocalEngine(exact=True)), spark.createDataFrame(_table(data)).repartition(PARTITIONS)
    start, most = time.monotonic(), float(os.environ.get("APPORTION_SECONDS", "inf"))
    for number in numbers:
        began, seen = time.monotonic(), Counter[str]()
        if began - start > most:
            break
        with _failing(_Faults(random.Random(number), folder, seen)):
            ended = _tried(partial(_fit_frame, frame, data, _engine(spark, PARTITIONS, number)), wanted)
        seen[ended] += 1
        done.add(number, seen)
        print(f"fit {number}: {dict(seen)}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _fit_frame(frame: Any, data: Interactions, engine: SparkEngine) -> str:
    with engine.read(frame) as rows:
        return _fit(rows.on_list(data.task_ids), engine)


def _table(data: Interactions) -> Any:
    import pyarrow as pa

    ids = {"user": data.user_ids.ids_of(data.users), "item": data.task_ids.ids_of(data.tasks), "rating": data.values}
    return pa.table({name: pa.array(column) for name, column in ids.items()})


if __name__ == "__main__":
    print(json.dumps(_on_cluster(int(os.environ.get("APPORTION_FITS", FITS)))))
