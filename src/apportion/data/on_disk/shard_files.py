"""The two files of a shard: its users with the sizes of their runs, and their rows.

What a shard holds is checked against its digest, and every user against its bucket, when it is first read and whenever
its files have changed since. A user in two shards, or twice in one, would contribute twice: such a folder is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.data.arrow_texts import is_text
from apportion.data.on_disk.manifest import ShardEntry
from apportion.data.user_keys import Keys, buckets_of, sampling_keys
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

USER, SIZE, KEYS = "user", "rows", ("key_low", "key_high")
ITEM = "item"
KEPT = "kept."
"""Columns of further values begin with this, so that no name of a file's column is taken."""
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 16, 1 << 18


@dataclass(frozen=True, eq=False)
class Shard:
    """The contents of a shard.

    Attributes:
        users: the ids, ascending, the number of rows of each, and two numbers from each id.
        rows: the rows, user by user; items as codes, ascending within a user.
    """

    users: pa.Table
    rows: pa.Table

    @classmethod
    def of_rows(cls, ids: pa.Array, rows: pa.Table) -> Shard:
        """Divide rows that are sorted by user; `ids` names the user of each."""
        import pyarrow as pa

        starts = np.flatnonzero(np.concatenate([[True], _changes(ids)]))
        own = ids.take(pa.array(starts))
        keys = sampling_keys(vocabulary_of(own, "user"))
        sizes = np.diff(np.append(starts, len(ids)))
        columns = {USER: own, SIZE: sizes, **dict(zip(KEYS, np.ascontiguousarray(keys.T), strict=True))}
        return cls(pa.table(columns), rows)

    def entry(self, bucket: int) -> ShardEntry:
        """What a manifest says of it."""
        return ShardEntry(bucket, self.users.num_rows, self.rows.num_rows, digest_of_tables([self.users, self.rows]))

    def write(self, entry: ShardEntry, folder: Path) -> None:
        """Write both files, each aside and then into place."""
        write_parquet(self.users, entry.users_file(folder))
        write_parquet(self.rows, entry.rows_file(folder))

    def check(self, entry: ShardEntry, bits: int, n_items: int) -> None:
        """Refuse a shard that is not what the manifest says, or that holds a user of another bucket."""
        if self.entry(entry.bucket) != entry:
            raise InputError(f"Shard {entry.bucket} is not what was written: its digest differs.", argument=None)
        ids = vocabulary_of(self.users[USER].combine_chunks(), "user")
        if not (ids.ids[1:] > ids.ids[:-1]).all():
            raise InputError(f"Shard {entry.bucket} holds a user twice, or users out of order.", argument=None)
        keys = sampling_keys(ids)
        if not np.array_equal(keys, self.keys) or (buckets_of(keys, bits) != entry.bucket).any():
            raise InputError(
                f"Shard {entry.bucket} holds a user of another shard: all rows of a user must be together.",
                argument=None,
            )
        self._check_rows(entry, n_items)

    def _check_rows(self, entry: ShardEntry, n_items: int) -> None:
        sizes = self.users[SIZE].to_numpy()
        if (sizes < 1).any() or int(sizes.sum()) != self.rows.num_rows:
            raise InputError(f"Shard {entry.bucket} does not have the rows that its users have.", argument=None)
        if ITEM not in self.rows.column_names or not self.rows.num_rows:
            return
        items, firsts = self.rows[ITEM].to_numpy(), np.cumsum(sizes)[:-1]
        ascending = np.diff(items) > 0
        ascending[firsts - 1] = True
        if not ascending.all() or items.min() < 0 or items.max() >= n_items:
            raise InputError(f"Shard {entry.bucket} has items out of order, or that are not listed.", argument=None)

    @property
    def keys(self) -> Keys:
        """Two numbers for each user."""
        return _keys(self.users)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where the rows of each user begin, and where the last ones end."""
        return _offsets(self.users)

    def columns(self, kinds: Mapping[str, DTypeLike]) -> dict[str, NDArray[Any]]:
        """Return some columns of the rows, each as numbers of a kind."""
        return {name: self.rows[name].to_numpy().astype(kind, copy=False) for name, kind in kinds.items()}


def read_shard(entry: ShardEntry, folder: Path, columns: Sequence[str], users: Sequence[str]) -> Shard:
    """Read some columns of a shard."""
    return Shard(
        read_parquet(entry.users_file(folder), users),
        read_parquet(entry.rows_file(folder), columns),
    )


def read_rows(entry: ShardEntry, folder: Path, kinds: Mapping[str, DTypeLike]) -> dict[str, NDArray[Any]]:
    """Read some columns of a shard's rows, some rows at a time, each as numbers of a kind."""
    columns = {name: np.empty(entry.rows, kind) for name, kind in kinds.items()}
    with _opened(entry.rows_file(folder)) as source:
        if source.metadata.num_rows != entry.rows:
            raise InputError(f"Shard {entry.bucket} does not have {entry.rows} rows any more.", argument=None)
        first = 0
        for batch in source.iter_batches(_ROWS_AT_ONCE, columns=list(columns), use_threads=False):
            for name, column in columns.items():
                column[first : first + batch.num_rows] = batch.column(name).to_numpy()
            first += batch.num_rows
    return columns


