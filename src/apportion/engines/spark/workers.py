"""What runs on the workers of a cluster: from rows to buckets, from buckets to sums, from sums to fewer sums.

Each class is a value that is sent to the workers and called there with the Arrow batches of one partition. Workers draw
no random numbers, and get only public and released numbers from the driver. Between calls they keep buckets, but
nothing that was computed from them (`kept`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import IdColumn, ValueColumn
from apportion.data.columns import Columns
from apportion.data.groups import each_group_once
from apportion.data.item_lists import Priorities
from apportion.data.user_keys import sampling_keys
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary
from apportion.engines.processors import Processors
from apportion.engines.spark.answers import BLOCK, Answer, Roll, merged
from apportion.engines.spark.buckets import Bucket, bucket_of, digest_of
from apportion.engines.spark.kept import KEPT
from apportion.errors import InputError
from apportion.privacy.contributions import Channel, Contribution, PartialSums

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterable["pa.RecordBatch"]

BUCKETS = "bucket int, digest string, body binary"
"""The columns of a frame of buckets: number, checksum, and users as bytes."""


@dataclass(frozen=True, eq=False)
class RoutedRows:
    """Rows of a frame with the bucket of their user, whose id is left behind.

    Attributes:
        columns: names of the columns.
        buckets: number of buckets.
        texts: whether items are text; otherwise they are integers.
    """

    columns: Columns
    buckets: int
    texts: bool

    @property
    def schema(self) -> str:
        """The columns that come out."""
        return f"bucket int, low long, high long, item {'string' if self.texts else 'long'}, value float"

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

        users = gathered(IdColumn(self.columns.user, name="user"), batch)
        items = gathered(IdColumn(self.columns.task, name="item"), batch)
        keys = sampling_keys(users.vocabulary)
        routes = keys.view(np.int64)[users.codes]
        values = np.ones(batch.num_rows, np.float32)
        if self.columns.value is not None:
            values = gathered(ValueColumn(self.columns.value), batch)
        kind = pa.string() if self.texts else pa.int64()
        named = pa.array(items.vocabulary.ids.tolist(), kind).take(pa.array(items.codes))
        own = bucket_of(keys, self.buckets)[users.codes]
        arrays = [pa.array(own), pa.array(routes[:, 0]), pa.array(routes[:, 1]), named, pa.array(values)]
        return pa.RecordBatch.from_arrays(arrays, ["bucket", "low", "high", "item", "value"])


@dataclass(frozen=True, eq=False)
class PackedBuckets:
    """The rows of each bucket, in order of user and item, as one cell of bytes.

    A row without a user marks a bucket: buckets that nobody is in answer as well, and a divided one is seen.
    """

    schema: ClassVar[str] = BUCKETS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one row for each bucket of the partition."""
        for number, table in rows_by_bucket(batches):
            yield bucket_row(number, _packed(table).to_bytes())


@dataclass(frozen=True, eq=False)
class ListedItems:
    """The rows of items on a list, with the codes of that list.

    Attributes:
        listed: the list; public or released.
        drop: whether rows of other items are left out; otherwise they are refused.
    """

    listed: Vocabulary
    drop: bool
    schema: ClassVar[str] = BUCKETS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one row for each bucket."""
        for number, _, body in buckets_in(batches):
            yield bucket_row(number, self._coded(Bucket.from_bytes(body.as_py())).to_bytes())

    def _coded(self, bucket: Bucket) -> Bucket:
        assert bucket.items is not None
        users, codes = bucket.users, self.listed.match(bucket.items)
        if not self.drop and (codes < 0).any():
            unlisted = bucket.items.id_of(int(np.argmax(codes < 0)))
            raise InputError(
                f"Expected items of the {len(self.listed)} that are listed, got {unlisted!r}.", argument="items"
            )
        return Bucket(users.recoded(codes, len(self.listed)), bucket.routes)


@dataclass(frozen=True, eq=False)
class OwnItems:
    """The items that occur in each bucket, where the caller declared them public."""

    texts: bool

    @property
    def schema(self) -> str:
        """The column that comes out."""
        return f"item {'string' if self.texts else 'long'}"

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the items of one bucket at a time."""
        import pyarrow as pa

        kind = pa.string() if self.texts else pa.int64()
        for _, _, body in buckets_in(batches):
            items = Bucket.from_bytes(body.as_py()).items
            assert items is not None
            yield pa.RecordBatch.from_arrays([pa.array(items.ids.tolist(), kind)], ["item"])


