"""Rows of numbers in a frame on a cluster, bucketed by user: what means, regressions and statistics by group need.

A frame has no order, so the rows of a user are put in the order of their groups and numbers: a sum over them is then
the same in every bit, however the frame was partitioned. A group is known by its text, as in `data.groups`. Until there
is a list of groups, every bucket counts its own, so that no unreleased group is sent out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import IdColumn, ValueColumn
from apportion.data.groups import grouped
from apportion.data.user_keys import sampling_keys
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary, as_text
from apportion.engines.spark.buckets import Bucket, bucket_of
from apportion.engines.spark.engine import SparkEngine, UsersOnSpark, collected, mapped
from apportion.engines.spark.workers import (
    BUCKETS,
    Batches,
    ListedItems,
    OwnItems,
    bucket_row,
    gathered,
    rows_by_bucket,
)
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution

if TYPE_CHECKING:
    import pyarrow as pa


class NumbersOnSpark:
    """Rows of numbers on a cluster. Use it in a `with` statement, so that the cluster forgets them after it.

    Args:
        engine: where the frame is.
        frame: a DataFrame with one row per observation.
        user: name of the column that says whose row it is.
        columns: for each column of the users the columns of the frame that it is made of; one name makes a vector.
        by: names of the columns that divide rows into groups, or tasks; none makes one group of all rows, and None
            makes no groups.
    """

    def __init__(
        self,
        engine: SparkEngine,
        frame: Any,
        user: str,
        columns: Mapping[str, str | Sequence[str]],
        by: Sequence[str] | None = None,
    ) -> None:
        groups = {name: (of,) if isinstance(of, str) else tuple(of) for name, of in columns.items()}
        self._flat = frozenset(name for name, of in columns.items() if isinstance(of, str))
        self._widths = tuple((name, len(of)) for name, of in groups.items())
        names = tuple(name for of in groups.values() for name in of)
        chosen = _selected(frame, (user, *names, *(by or ())))
        route = RoutedNumbers(user, names, engine.buckets, None if by is None else tuple(by))
        rows = mapped(chosen, route).union(_markers(engine, route))
        self._engine, self._grouped = engine, by is not None
        self._kept: list[Any] = []
        pack = PackedNumbers(self._widths, self._flat, by is not None)
        self._buckets = self._keep(mapped(rows.repartition(engine.partitions, "bucket"), pack))
        self.as_users = UsersOnSpark(self._buckets, 0, empty=self._nobody(0))

    def __enter__(self) -> NumbersOnSpark:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the cluster forget the buckets."""
        for frame in self._kept:
            frame.unpersist()

    def count_keys(self, form: Contribution) -> tuple[BoundedSum, list[str]]:
        """Return the hidden counts of all groups that occur and their texts, in text order."""
        return self._engine.count_keys(self.as_users, form)

    def own_texts(self) -> list[str]:
        """The texts of the groups that occur, in text order; the caller declared that they are public."""
        table = collected(mapped(self._buckets, OwnItems(texts=True)).distinct())
        return sorted(table.column("item").to_pylist())

    def on_list(self, texts: Sequence[str], *, drop: bool = True) -> UsersOnSpark:
        """The users with their rows of listed groups. Other rows are left out, or refused by the first pass."""
        listed = Vocabulary(as_text(list(texts), "item"), name="item")
        frame = self._keep(mapped(self._buckets, ListedItems(listed, drop)))
        return UsersOnSpark(frame, len(listed), empty=self._nobody(len(listed)))

    def _nobody(self, n_tasks: int) -> Users:
        columns: dict[str, NDArray[Any]] = {
            name: np.zeros(0 if name in self._flat else (0, width)) for name, width in self._widths
        }
        tasks = {"tasks": np.zeros(0, np.int32)} if self._grouped else {}
        return Users([0], {**tasks, **columns}, n_tasks=n_tasks, keys=np.zeros((0, 2), np.uint64))

    def _keep(self, frame: Any) -> Any:
        self._kept.append(frame.persist())
        return self._kept[-1]

    def __repr__(self) -> str:
        return "NumbersOnSpark(rows hidden)"


def _selected(frame: Any, names: Sequence[str]) -> Any:
    for name in names:
        if name not in frame.columns:
            raise InputError(f"There is no column {name!r}; the columns are {frame.columns}.", argument=None)
    return frame.select(*(f"`{name}`" for name in dict.fromkeys(names)))


