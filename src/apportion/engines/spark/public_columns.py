"""Public columns of rows on a cluster: brought to the driver, and columns made from them sent back to their rows.

Where features are public and labels are not, weights of labels are computed from all features together, on the driver.
They go back to the rows that they belong to; labels stay on the workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.engines.spark.buckets import Bucket, digest_of
from apportion.engines.spark.engine import SparkEngine, UsersOnSpark, collected, mapped
from apportion.engines.spark.workers import BUCKETS, Batches, bucket_row, buckets_in
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Offsets = NDArray[np.int64]

_SENT = "sent by the driver"  # in place of a checksum


@dataclass(frozen=True, eq=False, repr=False)
class RowsWithPublicColumns:
    """Users on a cluster, one of whose columns is public and on the driver as well, in the order of the buckets.

    Attributes:
        engine: where they are.
        users: the users with all columns.
        indptr: user l has the rows from indptr[l] to indptr[l + 1]; public.
        features: the public column.
        starts: the first row of each bucket, and the number of all rows.
        sent: further public columns, which passes have beside those of the users.
    """

    engine: SparkEngine
    users: UsersOnSpark
    indptr: Offsets
    features: Floats
    starts: Offsets
    sent: dict[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, engine: SparkEngine, users: UsersOnSpark, column: str) -> RowsWithPublicColumns:
        """Bring a column to the driver; the caller declared that it is public, as are the users' numbers of rows."""
        found: dict[int, tuple[bytes, bytes]] = {}
        table = collected(mapped(users.frame, PublicColumn(column)))
        for number, *held in zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True):
            if found.setdefault(number, (held[0], held[1])) != (held[0], held[1]):
                raise InputError(f"Two tasks answered for bucket {number} and do not agree.", argument=None)
        if sorted(found) != list(range(engine.buckets)):
            raise InputError("A bucket of the frame is missing; nothing was released.", argument=None)
        sizes = [np.frombuffer(found[number][0], np.int64) for number in range(engine.buckets)]
        width = users.nobody().column(column).shape[1]
        features = np.frombuffer(b"".join(found[number][1] for number in range(engine.buckets)), np.float64)
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        starts = np.concatenate([[0], np.cumsum([each.sum() for each in sizes])])
        return cls(engine, users, indptr, features.reshape(-1, width), starts)

    @property
    def sizes(self) -> Offsets:
        """Numbers of rows, one for each user."""
        return np.diff(self.indptr)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Who has rows: everybody who is there."""
        return self.sizes > 0

    def with_columns(self, **columns: Floats) -> RowsWithPublicColumns:
        """Return the users with further public columns, one row for each of theirs."""
        return replace(self, sent={**self.sent, **columns})

    def placed(self) -> UsersOnSpark:
        """Send the further columns to the workers."""
        import pyarrow as pa

        widths = {name: column.shape[1] for name, column in self.sent.items()}
        together = np.column_stack(list(self.sent.values()))
        rows = [
            bucket_row(number, np.ascontiguousarray(together[self.starts[number] : self.starts[number + 1]]).tobytes())
            for number in range(self.engine.buckets)
        ]
        sent = pa.Table.from_batches(rows).drop_columns("digest").append_column("digest", pa.array([_SENT] * len(rows)))
        frame = self.users.frame.union(self.engine.spark.createDataFrame(sent.select(["bucket", "digest", "body"])))
        joined = mapped(frame.repartition(self.engine.partitions, "bucket"), WithColumns(tuple(widths.items())))
        none = {name: np.zeros((0, width)) for name, width in widths.items()}
        return UsersOnSpark(joined, self.users.n_tasks, empty=self.users.nobody().with_columns(**none))

    def __repr__(self) -> str:
        return "RowsWithPublicColumns(labels hidden)"


@dataclass(frozen=True, eq=False)
class PublicColumn:
    """One public column of each bucket, and how many rows each user has.

    Attributes:
        column: its name.
    """

    column: str
    schema: ClassVar[str] = "bucket int, sizes binary, numbers binary"

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one row for each bucket."""
        import pyarrow as pa

        for number, _, body in buckets_in(batches):
            users = Bucket.from_bytes(body.as_py()).users
            held = users.sizes.astype(np.int64), np.ascontiguousarray(users.column(self.column), np.float64)
            cells = [pa.array([number], pa.int32()), *(pa.array([each.tobytes()], pa.binary()) for each in held)]
            yield pa.RecordBatch.from_arrays(cells, ["bucket", "sizes", "numbers"])


@dataclass(frozen=True, eq=False)
class WithColumns:
    """Buckets with the columns that the driver sent. Each comes in two rows: its users, and the columns.

    Attributes:
        widths: names of the columns, and how many numbers a row of each has.
    """

    widths: tuple[tuple[str, int], ...]
    schema: ClassVar[str] = BUCKETS

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one row for each bucket."""
        held: dict[int, dict[bool, tuple[str, bytes]]] = {}
        for number, digest, body in buckets_in(batches):
            own = held.setdefault(number, {})
            found = digest, body.as_py()
            if own.setdefault(digest == _SENT, found) != found:
                raise InputError(f"Bucket {number} came twice, with different rows.", argument=None)
        for number, parts in held.items():
            if len(parts) != 2 or digest_of(parts[False][1]) != parts[False][0]:
                raise InputError(f"Bucket {number} was divided on its way; nothing was added up.", argument=None)
            bucket = Bucket.from_bytes(parts[False][1])
            users = bucket.users.with_columns(**self._columns(parts[True][1], bucket.users))
            yield bucket_row(number, Bucket(users, bucket.routes).to_bytes())

    def _columns(self, body: bytes, users: Users) -> dict[str, Floats]:
        widths = [width for _, width in self.widths]
        numbers = np.frombuffer(body, np.float64).reshape(users.n_rows, sum(widths))
        parts = np.split(numbers, np.cumsum(widths)[:-1], axis=1)
        return {name: np.ascontiguousarray(part) for (name, _), part in zip(self.widths, parts, strict=True)}