def read_offsets(entry: ShardEntry, folder: Path) -> NDArray[np.int64]:
    """Read where the rows of each user of a shard begin, and where the last ones end."""
    return _offsets(read_parquet(entry.users_file(folder), [SIZE]))


def read_keys(entry: ShardEntry, folder: Path) -> Keys:
    """Read two numbers for each user of a shard."""
    return _keys(read_parquet(entry.users_file(folder), KEYS))


def signature(entry: ShardEntry, folder: Path) -> tuple[int, ...]:
    """Return what changes when somebody writes to a shard's files or replaces them: sizes and times."""
    marks: list[int] = []
    for path in (entry.users_file(folder), entry.rows_file(folder)):
        with _told_of(path):
            found = os.stat(path)
        marks += (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return tuple(marks)


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file of a folder. A missing or damaged file is one sentence."""
    with _opened(path) as source:
        return source.read(None if columns is None else list(columns), use_threads=False)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as parquet

    with _told_of(path), parquet.ParquetFile(path, buffer_size=_BYTES_AT_ONCE, pre_buffer=False) as source:
        yield source


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Say in one sentence what is wrong with a file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"{path.name} of the folder of users cannot be read: {reason}.", argument=None) from None


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a file aside, put it on the disk, and move it into place. What passes read is written for fast reading."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    aside = path.with_name(path.name + ".part")
    never_null = pa.schema([field.with_nullable(False) for field in table.schema])
    packed = {field.name: "none" if _is_read_in_passes(field) else "zstd" for field in table.schema}
    with open(aside, "wb") as stream:
        parquet.write_table(
            table.cast(never_null), stream, compression=packed,
            use_dictionary=[name for name in table.column_names if name != ITEM],
        )  # fmt: skip
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, path)


def _is_read_in_passes(field: pa.Field) -> bool:
    """Whether every pass reads the column; it is then not compressed. Few distinct numbers are short without it."""
    import pyarrow as pa

    return field.name in (ITEM, SIZE) or pa.types.is_floating(field.type)


def digest_of_tables(tables: Iterable[pa.Table]) -> str:
    """Return a digest of what tables hold, whatever the version that wrote their files."""
    digest = hashlib.blake2b(digest_size=16)
    for table in tables:
        for name in table.column_names:
            digest.update(f"{name}:{table.num_rows}\0".encode())
            for part in _bytes_of(table[name]):
                digest.update(part)
    return digest.hexdigest()


def vocabulary_of(ids: Any, name: str) -> Vocabulary:
    """Return ids of a file, integers or text, as a vocabulary."""
    return Vocabulary(ids.to_pylist() if is_text(ids.type) else ids.to_numpy(), name=name)


def _keys(users: pa.Table) -> Keys:
    return np.stack([users[name].to_numpy() for name in KEYS], axis=1)


def _offsets(users: pa.Table) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(users[SIZE].to_numpy())])


def _bytes_of(column: Any) -> Iterable[Any]:
    import pyarrow as pa

    if not is_text(column.type):
        yield np.ascontiguousarray(column.to_numpy()).data
        return
    texts = column.cast(pa.large_string()).combine_chunks()
    texts = texts if isinstance(texts, pa.Array) else pa.concat_arrays(texts.chunks)
    ends = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    yield np.ascontiguousarray(np.diff(ends)).data
    if len(texts) and ends[-1] > ends[0]:
        yield np.frombuffer(texts.buffers()[2], np.uint8)[ends[0] : ends[-1]].data


def _changes(ids: Any) -> NDArray[np.bool_]:
    """Whether each id differs from the one before."""
    import pyarrow.compute as pc

    return np.asarray(pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False), bool)
