"""Rows that stay where they are: estimators accept a frame of a Spark session, or a folder of users on disk.

Columns are given by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from apportion.data.on_disk import FolderNumbers
from apportion.data.users import UserParts
from apportion.engines import Engine, SparkEngine
from apportion.engines.spark.interactions import TEXT_TYPES
from apportion.engines.spark.public_columns import RowsWithPublicColumns
from apportion.errors import InputError


def is_frame(given: object) -> bool:
    """Whether this is a Spark DataFrame."""
    return hasattr(given, "mapInArrow")


def is_elsewhere(given: object) -> bool:
    """Whether these are rows that are not in memory: a Spark DataFrame, or a folder on disk."""
    return is_frame(given) or isinstance(given, FolderNumbers)


@contextmanager
def rows_of_frame(engine: Engine | None, frame: Any, users: Any, label: Any = None) -> Iterator[tuple[UserParts, int]]:
    """Read a frame on the engine's cluster, or a folder. Return its users and the number of columns of numbers.

    Args:
        engine: the engine of the estimator.
        frame: a frame with a column of users and possibly one of labels. All other columns are numbers.
        users: name of the user column.
        label: name of the column of labels, if there are any.
    """
    names = numbers_beside(frame, users, label)
    columns: dict[str, Any] = {"values": names} if label is None else {"features": names, "labels": label}
    if isinstance(frame, FolderNumbers):
        yield frame.users(columns), len(names)
        return
    on = cluster_of(engine, users, *([] if label is None else [label]))
    with on.read_numbers(frame, users, columns) as rows:
        yield rows.as_users, len(names)


@contextmanager
def rows_with_public_features(
    engine: Engine | None, frame: Any, users: Any, label: Any
) -> Iterator[RowsWithPublicColumns]:
    """Read a frame whose features are public: these are collected on the driver, and labels stay on the cluster."""
    on = cluster_of(engine, users, label)
    names = numbers_beside(frame, users, label)
    with on.read_numbers(frame, users, {"features": names, "labels": label}) as rows:
        yield RowsWithPublicColumns.of(on, rows.as_users, "features")


def cluster_of(engine: Engine | None, *names: Any) -> SparkEngine:
    """Return the engine of the frame's cluster. Refuse another engine, and columns that are not given by name."""
    if not isinstance(engine, SparkEngine):
        raise InputError("A Spark frame needs an engine on its cluster: SparkEngine(spark).", argument="engine")
    if not all(isinstance(name, str) for name in names):
        raise InputError("With a Spark frame, give users (and labels) as names of columns.", argument="users")
    return engine


def numbers_beside(frame: Any, users: str, *others: str | None) -> list[str]:
    """Return the names of all columns except these. Refuse a frame without any other column."""
    names = [name for name in frame.columns if name not in (users, *others)]
    if not names:
        raise InputError(f"Expected columns of numbers beside {users!r}; there are none.", argument="X")
    return names


def holds_text(frame: Any, column: str) -> bool:
    """Return whether a column of the frame holds text."""
    if column not in frame.columns:
        raise InputError(f"There is no column {column!r}; the columns are {frame.columns}.", argument=None)
    return frame.schema[column].dataType.typeName() in TEXT_TYPES