@dataclass(frozen=True, eq=False)
class SumsOfBuckets:
    """One pass: what the users of a partition contribute, added up, in blocks.

    A bucket that comes without its rows is taken from those that this process keeps. If it is not there it has no
    answer: the driver sees that it is missing, and sends its rows.

    Attributes:
        contributions: what users add; public and released numbers alone.
        changes: what is done with the users of a bucket first.
        kernels: what users compute with.
        secret: of the pass.
        buckets: number of buckets.
        keyed: whether each bucket counts its own items, because there is no list yet.
        groups: into which keys are divided by a hash, where there is no list.
        token: of what was read, under which buckets are kept.
        kept: bytes of buckets that a process may keep.
    """

    contributions: tuple[Contribution, ...]
    changes: tuple[Callable[[Users], Users], ...]
    kernels: Processors
    secret: bytes
    buckets: int
    keyed: bool
    groups: int
    token: bytes
    kept: int
    schema: ClassVar[str] = "block int, answer binary"

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of the partition's answer."""
        answer, roll = None, Roll()
        for number, digest, body in buckets_in(batches):
            if number in roll and roll[number][1] == digest:
                continue
            if number in roll:
                raise InputError(
                    f"Bucket {number} came twice, with different rows; nothing was added up.", argument=None
                )
            bucket = self._bucket(number, digest, body)
            if bucket is not None:
                own = self._answer(number, digest, bucket)
                roll.update(own.roll)
                answer = own if answer is None else answer + own
        if answer is not None:
            channel = Channel(self.secret)
            for block, part in answer.blocks(BLOCK, self.groups).items():
                yield _answer_row(block, part.to_wire(channel))

    def _bucket(self, number: int, digest: str, body: Any) -> Bucket | None:
        """The bucket as it was kept, or as it was sent, once it is checked; None if it is neither."""
        key = self.token, number, digest
        found = KEPT.get(key)
        if found is not None or body is None:
            return found
        content = body.as_py()
        if digest_of(content) != digest:
            raise InputError(f"Bucket {number} does not match its checksum; nothing was added up.", argument=None)
        found = Bucket.from_bytes(content)
        found.check(number, self.buckets)
        KEPT.put(key, found, len(content), self.kept)
        return found

    def _answer(self, number: int, digest: str, bucket: Bucket) -> Answer:
        roll: Roll = {number: (bucket.users.n_users, digest)}
        if not self.keyed:
            users = bucket.users.with_columns()  # nothing that is computed stays with what is kept
            sums = PartialSums.over(self._changed(users), self.contributions, self.kernels)
            return Answer(roll, sums.layout, sums)
        texts, users = _by_text(bucket)
        counted = Priorities.of(texts)(each_group_once(users))
        sums = PartialSums.over(counted, self.contributions, self.kernels)
        return Answer(roll, (), sums, tuple(texts))

    def _changed(self, users: Users) -> Users:
        for change in self.changes:
            users = change(users)
        return users


