"""Users and items in a frame on a cluster: bucketed by user once, put on a list of items once there is one.

The driver holds the list of items, public or released, and how many users each bucket has; it never holds rows or ids
of users. Where the list of items is private, every bucket counts its own items, so that no unreleased id is sent out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.columns import IGNORE, ColumnChoice, choose_columns
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary, as_text, ids_of_texts
from apportion.engines.spark.engine import SparkEngine, UsersOnSpark, collected, mapped
from apportion.engines.spark.workers import ListedItems, OwnItems, PackedBuckets, RoutedRows
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution

TEXT_TYPES = ("string", "varchar", "char")


class InteractionsOnSpark:
    """Observations of users on a list of items, in buckets on a cluster.

    Attributes:
        task_ids: the list; public or released.
        as_users: the users with their rows.
    """

    def __init__(self, frame: Any, task_ids: Vocabulary) -> None:
        self.task_ids = task_ids
        self.as_users = UsersOnSpark(frame, len(task_ids))

    @property
    def n_tasks(self) -> int:
        """Length of the list of items."""
        return len(self.task_ids)

    def recoded(self, codes: NDArray[np.int32], task_ids: Vocabulary) -> InteractionsOnSpark:
        """Return the rows on another list of items: workers change the codes in every pass."""
        made = InteractionsOnSpark(self.as_users.frame, task_ids)
        made.as_users = replace(self.as_users.mapped(_Recoded(codes, len(task_ids))), n_tasks=len(task_ids))
        return made

    def first_task(self, among: NDArray[np.bool_]) -> int | None:
        """Return the first of these items that is on the list: it may occur."""
        return int(np.argmax(among)) if among.any() else None

    def __repr__(self) -> str:
        return f"InteractionsOnSpark(n_tasks={self.n_tasks}, rows hidden)"


@dataclass(frozen=True, eq=False)
class _Recoded:
    """Puts the users of a bucket on another list of items."""

    codes: NDArray[np.int32]
    n_tasks: int

    def __call__(self, users: Users) -> Users:
        return users.recoded(self.codes, self.n_tasks)


class RowsOnSpark:
    """Observations in buckets on a cluster, before there is a list of items. Use it in a `with` statement.

    Args:
        engine: where the frame is.
        frame: a DataFrame with one row per pair of user and item, in any order and partitioning.
        choices: which column is which; guessed from the usual names otherwise. Without a value column all values are 1.
        untyped: whether ids come from a text file, so that items that are all written as integers are integers.
    """

    def __init__(
        self,
        engine: SparkEngine,
        frame: Any,
        choices: Mapping[str, ColumnChoice] | None = None,
        *,
        untyped: bool = False,
    ) -> None:
        columns = choose_columns(frame.columns, {**(choices or {}), "timestamp": IGNORE})
        texts = frame.schema[columns.task].dataType.typeName() in TEXT_TYPES
        self._engine, self._untyped, self._texts = engine, untyped, texts
        chosen = frame.select(*(f"`{name}`" for name in columns.names))
        route = RoutedRows(columns, engine.buckets, texts)
        rows = mapped(chosen, route).union(self._markers())
        self._kept: list[Any] = []
        self._buckets = self._keep(mapped(rows.repartition(engine.partitions, "bucket"), PackedBuckets()))
        self.as_users = UsersOnSpark(self._buckets, 0)

    def __enter__(self) -> RowsOnSpark:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the cluster forget the buckets."""
        for frame in self._kept:
            frame.unpersist()

    def count_keys(self, form: Contribution) -> tuple[BoundedSum, list[str]]:
        """Return the hidden counts of all items that occur and their texts, in text order."""
        return self._engine.count_keys(self.as_users, form)

    def with_own_list(self) -> InteractionsOnSpark:
        """The data with the list of items that occur, which the caller declared public."""
        table = collected(mapped(self._buckets, OwnItems(self._texts)).distinct())
        found = table.column("item").to_pylist()
        ids = ids_of_texts(sorted(found)) if self._untyped and self._texts else sorted(found)
        listed = np.sort(ids) if isinstance(ids, np.ndarray) else as_text(ids, "item") if self._texts else ids
        if not len(found):
            raise InputError("There are no rows; expected at least two.", argument=None)
        return self.on_list(Vocabulary(listed, name="item"))

    def on_list(self, listed: Vocabulary, *, drop: bool = False) -> InteractionsOnSpark:
        """The rows of listed items. Rows of others are left out, or refused by the first pass."""
        return InteractionsOnSpark(self._keep(mapped(self._buckets, ListedItems(listed, drop))), listed)

    def _keep(self, frame: Any) -> Any:
        self._kept.append(frame.persist())
        return self._kept[-1]

    def _markers(self) -> Any:
        """A row without a user for each bucket, so that every bucket answers, and a lost one is missed."""
        import pyarrow as pa

        n = self._engine.buckets
        item = pa.string() if self._texts else pa.int64()
        kinds = {"low": pa.int64(), "high": pa.int64(), "item": item, "value": pa.float32()}
        empty = {name: pa.nulls(n, kind) for name, kind in kinds.items()}
        return self._engine.spark.createDataFrame(pa.table({"bucket": pa.array(range(n), pa.int32()), **empty}))

    def __repr__(self) -> str:
        return "RowsOnSpark(rows hidden)"
