"""DuckDB files: one table, or a query, opened read-only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from apportion.data.duckdb_package import arrow_reader, imported_duckdb
from apportion.data.query_tables import BATCH_ROWS, QueryTable
from apportion.data.sources import Opening, rows_of
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC: Final = b"DUCK"
_MAGIC_BYTES: Final = slice(8, 12)
_TABLES: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY 1"


class _DuckFile:
    """A database file. Queries cannot reach other files."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def tables(self) -> list[str]:
        with self._connected() as connection:
            return [str(row[0]) for row in connection.execute(_TABLES).fetchall()]

    def columns(self, query: str) -> tuple[str, ...]:
        with self._connected() as connection:
            return tuple(column[0] for column in connection.execute(query).description)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        with self._connected() as connection:
            yield from arrow_reader(connection.sql(query), BATCH_ROWS)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        duckdb = imported_duckdb("DuckDB files need", extra="duckdb", oldest=(1, 4))
        try:
            with duckdb.connect(str(self._file), read_only=True, config={"enable_external_access": "false"}) as opened:
                yield opened
        except duckdb.Error as error:
            raise InputError(f"The query failed: {str(error).splitlines()[0]}.", argument="table") from None


class _Duck:
    """The format."""

    name: Final = "DuckDB"
    endings: Final = (".duckdb", ".ddb")
    may_be_compressed: Final = False
    has_tables: Final = True
    fallback: Final = False

    def recognises(self, file: Path, beginning: bytes) -> bool:
        return beginning[_MAGIC_BYTES] == _MAGIC

    def open(self, file: Path, how: Opening) -> QueryTable:
        return QueryTable(_DuckFile(file), how.table)

    def rows_as_text(self, file: Path) -> list[list[str]]:
        return rows_of(QueryTable(_DuckFile(file), None).read_all(""))


FORMAT: Final = _Duck()