def _markers(engine: SparkEngine, route: RoutedNumbers) -> Any:
    """A row without a user for each bucket, so that every bucket answers, and a lost one is missed."""
    import pyarrow as pa

    n = engine.buckets
    kinds = {"low": pa.int64(), "high": pa.int64(), **dict.fromkeys(route.numbered, pa.float64())}
    kinds |= {} if route.by is None else {"item": pa.string()}
    empty = {name: pa.nulls(n, kind) for name, kind in kinds.items()}
    return engine.spark.createDataFrame(pa.table({"bucket": pa.array(range(n), pa.int32()), **empty}))


@dataclass(frozen=True, eq=False)
class RoutedNumbers:
    """Rows of numbers with the bucket of their user, whose id is left behind.

    Attributes:
        user: name of the user column.
        numbers: names of the other columns.
        buckets: number of buckets.
        by: names of the columns that make groups; None where there are none.
    """

    user: str
    numbers: tuple[str, ...]
    buckets: int
    by: tuple[str, ...] | None

    @property
    def numbered(self) -> list[str]:
        """What the columns of numbers are called."""
        return [f"n{k}" for k in range(len(self.numbers))]

    @property
    def schema(self) -> str:
        """The columns that come out."""
        numbers = "".join(f", {name} double" for name in self.numbered)
        return f"bucket int, low long, high long{numbers}{'' if self.by is None else ', item string'}"

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
        arrays = {
            "bucket": own,
            "low": routes[:, 0],
            "high": routes[:, 1],
            **dict(zip(self.numbered, numbers, strict=True)),
        }
        columns = {name: pa.array(column) for name, column in arrays.items()}
        return pa.RecordBatch.from_pydict({**columns, **self._items(batch)})

    def _items(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The text of each row's group."""
        import pyarrow as pa

        if self.by is None:
            return {}
        codes, texts = grouped([gathered(IdColumn(name, name="group"), batch) for name in self.by], batch.num_rows)
        return {"item": pa.array(texts, pa.string()).take(pa.array(codes))}


@dataclass(frozen=True, eq=False)
class PackedNumbers:
    """The rows of each bucket, in order of user, group and numbers, as one cell of bytes.

    Attributes:
        groups: the users' columns, and of how many numbers each is.
        flat: those that are vectors.
        by_task: whether rows have groups, or tasks.
    """

    groups: tuple[tuple[str, int], ...]
    flat: frozenset[str]
    by_task: bool
    schema: ClassVar[str] = BUCKETS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one row for each bucket of the partition."""
        for number, table in rows_by_bucket(batches):
            yield bucket_row(number, self._packed(table).to_bytes())

    def _packed(self, table: pa.Table) -> Bucket:
        low, high = (table.column(name).to_numpy().view(np.uint64) for name in ("low", "high"))
        numbers = [table.column(f"n{k}").to_numpy() for k in range(sum(width for _, width in self.groups))]
        tasks, items = _tasks_of(table) if self.by_task else (np.zeros(len(low), np.int32), None)
        order = np.lexsort((*reversed(numbers), tasks, low, high))
        routes = np.stack([low, high], axis=1)[order]
        starts = np.flatnonzero(np.concatenate([[True], (routes[1:] != routes[:-1]).any(axis=1)])[: len(routes)])
        columns = self._columns(np.stack([np.zeros(len(low)), *numbers], axis=1)[order, 1:])
        own = {"tasks": tasks[order], **columns} if self.by_task else columns
        return Bucket(Users(np.append(starts, len(routes)), own, keys=routes[starts]), routes[starts], items)

    def _columns(self, matrix: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        columns, first = {}, 0
        for name, width in self.groups:
            held = np.ascontiguousarray(matrix[:, first : first + width])
            columns[name] = held[:, 0] if name in self.flat else held
            first += width
        return columns


def _tasks_of(table: pa.Table) -> tuple[NDArray[np.int32], Vocabulary]:
    """The codes of the rows' groups among those of this bucket, in text order."""
    if not table.num_rows:
        return np.zeros(0, np.int32), Vocabulary(np.array([], object), name="item")
    found = gathered(IdColumn("item", name="item"), table.combine_chunks().to_batches()[0])
    return found.codes, found.vocabulary
