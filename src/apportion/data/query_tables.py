"""Tables of databases: what the file formats and the URLs of databases share. Rows of a database have no order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from apportion.data.sources import CellKind, HeldKind, held_kind
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_ROWS", "Database", "QueryTable", "batch_of", "is_query"]

BATCH_ROWS = 1 << 16

Result = TypeVar("Result")


class Database(Protocol):
    """A database that is opened read-only for each use."""

    def tables(self) -> list[str]:
        """Return the names of all tables."""

    def columns(self, query: str) -> tuple[str, ...]:
        """Return the names of a query's columns."""

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Run a query."""


class QueryTable:
    """A table of a database, or what a query returns."""

    untyped = False
    ordered = False
    schema_from_rows = True  # SQLite's columns hold anything

    def __init__(self, database: Database, table: str | None) -> None:
        self._database = database
        chosen = _only_table(database) if table is None else table
        self._source = f"({chosen.rstrip('; ')}) AS rows" if is_query(chosen) else _quoted_path(chosen)
        self.names = database.columns(f"SELECT * FROM {self._source} LIMIT 0")

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        """Return what some columns hold, judged by the first row."""
        first = next(self._batches(names, " LIMIT 1"), None) if names else None
        return {name: "other" if first is None else held_kind(first.schema.field(name).type) for name in names}

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        """Read some columns."""
        return gather(self._batches(list(kinds)), 0)

    def read_all(self, id_column: str) -> pa.Table:
        """Return the whole table."""
        import pyarrow as pa

        return pa.concat_tables(
            [pa.Table.from_batches([batch]) for batch in self._batches(self.names)], promote_options="permissive"
        )

    def _batches(self, names: Sequence[str], tail: str = "") -> Iterator[pa.RecordBatch]:
        listed = ", ".join(map(_quoted, names))
        return self._database.batches(f"SELECT {listed} FROM {self._source}{tail}")


def is_query(table: str) -> bool:
    """Whether a table is given by a query rather than by its name."""
    return re.match(r"\s*(select|with)\s", table, re.IGNORECASE) is not None


def batch_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows of Python objects as a batch; a column that mixes types is named."""
    import pyarrow as pa

    columns = {}
    for name, cells in zip(names, zip(*rows, strict=True), strict=True):
        try:
            columns[name] = pa.array(cells)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InputError(f"Column {name!r} cannot be read: {str(error).splitlines()[0]}", argument=None) from None
    return pa.record_batch(columns)


def _only_table(database: Database) -> str:
    tables = database.tables()
    if len(tables) != 1:
        named = ", ".join(tables) or "none"
        raise InputError(f"The database has the tables {named}", argument="table", remedy="name one with")
    return tables[0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted_path(name: str) -> str:
    """Return a table's name, perhaps after that of its schema, in quotes."""
    return ".".join(_quoted(part) for part in name.split("."))
