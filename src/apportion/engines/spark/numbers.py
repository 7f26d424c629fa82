"""Rows of numbers in a frame on a cluster, bucketed by user: what means and regressions of users need.

A frame has no order, so the rows of a user are put in the order of their numbers: a sum over them is then the same in
every bit, however the frame was partitioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import IdColumn, ValueColumn
from apportion.data.user_keys import sampling_keys
from apportion.data.users import Users
from apportion.engines.spark.buckets import Bucket, bucket_of
from apportion.engines.spark.engine import SparkEngine, UsersOnSpark, mapped
from apportion.engines.spark.workers import BUCKETS, Batches, bucket_row, gathered, rows_by_bucket
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


class NumbersOnSpark:
    """Rows of numbers on a cluster. Use it in a `with` statement, so that the cluster forgets them after it.

    Args:
        engine: where the frame is.
        frame: a DataFrame with one row per observation.
        user: name of the column that says whose row it is.
        columns: for each column of the users the columns of the frame that it is made of; one name makes a vector.
    """

    def __init__(self, engine: SparkEngine, frame: Any, user: str, columns: Mapping[str, str | Sequence[str]]) -> None:
        groups = {name: (of,) if isinstance(of, str) else tuple(of) for name, of in columns.items()}
        flat = frozenset(name for name, of in columns.items() if isinstance(of, str))
        names = tuple(name for of in groups.values() for name in of)
        for name in (user, *names):
            if name not in frame.columns:
                raise InputError(f"There is no column {name!r}; the columns are {frame.columns}.", argument=None)
        chosen = frame.select(*(f"`{name}`" for name in (user, *names)))
        route = RoutedNumbers(user, names, engine.buckets)
        rows = mapped(chosen, route).union(self._markers(engine, len(names)))
        pack = PackedNumbers(tuple((name, len(of)) for name, of in groups.items()), flat)
        self._kept = mapped(rows.repartition(engine.partitions, "bucket"), pack).persist()
        empty = {name: np.zeros(0 if name in flat else (0, len(of))) for name, of in groups.items()}
        self.as_users = UsersOnSpark(self._kept, 0, empty=Users([0], empty, keys=np.zeros((0, 2), np.uint64)))

    def __enter__(self) -> NumbersOnSpark:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the cluster forget the buckets."""
        self._kept.unpersist()

    @staticmethod
    def _markers(engine: SparkEngine, numbers: int) -> Any:
        import pyarrow as pa

        n = engine.buckets
        kinds = {"low": pa.int64(), "high": pa.int64(), **{f"n{k}": pa.float64() for k in range(numbers)}}
        empty = {name: pa.nulls(n, kind) for name, kind in kinds.items()}
        return engine.spark.createDataFrame(pa.table({"bucket": pa.array(range(n), pa.int32()), **empty}))

    def __repr__(self) -> str:
        return "NumbersOnSpark(rows hidden)"


@dataclass(frozen=True, eq=False)
class RoutedNumbers:
    """Rows of numbers with the bucket of their user, whose id is left behind.

    Attributes:
        user: name of the user column.
        numbers: names of the other columns.
        buckets: number of buckets.
    """

    user: str
    numbers: tuple[str, ...]
    buckets: int

    @property
    def schema(self) -> str:
        """The columns that come out."""
        return "bucket int, low long, high long" + "".join(f", n{k} double" for k in range(len(self.numbers)))

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one batch for each batch."""
        for batch in batches:
            if batch.num_rows:
                try:
                    yield self._routed(batch)
                except InputError as error:
                    raise error.inside("in one partition of the frame") from None

    def _routed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        users = gathered(IdColumn(self.user, name="user"), batch)
        keys = sampling_keys(users.vocabulary)
        routes = keys.view(np.int64)[users.codes]
        own = bucket_of(keys, self.buckets)[users.codes]
        numbers = [gathered(ValueColumn(name, np.float64), batch) for name in self.numbers]
        arrays = [pa.array(column) for column in (own, routes[:, 0], routes[:, 1], *numbers)]
        return pa.RecordBatch.from_arrays(
            arrays, ["bucket", "low", "high", *(f"n{k}" for k in range(len(self.numbers)))]
        )


@dataclass(frozen=True, eq=False)
class PackedNumbers:
    """The rows of each bucket, in order of user and numbers, as one cell of bytes.

    Attributes:
        groups: the users' columns, and of how many numbers each is.
        flat: those that are vectors.
    """

    groups: tuple[tuple[str, int], ...]
    flat: frozenset[str]
    schema: ClassVar[str] = BUCKETS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one row for each bucket of the partition."""
        for number, table in rows_by_bucket(batches):
            yield bucket_row(number, self._packed(table).to_bytes())

    def _packed(self, table: pa.Table) -> Bucket:
        low, high = (table.column(name).to_numpy().view(np.uint64) for name in ("low", "high"))
        numbers = [table.column(f"n{k}").to_numpy() for k in range(sum(width for _, width in self.groups))]
        order = np.lexsort((*reversed(numbers), low, high))
        routes = np.stack([low, high], axis=1)[order]
        starts = np.flatnonzero(np.concatenate([[True], (routes[1:] != routes[:-1]).any(axis=1)])[: len(routes)])
        columns = self._columns(np.stack(numbers, axis=1)[order])
        return Bucket(Users(np.append(starts, len(routes)), columns, keys=routes[starts]), routes[starts])

    def _columns(self, matrix: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        columns, first = {}, 0
        for name, width in self.groups:
            held = np.ascontiguousarray(matrix[:, first : first + width])
            columns[name] = held[:, 0] if name in self.flat else held
            first += width
        return columns
