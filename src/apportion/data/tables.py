"""Tables: named columns of a CSV, TSV or Parquet file, for statistics of rows that belong to users.

The user column holds ids, integers or text, as in `Interactions`; the others hold numbers, read as float64, or text,
read as codes of the distinct texts. Only the columns that are asked for are read, batch by batch, without a Python
object per row, and errors begin with the file's name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import IdColumn, ValueColumn, is_text, refuse_nulls
from apportion.data.columns import _listed
from apportion.data.encoding import EncodedIds, refuse_single_user
from apportion.data.readers import _PARQUET_BATCH_ROWS, _is_parquet
from apportion.data.text_files import CellKind, TextColumns, is_number, see_layout
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]

ColumnKind = Literal["number", "text", "number or text"]
"""What a column is read as. "number or text" looks at the first cell of a text file, or at the type in Parquet."""

Progress = Callable[[str, int, int], None]
"""Called with what is counted, how many are done and how many there are."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one file.

    Attributes:
        users: whose row it is.
        numbers: columns of finite float64, by name.
        texts: columns of text, by name: a code for each row, and the distinct texts in sorted order.
    """

    users: EncodedIds
    numbers: Mapping[str, Floats]
    texts: Mapping[str, EncodedIds]

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.users.codes)

    def matrix(self, names: Sequence[str]) -> Floats:
        """Columns of numbers side by side."""
        return np.column_stack([self.numbers[name] for name in names])


def read_table(
    path: str | os.PathLike[str],
    *,
    user: str,
    columns: Mapping[str, ColumnKind],
    names: Sequence[str] | None = None,
    separator: str | None = None,
    single_user: bool = False,
    progress: Progress | None = None,
) -> Table:
    """Read named columns of a Parquet or a text file.

    Args:
        path: the file; text may be compressed (.gz, .bz2, .zst).
        user: the column that says whose row it is.
        columns: the other columns, and what each is read as.
        names: names of all columns, for a text file without a header line.
        separator: what separates columns of text; seen from the first line if left out.
        single_user: whether one user may have all rows; where who takes part is private, a refusal would tell.
        progress: called as a long file is read.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    try:
        read = _read_parquet if _is_parquet(file) else _read_text
        table = read(file, _Request(user, columns, None if names is None else tuple(names), separator), progress)
        if not single_user:
            refuse_single_user(table.users)
        return table
    except InputError as error:
        raise error.inside(file.name) from None


@dataclass(frozen=True)
class _Request:
    """What was asked for."""

    user: str
    columns: Mapping[str, ColumnKind]
    names: tuple[str, ...] | None
    separator: str | None

    @property
    def wanted(self) -> list[str]:
        return [self.user, *self.columns]

    def check(self, found: Sequence[str]) -> None:
        """Refuse a column that is not there, there twice, or asked for twice."""
        for name in self.wanted:
            if name not in found:
                raise InputError(f"There is no column {name!r}; found {_listed(found)}.")
            if found.count(name) > 1:
                raise InputError(f"Column {name!r} occurs {found.count(name)} times; found {_listed(found)}.")
        if self.user in self.columns:
            raise InputError(f"Column {self.user!r} cannot be both user and something else.")


def _read_parquet(file: Path, request: _Request, progress: Progress | None) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        source = parquet.ParquetFile(file)
        schema = source.schema_arrow
        request.check(schema.names)
        kinds = {
            name: _of_type(schema.field(name).type) if kind == "number or text" else kind
            for name, kind in request.columns.items()
        }
        n_batches = math.ceil(source.metadata.num_rows / _PARQUET_BATCH_ROWS)
        batches = source.iter_batches(_PARQUET_BATCH_ROWS, columns=request.wanted)
        return _gather(_counted(batches, n_batches, progress), request.user, kinds)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise InputError(f"The Parquet file cannot be read: {str(error).splitlines()[0]}") from None


def _read_text(file: Path, request: _Request, progress: Progress | None) -> Table:
    import pyarrow as pa

    layout = see_layout(file, request.names, request.separator)
    request.check(layout.names)
    as_text: dict[str, CellKind] = {name: "text" for name in request.columns}
    first = TextColumns(file, layout, as_text).first_cells() if "number or text" in request.columns.values() else {}
    kinds = {
        name: _of_cell(first.get(name)) if kind == "number or text" else kind for name, kind in request.columns.items()
    }
    text = TextColumns(file, layout, {request.user: "id", **kinds})
    types: dict[str, Any] = {}
    while True:  # at most twice: the user column may turn out to be text
        try:
            types = types or text.first_types()
            batches = _counted(text.open(types), text.n_blocks(), progress)
            return _gather(batches, request.user, kinds, untyped=True)
        except pa.ArrowInvalid as error:
            types = text.corrected_types(types, error)


def _of_type(arrow_type: pa.DataType) -> Literal["number", "text"]:
    import pyarrow as pa

    held = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    return "text" if is_text(held) else "number"


def _of_cell(cell: str | None) -> Literal["number", "text"]:
    return "number" if cell is None or is_number(cell) else "text"


def _gather(
    batches: Iterable[pa.RecordBatch],
    user: str,
    kinds: Mapping[str, Literal["number", "text"]],
    *,
    untyped: bool = False,
) -> Table:
    """Stream batches into one gatherer per column."""
    users = IdColumn(user, name="user", untyped=untyped)
    numbers = {name: ValueColumn(name, np.float64) for name, kind in kinds.items() if kind == "number"}
    texts = {name: _TextColumn(name) for name, kind in kinds.items() if kind == "text"}
    gatherers: list[IdColumn | ValueColumn | _TextColumn] = [users, *numbers.values(), *texts.values()]
    n_rows = 0
    for batch in batches:
        for gatherer in gatherers if batch.num_rows else ():
            gatherer.append(batch.column(gatherer.column), n_rows + 1)
        n_rows += batch.num_rows
    if not n_rows:
        raise InputError(f"There are no rows; expected at least two in columns {', '.join([user, *kinds])}.")
    return Table(
        users.finish(),
        {name: column.finish() for name, column in numbers.items()},
        {name: column.finish() for name, column in texts.items()},
    )


class _TextColumn:
    """Gathers a column as text, whatever it holds."""

    def __init__(self, column: str) -> None:
        self.column = column
        self._ids = IdColumn(column, name="text")

    def append(self, cells: pa.Array, first_row: int) -> None:
        import pyarrow as pa

        cells = refuse_nulls(cells, self.column, first_row, "text")
        self._ids.append(cells if is_text(cells.type) else cells.cast(pa.string()), first_row)

    def finish(self) -> EncodedIds:
        return self._ids.finish()


def _counted(batches: Iterable[pa.RecordBatch], total: int, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    """Pass batches on, and say how many of about `total` are done; nothing is said of a single one."""
    shown = progress if progress is not None and total > 1 else lambda *_: None
    shown("part", 0, total)
    for done, batch in enumerate(batches, 1):
        yield batch
        if done < total:
            shown("part", done, total)
    shown("part", total, total)
