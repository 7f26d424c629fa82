"""Staging: each source becomes Parquet files of checked rows, with the bucket of each row's user beside it.

Ids are integers or text. A batch of a file without a schema whose ids are all integers is staged as integers; if any
other batch holds text, all become text later, which changes no character of an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.data.arrow_columns import IdColumn, TimeColumn, ValueColumn, refuse_nulls
from apportion.data.arrow_texts import is_text
from apportion.data.encoding import EncodedIds
from apportion.data.on_disk.manifest import KeptKind
from apportion.data.on_disk.shard_files import ITEM, KEPT, USER
from apportion.data.sources import CellKind, OpenTable
from apportion.data.user_keys import buckets_of, sampling_keys
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

BITS = 24  # of a user's hash that are staged; a folder has at most so many buckets
BUCKET, ROW = "bucket", "row"
_ROWS_OF_A_SOURCE = 1 << 40


@dataclass(frozen=True)
class ShardColumns:
    """The columns of the sources.

    Attributes:
        user: of users.
        item: of items; None without.
        kept: further columns.
    """

    user: str
    item: str | None
    kept: Mapping[str, KeptKind]

    @property
    def cells(self) -> dict[str, CellKind]:
        """How the cells of each are read."""
        ids: dict[str, CellKind] = {self.user: "id", **({} if self.item is None else {self.item: "id"})}
        return {**ids, **self.kept}


@dataclass(frozen=True)
class Staged:
    """One staged file.

    Attributes:
        file: its name.
        texts: which id columns hold text in it.
        rows: number of its rows.
    """

    file: str
    texts: tuple[str, ...]
    rows: int


def stage(source: OpenTable, number: int, columns: ShardColumns, folder: Path) -> list[Staged]:
    """Write a source's rows to the folder, one file for each combination of kinds of ids."""
    missing = [name for name in columns.cells if name not in source.names]
    if missing:
        raise InputError(f"There is no column {missing[0]!r}.", argument=None)
    return source.scan(
        columns.cells, lambda batches, _: _written(batches, number, columns, folder, untyped=source.untyped)
    )


def _written(
    batches: Iterable[pa.RecordBatch], number: int, columns: ShardColumns, folder: Path, *, untyped: bool
) -> list[Staged]:
    import pyarrow.parquet as parquet

    writers: dict[tuple[str, ...], Any] = {}
    rows: dict[tuple[str, ...], int] = {}
    first = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            table = _checked(batch, first, number, columns, untyped=untyped)
            texts = tuple(name for name in (USER, ITEM) if name in table.column_names and _is_text(table, name))
            if texts not in writers:
                writers[texts] = parquet.ParquetWriter(folder / _file(number, texts), table.schema, compression="zstd")
            writers[texts].write_table(table)
            rows[texts] = rows.get(texts, 0) + batch.num_rows
            first += batch.num_rows
    finally:
        for writer in writers.values():
            writer.close()
    return [Staged(_file(number, texts), texts, count) for texts, count in rows.items()]


def _checked(batch: pa.RecordBatch, first: int, number: int, columns: ShardColumns, *, untyped: bool) -> pa.Table:
    """Return the rows of a batch as they are staged. The first cell that does not fit is named."""
    import pyarrow as pa

    users = _ids(batch, columns.user, "user", first, untyped)
    buckets = buckets_of(sampling_keys(users.vocabulary), BITS)[users.codes]
    table: dict[str, Any] = {BUCKET: buckets.astype(np.int32), USER: _cells(users)}
    if columns.item is None:  # rows of a user stay in their order
        table[ROW] = np.arange(first, first + batch.num_rows) + number * _ROWS_OF_A_SOURCE
    else:
        table[ITEM] = _cells(_ids(batch, columns.item, "task", first, untyped))
    for name, kind in columns.kept.items():
        table[KEPT + name] = _kept(batch.column(name), name, kind, first + 1)
    return pa.table(table)


def _ids(batch: pa.RecordBatch, column: str, name: str, first: int, untyped: bool) -> EncodedIds:
    gathered = IdColumn(column, name=name, untyped=untyped)
    gathered.append(batch.column(column), first + 1)
    return gathered.finish()


def _cells(ids: EncodedIds) -> Any:
    import pyarrow as pa

    if not ids.vocabulary.holds_text:
        return ids.vocabulary.ids[ids.codes]
    names = pa.array(list(ids.vocabulary), pa.large_string())
    return pa.DictionaryArray.from_arrays(pa.array(ids.codes), names)


def _kept(cells: pa.Array, name: str, kind: KeptKind, first_row: int) -> Any:
    import pyarrow as pa

    if kind == "text":
        return refuse_nulls(cells, name, first_row, "text").cast(pa.large_string())
    column: Any = ValueColumn(name, np.float64) if kind == "number" else TimeColumn(name)
    column.append(cells, first_row)
    return column.finish()


def _is_text(table: pa.Table, name: str) -> bool:
    import pyarrow as pa

    kind = table.schema.field(name).type
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _file(number: int, texts: Sequence[str]) -> str:
    return "-".join([f"source-{number:05d}", *texts]) + ".parquet"