@dataclass(frozen=True, eq=False)
class MergedBlocks:
    """Answers for the blocks of a partition, added up: one for each block.

    Attributes:
        secret: of the pass.
    """

    secret: bytes
    schema: ClassVar[str] = "block int, answer binary"

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one row for each block."""
        channel = Channel(self.secret)
        by_block: dict[int, list[Answer]] = {}
        for batch in batches:
            for block, wire in zip(batch.column("block"), batch.column("answer"), strict=True):
                by_block.setdefault(block.as_py(), []).append(Answer.from_wire(wire.as_py(), channel))
        for block, answers in by_block.items():
            yield _answer_row(block, merged(answers).to_wire(channel))


def gathered(column: Any, batch: pa.RecordBatch) -> Any:
    """Return a column of a batch, read by a gatherer of `arrow_columns`."""
    column.append(batch.column(column.column), 1)
    return column.finish()


def buckets_in(batches: Batches) -> Iterator[tuple[int, str, Any]]:
    """Yield number, checksum and users of each bucket; None instead of users where they are not sent."""
    for batch in batches:
        bodies = batch.column("body") if "body" in batch.schema.names else [None] * batch.num_rows
        for number, digest, body in zip(batch.column("bucket"), batch.column("digest"), bodies, strict=True):
            yield number.as_py(), digest.as_py(), body


def rows_by_bucket(batches: Batches) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket of a partition. Each must have its mark once: one row without a user.

    A bucket that a server divided has one mark, so a part without it is refused, even if the parts are equal.
    """
    import pyarrow as pa

    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held)
    number = table.column("bucket").to_numpy()
    with_user = table.column("low").is_valid().to_numpy()
    for bucket in np.unique(number):
        own = number == bucket
        if np.count_nonzero(own & ~with_user) != 1:
            raise InputError(
                f"Bucket {bucket} was divided or repeated on its way to a worker; nothing was added up.", argument=None
            )
        yield int(bucket), table.filter(pa.array(own & with_user))


def bucket_row(number: int, body: bytes) -> pa.RecordBatch:
    """Return a bucket as a row."""
    import pyarrow as pa

    arrays = [pa.array([number], pa.int32()), pa.array([digest_of(body)]), pa.array([body], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, ["bucket", "digest", "body"])


def _answer_row(block: int, wire: bytes) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [pa.array([block], pa.int32()), pa.array([wire], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, ["block", "answer"])


def _packed(table: pa.Table) -> Bucket:
    """The rows of one bucket as users in order; refuses a pair of user and item that occurs twice."""
    if not table.num_rows:
        return _nobody(table)
    items = gathered(IdColumn("item", name="item"), table.combine_chunks().to_batches()[0])
    low, high = (table.column(name).to_numpy().view(np.uint64) for name in ("low", "high"))
    routes = np.stack([low, high], axis=1)
    order = np.lexsort((items.codes, low, high))
    routes, tasks = routes[order], items.codes[order]
    starts = np.flatnonzero(np.concatenate([[True], (routes[1:] != routes[:-1]).any(axis=1)]))
    indptr = np.append(starts, len(routes))
    _refuse_repeated(indptr, tasks, items.vocabulary)
    values = table.column("value").to_numpy()[order]
    users = Users(indptr, {"tasks": tasks, "values": values}, keys=routes[starts])
    return Bucket(users, routes[starts], items.vocabulary)


def _nobody(table: pa.Table) -> Bucket:
    import pyarrow as pa

    nobody = np.zeros((0, 2), np.uint64)
    columns: dict[str, NDArray[Any]] = {"tasks": np.zeros(0, np.int32), "values": np.zeros(0, np.float32)}
    texts = pa.types.is_string(table.schema.field("item").type)
    items = Vocabulary(np.array([], object if texts else np.int64), name="item")
    return Bucket(Users([0], columns, keys=nobody), nobody, items)


def _refuse_repeated(indptr: NDArray[np.int64], tasks: NDArray[np.int32], items: Vocabulary) -> None:
    same = tasks[1:] == tasks[:-1]
    same[indptr[1:-1] - 1] = False
    if same.any():
        item = items.id_of(int(tasks[int(np.argmax(same))]))
        raise InputError(
            f"A user has two rows for item {item!r}; expected each pair of user and item once.", argument=None
        )


def _by_text(bucket: Bucket) -> tuple[list[str], Users]:
    """The texts of the bucket's own items, in order, and the users with codes in that order."""
    assert bucket.items is not None
    texts = [str(item) for item in bucket.items]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), np.int32)
    rank[order] = np.arange(len(texts), dtype=np.int32)
    return [texts[k] for k in order], bucket.users.recoded(rank, len(texts))
