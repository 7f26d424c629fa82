"""Tables and queries of a PostgreSQL database, read in a transaction that can only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from apportion.data.query_tables import BATCH_ROWS, QueryTable, batch_of
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["open_postgres"]

_TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false)) ORDER BY 1"
)


def open_postgres(url: str, table: str | None) -> QueryTable:
    """Open a table of a database, or a query to it."""
    return QueryTable(_Postgres(url), table)


class _Postgres:
    """A database by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url

    def tables(self) -> list[str]:
        with self._cursor() as cursor:
            return [str(row[0]) for row in cursor.execute(_TABLES).fetchall()]

    def columns(self, query: str) -> tuple[str, ...]:
        with self._cursor() as cursor:
            return tuple(column.name for column in cursor.execute(query).description)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        with self._cursor("rows") as cursor:
            cursor.execute(query)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield batch_of([column.name for column in cursor.description], rows)

    @contextmanager
    def _cursor(self, name: str = "") -> Iterator[Any]:
        """Return a cursor, on the server if it has a name; an error becomes one sentence without the URL."""
        try:
            import psycopg
        except ImportError:
            problem = "PostgreSQL needs the package psycopg: pip install 'apportion[postgres]'."
            raise InputError(problem, argument=None) from None
        try:
            with psycopg.connect(self._url) as connection:
                connection.read_only = True
                with connection.cursor(name) if name else connection.cursor() as cursor:
                    yield cursor
        except psycopg.Error as error:
            said = " ".join((str(error).splitlines() or [type(error).__name__])[0].split())
            raise InputError(f"The query failed: {said}.", argument="table") from None
