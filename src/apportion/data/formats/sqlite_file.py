"""SQLite files: one table, or a query, opened read-only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from apportion.data.query_tables import BATCH_ROWS, QueryTable, batch_of
from apportion.data.sources import Opening, rows_of
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC: Final = b"SQLite format 3"
_TABLES: Final = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
)


class _SqliteFile:
    """A database file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def tables(self) -> list[str]:
        with self._connected() as connection:
            return [str(row[0]) for row in connection.execute(_TABLES)]

    def columns(self, query: str) -> tuple[str, ...]:
        with self._connected() as connection:
            return tuple(column[0] for column in connection.execute(query).description)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        with self._connected() as connection:
            cursor = connection.execute(query)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield batch_of([column[0] for column in cursor.description], rows)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(f"{self._file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise InputError(f"The query failed: {error}.", argument="table") from None


class _Sqlite:
    """The format."""

    name: Final = "SQLite"
    endings: Final = (".sqlite", ".sqlite3")
    may_be_compressed: Final = False
    has_tables: Final = True
    fallback: Final = False

    def recognises(self, file: Path, beginning: bytes) -> bool:
        return beginning.startswith(_MAGIC)

    def open(self, file: Path, how: Opening) -> QueryTable:
        return QueryTable(_SqliteFile(file), how.table)

    def rows_as_text(self, file: Path) -> list[list[str]]:
        return rows_of(QueryTable(_SqliteFile(file), None).read_all(""))


FORMAT: Final = _Sqlite()
