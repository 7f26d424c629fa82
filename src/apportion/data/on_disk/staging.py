"""Staging: each source becomes Parquet files of checked rows, with the bucket of each row's user beside it.

Rows are gathered in windows, and those of a window are written in the order of their buckets. A reader of some buckets
then needs a few row groups of each window, which it finds by their least and largest bucket, and not the whole file.

Ids are integers or text. A batch of a file without a schema whose ids are all integers is staged as integers; if any
other batch holds text, all become text later, which changes no character of an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.data.arrow_columns import (
    EMPTY_WORDS,
    IdColumn,
    TimeColumn,
    ValueColumn,
    refuse_nulls,
    texts_of,
    time_form,
)
from apportion.data.arrow_texts import is_text
from apportion.data.encoding import EncodedIds
from apportion.data.on_disk.manifest import KeptKind
from apportion.data.on_disk.shard_files import ITEM, KEPT, USER
from apportion.data.sources import CellKind, OpenTable, held_kind
from apportion.data.text_files import held_by
from apportion.data.user_keys import buckets_of, sampling_keys
from apportion.data.vocabulary import bad_cell
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

BITS = 24  # of a user's hash that are staged; a folder has at most so many buckets
BUCKET, ROW = "bucket", "row"
_ROWS_OF_A_SOURCE = 1 << 40
_BYTES_OF_A_WINDOW = 1 << 26
_ROWS_OF_A_GROUP = 1 << 16
_ORDERED_BITS = 16  # of a bucket, by which the rows of a window are ordered: NumPy sorts so few in linear time


@dataclass(frozen=True)
class ShardColumns:
    """The columns of the sources.

    Attributes:
        user: of users.
        item: of items; None without.
        kept: further columns.
        guessed: those of them whose kind is that of their first cell, or of their type in the first file. Then all
            cells must be of this kind: else one user's cell or file would decide how the cells of others are stored.
    """

    user: str
    item: str | None
    kept: Mapping[str, KeptKind]
    guessed: frozenset[str] = frozenset()

    @property
    def cells(self) -> dict[str, CellKind]:
        """How the cells of each are read."""
        ids: dict[str, CellKind] = {self.user: "id", **({} if self.item is None else {self.item: "id"})}
        return {**ids, **self.kept}

    @property
    def times(self) -> list[str]:
        """The columns of times."""
        return [name for name, kind in self.kept.items() if kind == "time"]


@dataclass(frozen=True)
class Staged:
    """One staged file.

    Attributes:
        file: its name.
        texts: which id columns hold text in it.
        rows: number of its rows.
        bytes: what its rows take in memory.
        times: the forms of columns of times in the source, each after the name of its column.
    """

    file: str
    texts: tuple[str, ...]
    rows: int
    bytes: int
    times: tuple[tuple[str, str], ...]


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
    files: dict[tuple[str, ...], _StagedFile] = {}
    times: set[tuple[str, str]] = set()
    first = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            times |= {
                (name, form) for name in columns.times if (form := time_form(batch.column(name).type)) is not None
            }
            table = _checked(batch, first, number, columns, untyped=untyped)
            texts = tuple(name for name in (USER, ITEM) if name in table.column_names and _is_text(table, name))
            if texts not in files:
                files[texts] = _StagedFile(folder / _file(number, texts), table.schema)
            files[texts].add(table)
            first += batch.num_rows
    finally:
        for file in files.values():
            file.close()
    return [
        Staged(_file(number, texts), texts, file.rows, file.bytes, tuple(sorted(times)))
        for texts, file in files.items()
    ]


class _StagedFile:
    """A file of rows that is written window by window."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as parquet

        self.rows = self.bytes = 0
        self._window: list[pa.Table] = []
        self._held = 0
        self._writer = parquet.ParquetWriter(path, schema, compression="zstd")

    def add(self, table: pa.Table) -> None:
        """Add rows to the window; write it when it is full."""
        self._window.append(table)
        self._held += table.nbytes
        self.rows += table.num_rows
        if self._held >= _BYTES_OF_A_WINDOW:
            self._write()

    def close(self) -> None:
        """Write what is left."""
        try:
            self._write()
        finally:
            self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa

        if self._window:
            rows = pa.concat_tables(self._window).unify_dictionaries()
            first_bits = (rows[BUCKET].to_numpy() >> (BITS - _ORDERED_BITS)).astype(np.uint16)
            rows = rows.take(pa.array(np.argsort(first_bits, kind="stable")))
            self._writer.write_table(rows, row_group_size=_ROWS_OF_A_GROUP)
            self.bytes += self._held
            self._window, self._held = [], 0


def _checked(batch: pa.RecordBatch, first: int, number: int, columns: ShardColumns, *, untyped: bool) -> pa.Table:
    """Return the rows of a batch as they are staged. The first cell that does not fit is named."""
    import pyarrow as pa

    users = _ids(batch, columns.user, "user", first, untyped)
    buckets = buckets_of(sampling_keys(users.vocabulary), BITS)[users.codes]
    table: dict[str, Any] = {BUCKET: buckets.astype(np.int32), USER: _cells(users)}
    if columns.item is None:  # rows of a user stay in their order
        table[ROW] = np.arange(first, first + batch.num_rows) + number * _ROWS_OF_A_SOURCE
    else:
        table[ITEM] = _cells(_ids(batch, columns.item, "item", first, untyped))
    for name, kind in columns.kept.items():
        if name in columns.guessed and untyped:
            _refuse_other_kinds(batch.column(name), name, kind, first + 1)
        elif name in columns.guessed:
            _refuse_other_types(batch.column(name).type, name, kind)
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


def _refuse_other_kinds(cells: pa.Array, name: str, kind: KeptKind, first_row: int) -> None:
    """Refuse a cell that says something else than the first cell of its column: a number, a date or other text."""
    import pyarrow as pa

    coded = cells.cast(pa.large_string()).dictionary_encode()
    other = [text.strip().lower() not in EMPTY_WORDS and held_by(text) != kind for text in coded.dictionary.to_pylist()]
    if any(other):
        row = int(np.argmax(np.append(other, False)[coded.indices.fill_null(len(other)).to_numpy()]))
        expected = f"{kind}, as in the first row, or the kind of the column: --keep {name}:text"
        raise bad_cell(name, cells[row].as_py(), first_row + row, expected)


def _refuse_other_types(arrow_type: pa.DataType, name: str, kind: KeptKind) -> None:
    """Refuse a column with a schema that holds something else than in the first rows of the first file."""
    import pyarrow as pa

    held = held_kind(arrow_type)
    if held != kind and not pa.types.is_null(arrow_type):
        problem = f"Column {name!r} holds {kind} in the first rows, and {held} here; name its kind: --keep {name}:text."
        raise InputError(problem, argument=None)


def _kept(cells: pa.Array, name: str, kind: KeptKind, first_row: int) -> Any:
    import pyarrow as pa

    if kind == "text":
        return texts_of(refuse_nulls(cells, name, first_row, "text"), name, first_row).cast(pa.large_string())
    column: Any = ValueColumn(name, np.float64) if kind == "number" else TimeColumn(name)
    column.append(cells, first_row)
    return column.finish()


def _is_text(table: pa.Table, name: str) -> bool:
    import pyarrow as pa

    kind = table.schema.field(name).type
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _file(number: int, texts: Sequence[str]) -> str:
    return "-".join([f"source-{number:05d}", *texts]) + ".parquet"
