"""From a table on a Spark cluster to the data of a fit: `--engine spark --master ...`.

DATA is then the name of a table of the session, or a file or folder that the cluster can read: Parquet, CSV or TSV.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

from apportion.cli.item_files import read_item_list
from apportion.cli.loading import names_given, rules_of
from apportion.cli.options import DataOptions, Kind
from apportion.cli.row_options import refuse_rules
from apportion.data import IGNORE
from apportion.data.columns import Columns, choose_columns
from apportion.data.vocabulary import Vocabulary
from apportion.engines import SparkEngine
from apportion.errors import InputError

_CONNECT_PORT = 15002
_SEPARATED = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, eq=False)
class LoadedOnSpark:
    """Data on a cluster as a command uses them.

    Attributes:
        data: the observations, with a list of items or without one.
        kind: ratings or clicks.
        remarks: decisions made while loading, for stderr.
        rules: by which rows were chosen, for the statement.
        engine: adds up where the data are.
    """

    data: Any
    kind: Kind
    remarks: tuple[str, ...]
    rules: tuple[str, ...]
    engine: SparkEngine


@contextmanager
def load_on_spark(table: str, options: DataOptions, master: str, partitions: int) -> Iterator[LoadedOnSpark]:
    """Open a table on a cluster; its session ends with the command.

    Args:
        table: name of a table, or a file.
        options: how it is read.
        master: `local[2]`, `spark://host:port`, or `sc://host:port` for Spark Connect.
        partitions: number of tasks in a pass.
    """
    refuse_rules(options, table, "choose rows in the table", unless="drop")
    with spark_session(master) as spark:
        frame, untyped = frame_of(spark, table, names_given(options))
        columns = _columns(frame, table, options)
        kind: Kind = options.kind or ("ratings" if columns.value and options.min_value is None else "clicks")
        if kind == "ratings" and columns.value is None:
            problem = f"{table}: ratings need a value column, but none was found"
            raise InputError(problem, argument="value", remedy="name it with")
        frame = _with_numbers(frame, columns, options)
        engine = SparkEngine(spark, "float64" if kind == "ratings" else "float32", partitions=partitions)
        value = columns.value if kind == "ratings" else IGNORE
        with engine.read(frame, user=columns.user, task=columns.task, value=value, untyped=untyped) as rows:
            rules = tuple(rules_of(options, table))
            yield LoadedOnSpark(_listed(rows, options), kind, _remarks(kind, options), rules, engine)


@contextmanager
def spark_session(master: str) -> Iterator[Any]:
    """Open a session of a cluster, which ends with the command."""
    spark = _session(master)
    try:
        yield spark
    finally:
        spark.stop()


def _session(master: str) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError(
            "--engine spark needs PySpark; install it with: pip install 'apportion[spark]' for sc://..., or "
            "pip install pyspark for a master.",
            argument=None,
        ) from None
    try:
        if master.startswith("sc://"):
            _require_server(master)
            return SparkSession.builder.remote(master).create()
        return SparkSession.builder.master(master).getOrCreate()
    except Exception as error:  # whatever PySpark, its client or Java raise here, there is no session
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"Spark cannot be reached at {master!r}: {reason}", argument="master") from None


def _require_server(master: str) -> None:
    """Refuse an address where nobody answers: PySpark's client would try again for minutes."""
    address = urlsplit(master)
    with socket.create_connection((address.hostname, address.port or _CONNECT_PORT), timeout=10):
        pass


def frame_of(spark: Any, table: str, names: list[str] | None) -> tuple[Any, bool]:
    """Return the table, and whether its cells are text because it is a text file; `names` if it has no header."""
    suffix = PurePath(table).suffix.lower()
    if suffix in _SEPARATED:
        read = spark.read.csv(table, sep=_SEPARATED[suffix], header=names is None)
        return (read if names is None else read.toDF(*names)), True
    is_path = suffix == ".parquet" or "/" in table
    return (spark.read.parquet(table) if is_path else spark.table(table)), False


def _columns(frame: Any, table: str, options: DataOptions) -> Columns:
    choices = {"user": options.user, "task": options.item, "value": options.value, "timestamp": IGNORE}
    try:
        return choose_columns(frame.columns, choices)
    except InputError as error:
        raise error.inside(table) from None


def _with_numbers(frame: Any, columns: Columns, options: DataOptions) -> Any:
    """Values as numbers, and only rows of at least the least value."""
    if columns.value is None:
        return frame
    frame = frame.withColumn(columns.value, frame[columns.value].cast("double"))
    return frame if options.min_value is None else frame.where(frame[columns.value] >= options.min_value)


def _listed(rows: Any, options: DataOptions) -> Any:
    if not isinstance(options.items, Path):
        return rows
    listed = Vocabulary(read_item_list(options.items), name="item", declared=True)
    return rows.on_list(listed, drop=options.unlisted == "drop")


def _remarks(kind: Kind, options: DataOptions) -> tuple[str, ...]:
    clipped = ("Values outside the scale are brought into it: they are not looked at before the fit.",)
    guessed = () if options.kind else (f"Treating the rows as {kind} (--ratings or --clicks overrides this).",)
    return (*guessed, *(clipped if kind == "ratings" else ()))
