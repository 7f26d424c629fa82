"""Tables: named columns of a file, for statistics of rows that belong to users.

The user column holds ids, integers or text, as in `Interactions`. The other columns hold numbers, read as float64, or
text, read as codes of the distinct texts. Only the requested columns are read, batch by batch, without a Python object
per row. Errors begin with the file's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import IdColumn, ValueColumn, refuse_nulls, texts_of
from apportion.data.columns import listed
from apportion.data.encoding import EncodedIds, refuse_single_user
from apportion.data.row_rules import RowRules
from apportion.data.sources import CellKind, OpenTable, naming, open_table
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Table", "read_table"]

Floats = NDArray[np.float64]

ColumnKind = Literal["number", "text", "number or text"]
"""How a column is read. "number or text" is decided by the head of the file."""

Progress = Callable[[str, int, int], None]
"""Called with what is counted, the number done and the total."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one file.

    Attributes:
        users: the user of each row.
        numbers: columns of finite float64, by name.
        texts: columns of text, by name: a code for each row, and the distinct texts in sorted order.
    """

    users: EncodedIds
    numbers: Mapping[str, Floats]
    texts: Mapping[str, EncodedIds]

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.users.codes)

    def matrix(self, names: Sequence[str]) -> Floats:
        """Return columns of numbers side by side."""
        return np.column_stack([self.numbers[name] for name in names])


def read_table(
    path: str | os.PathLike[str],
    *,
    user: str,
    columns: Mapping[str, ColumnKind],
    names: Sequence[str] | None = None,
    separator: str | None = None,
    single_user: bool = False,
    rules: RowRules | None = None,
    left_out: dict[str, int] | None = None,
    progress: Progress | None = None,
) -> Table:
    """Read named columns of a file.

    Args:
        path: the file; text may be compressed (.gz, .bz2, .zst).
        user: the column that identifies the user of each row.
        columns: the other columns, and what each is read as.
        names: names of all columns, for a text file without a header line.
        separator: the separator of columns; by default guessed from the first line.
        single_user: whether one user may have all rows; if participation is private, a refusal would reveal it.
        rules: which rows are kept, and what becomes of empty cells; by default they are refused.
        left_out: receives how many rows each rule left out.
        progress: called while a long file is read.
    """
    file = Path(path)
    with naming(file):
        source = open_table(file, columns=names, separator=separator)
        table = _read(source, _Request(user, columns, rules or RowRules()), left_out, progress)
        if not single_user:
            refuse_single_user(table.users)
        return table


@dataclass(frozen=True)
class _Request:
    """The requested columns."""

    user: str
    columns: Mapping[str, ColumnKind]
    rules: RowRules

    @property
    def wanted(self) -> list[str]:
        return [self.user, *self.columns]

    def check(self, found: Sequence[str]) -> None:
        """Refuse a column that is missing, occurs twice, or is requested twice."""
        for name in self.wanted:
            if name not in found:
                raise InputError(f"There is no column {name!r}; the columns are {listed(found)}.", argument=None)
            if found.count(name) > 1:
                raise InputError(
                    f"Column {name!r} occurs {found.count(name)} times; the columns are {listed(found)}.",
                    argument=None,
                )
        if self.user in self.columns:
            raise InputError(f"Column {self.user!r} cannot be both user and something else.", argument="user")


def _read(source: OpenTable, request: _Request, left_out: dict[str, int] | None, progress: Progress | None) -> Table:
    request.check(source.names)
    held = source.held_kinds([name for name, kind in request.columns.items() if kind == "number or text"])
    seen: dict[str, Literal["number", "text"]] = {
        name: "text" if kind == "text" or (kind == "time" and source.untyped) else "number"
        for name, kind in held.items()
    }
    kinds = {name: seen[name] if kind == "number or text" else kind for name, kind in request.columns.items()}
    roles: dict[str, CellKind] = {request.user: "id", **kinds}

    def gather(batches: Iterable[pa.RecordBatch], total: int) -> Table:
        counted: dict[str, int] = {}  # a scan may begin again
        table = _gather(_counted(batches, total, progress), request, roles, counted, untyped=source.untyped)
        if left_out is not None:
            left_out.update(counted)
        return table

    return source.scan(request.rules.kinds(roles, source.names, untyped=source.untyped), gather)


def _gather(
    batches: Iterable[pa.RecordBatch],
    request: _Request,
    roles: Mapping[str, CellKind],
    left_out: dict[str, int],
    *,
    untyped: bool,
) -> Table:
    """Stream batches into one gatherer per column."""
    users = IdColumn(request.user, name="user", untyped=untyped)
    kinds = {name: roles[name] for name in request.columns}
    numbers = {name: ValueColumn(name, np.float64) for name, kind in kinds.items() if kind == "number"}
    texts = {name: _TextColumn(name) for name, kind in kinds.items() if kind == "text"}
    gatherers: list[IdColumn | ValueColumn | _TextColumn] = [users, *numbers.values(), *texts.values()]

    def append(batch: pa.RecordBatch, first_row: int) -> None:
        for gatherer in gatherers if batch.num_rows else ():
            gatherer.append(batch.column(gatherer.column), first_row)

    request.rules.pass_on(batches, roles, left_out, append)
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
        cells = refuse_nulls(cells, self.column, first_row, "text")
        self._ids.append(texts_of(cells, self.column, first_row), first_row)

    def finish(self) -> EncodedIds:
        return self._ids.finish()


def _counted(batches: Iterable[pa.RecordBatch], total: int, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    """Pass batches on, and report how many of about `total` are done; a single batch is not reported."""
    shown = progress if progress is not None and total > 1 else lambda *_: None
    shown("part", 0, total)
    for done, batch in enumerate(batches, 1):
        yield batch
        if done < total:
            shown("part", done, total)
    shown("part", total, total)
