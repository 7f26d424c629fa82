"""Rows of a statistic or a regression: read into memory, or left on a cluster (`--engine spark`) or on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from apportion.cli.cautions import weak_epsilon
from apportion.cli.progress import Reporter
from apportion.cli.row_options import refuse_rules
from apportion.cli.statistics_options import StatisticsOptions, read_columns, split_names
from apportion.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from apportion.data.on_disk import FolderNumbers
    from apportion.engines import DiskEngine, Engine, SparkEngine


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows as estimators take them.

    Attributes:
        values: a column of numbers, or a matrix if there are several; a frame on a cluster, or columns of a folder.
        users: the user of each row; where rows are not in memory, the name of a column.
        by: what divides rows into groups: columns; on a cluster, their names.
        engine: of the cluster or the disk; None in memory.
    """

    values: Any
    users: Any
    by: list[Any]
    engine: Engine | None = None


@contextmanager
def given_rows(
    file: Path | str,
    options: StatisticsOptions,
    values: Sequence[str],
    reporter: Reporter,
    *,
    by: Sequence[str] | None = None,
) -> Iterator[GivenRows]:
    """Open the columns that a statistic needs.

    Args:
        file: the data; with `--engine spark` a table or a file of the cluster.
        options: whose rows they are, and where they are read.
        values: columns of numbers.
        reporter: shows progress and says remarks.
        by: columns that divide rows into groups, perhaps none; None for a statistic without groups, which alone reads
            a folder of users shard by shard.
    """
    texts = by or ()
    if options.master is not None:
        with frame_on_cluster(str(file), options, reporter) as (frame, _, engine):
            chosen = [cell_of(frame, name, "double") for name in values]
            groups = [cell_of(frame, name, "string") for name in texts]
            selected = frame.select(cell_of(frame, options.user), *chosen, *groups)
            yield GivenRows(selected, options.user, list(texts), engine)
        return
    assert not isinstance(file, str)
    if values and by is None and streams(file, options):
        held_on_disk, engine_of_disk = opened_folder(file, options, values, reporter)
        yield GivenRows(held_on_disk, options.user, [], engine_of_disk)
        return
    columns = {**dict.fromkeys(values, "number"), **dict.fromkeys(texts, "text")}
    table = read_columns(file, options, columns, reporter)  # type: ignore[arg-type]
    held = None if not values else table.numbers[values[0]] if len(values) == 1 else table.matrix(values)
    yield GivenRows(held, table.users, [table.texts[name] for name in texts])


def streams(file: Path, options: StatisticsOptions) -> bool:
    """Whether rows are read shard by shard: a folder of users, unless weights follow from everybody's sizes."""
    from apportion.data.on_disk.manifest import is_user_folder

    return is_user_folder(file) and options.sizes == "private"


def opened_folder(
    file: Path, options: StatisticsOptions, columns: Sequence[str], reporter: Reporter
) -> tuple[FolderNumbers, DiskEngine]:
    """Open columns of a folder of users, and an engine that reads it within the memory that was given."""
    from apportion.data.on_disk import FolderNumbers
    from apportion.engines import DiskEngine

    refuse_rules(options, file.name, "choose rows before `apportion shard`", unless=None)
    held = FolderNumbers.open(file, columns)
    if options.user != held.manifest.user:
        made = held.manifest.user
        problem = f"{file.name}: the folder was made with user column {made!r}, got {options.user!r}."
        raise InputError(problem, argument="user")
    for remark in weak_epsilon(options.epsilon):
        reporter.say(remark)
    return held, DiskEngine(options.memory, "float64")


@contextmanager
def frame_on_cluster(
    table: str, options: StatisticsOptions, reporter: Reporter
) -> Iterator[tuple[Any, bool, SparkEngine]]:
    """Open a table on a cluster: a frame, whether its cells are untyped text, and an engine there."""
    from apportion.cli.spark_data import frame_of, spark_session
    from apportion.engines import SparkEngine

    refuse_rules(options, table, "choose rows in the table", unless=None)
    for remark in weak_epsilon(options.epsilon):
        reporter.say(remark)
    assert options.master is not None
    with spark_session(options.master) as spark:
        names = None if options.columns is None else split_names(options.columns)
        frame, untyped = frame_of(spark, table, names)
        yield frame, untyped, SparkEngine(spark, "float64", partitions=options.partitions)


def cell_of(frame: Any, name: str, kind: str | None = None) -> Any:
    """Return a column of a frame, perhaps as another type, under its own name."""
    if name not in frame.columns:
        raise InputError(f"There is no column {name!r}; the columns are {frame.columns}.", argument=None)
    column = frame[f"`{name}`"]
    return column if kind is None else column.cast(kind).alias(name)
