"""The result of a query as a table that can be scanned once: of DuckDB, which reads files too, or of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from apportion.data.duckdb_package import arrow_reader, imported_duckdb
from apportion.data.on_disk.guessed_columns import refuse_guessed_columns
from apportion.data.query_tables import batch_of
from apportion.data.sources import CellKind, HeldKind, held_kind
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 17
_NO_OTHER_FILE: dict[str, Any] = {"enable_external_access": "false", "python_enable_replacements": "false"}

Result = TypeVar("Result")


class QueryTable:
    """What a query returns.

    Args:
        query: in SQL.
        database: a DuckDB file, `postgresql://...`, or None for DuckDB alone, which can read files by name.
    """

    untyped = False
    ordered = False
    schema_from_rows = False

    def __init__(self, query: str, database: str | None) -> None:
        in_postgres = database is not None and database.startswith(("postgresql://", "postgres://"))
        self._batches = _from_postgres(query, str(database)) if in_postgres else _from_duckdb(query, database)
        self._first = next(self._batches, None)
        if self._first is None:
            raise InputError("The query returns no rows.", argument="query")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        assert self._first is not None
        return tuple(self._first.schema.names)

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        """Return what some columns hold."""
        assert self._first is not None
        return {name: held_kind(self._first.schema.field(name).type) for name in names}

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        """Read the rows; the query is made once."""
        return gather(self._all(), 0)

    def read_all(self, id_column: str) -> pa.Table:
        """Return the whole table."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self._all()))

    def _all(self) -> Iterator[pa.RecordBatch]:
        if self._first is not None:
            yield self._first
        yield from self._batches


def _from_duckdb(query: str, database: str | None) -> Iterator[pa.RecordBatch]:
    duckdb = imported_duckdb("A query needs", extra="disk", oldest=(1, 4), argument="query")
    try:
        blank = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
        refuse_guessed_columns(blank, query, database is not None)
        connection = blank if database is None else duckdb.connect(database, read_only=True, config=_NO_OTHER_FILE)
        yield from arrow_reader(connection.sql(query), _ROWS)
    except duckdb.PermissionException:
        problem = (
            "A query of a database reads its tables alone, also through views and macros; copy the file into a table "
            "of the database first, or shard the file itself."
        )
        raise InputError(problem, argument="query") from None
    except duckdb.Error as error:
        raise InputError(f"The query failed: {str(error).splitlines()[0]}", argument="query") from None


def _from_postgres(query: str, database: str) -> Iterator[pa.RecordBatch]:
    try:
        import psycopg
    except ImportError:
        raise InputError(
            "A query of PostgreSQL needs psycopg; install it with: pip install 'apportion[postgres]'.", argument="query"
        ) from None
    try:
        with psycopg.connect(database) as connection, connection.cursor(name="apportion_shard") as cursor:
            cursor.execute(_sql(query))
            while rows := cursor.fetchmany(_ROWS):
                assert cursor.description is not None
                yield batch_of([each.name for each in cursor.description], rows)
    except psycopg.Error as error:
        raise InputError(f"The query failed: {str(error).splitlines()[0]}", argument="query") from None


def _sql(query: str) -> Any:
    """Return the query unchanged. psycopg asks for a literal; this query is the data holder's own."""
    return query
