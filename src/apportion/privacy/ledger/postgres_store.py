"""A ledger in a PostgreSQL database.

A transaction begins by locking the account's row (FOR UPDATE), so that nobody else can charge the account between
reading what was spent and adding to it; other accounts are free. A commit returns when the server has it on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from apportion.errors import InputError
from apportion.privacy.ledger.chain import LedgerError, Row
from apportion.privacy.ledger.store import WAIT_SECONDS, PerThread, Store, Stored

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_ONE_AT_A_TIME = 0x6170706F7274  # an advisory lock for making tables, which CREATE IF NOT EXISTS does not cover
_TABLES = """
CREATE TABLE IF NOT EXISTS apportion_accounts (name text PRIMARY KEY, body text NOT NULL, hash text NOT NULL);
CREATE TABLE IF NOT EXISTS apportion_entries (
    account text NOT NULL REFERENCES apportion_accounts (name),
    number bigint NOT NULL, body text NOT NULL, hash text NOT NULL,
    PRIMARY KEY (account, number)
);
CREATE OR REPLACE FUNCTION apportion_only_added() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a ledger is only ever added to'; END $$;
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON apportion_accounts
    FOR EACH STATEMENT EXECUTE FUNCTION apportion_only_added();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON apportion_entries
    FOR EACH STATEMENT EXECUTE FUNCTION apportion_only_added();
"""
_LAST = "SELECT number, body, hash FROM apportion_entries WHERE account = %s ORDER BY number DESC LIMIT 1"
_ALL = "SELECT number, body, hash FROM apportion_entries WHERE account = %s ORDER BY number"


class PostgresStore(Store):
    """Accounts and entries in two tables of a database; needs the extra `postgres`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = url
        self.place = repr(f"{parts.hostname or 'local'}{parts.path}")
        self._connections: PerThread[Connection] = PerThread(self._connect)

    def is_ready(self) -> bool:
        """Whether the database has the tables."""
        with self._told():
            query = "SELECT to_regclass('apportion_accounts') IS NULL OR to_regclass('apportion_entries') IS NULL"
            return not self._one(query, ())[0]

    def prepare(self) -> None:
        """Make the tables."""
        with self._told(), self._transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
            connection.execute(_TABLES)

    def add_account(self, name: str, body: str, hashed: str) -> bool:
        """Write an account, unless the name is taken."""
        with self._told():
            query = "INSERT INTO apportion_accounts VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
            return self._get().execute(query, (name, body, hashed)).rowcount == 1

    def accounts(self) -> list[str]:
        """The names of all accounts, sorted."""
        with self._told():
            found = self._get().execute('SELECT name FROM apportion_accounts ORDER BY name COLLATE "C"')
            return [name for (name,) in found.fetchall()]

    def account(self, name: str) -> Stored | None:
        """What was written of an account."""
        with self._told():
            found = self._one("SELECT body, hash FROM apportion_accounts WHERE name = %s", (name,))
            return None if found is None else (found[0], found[1])

    def append(self, account: str, following: Callable[[Row | None], Row]) -> Row:
        """Lock the account, read the last entry, make the next, write it, commit."""
        with self._told(), self._transaction() as connection:
            connection.execute("SELECT 1 FROM apportion_accounts WHERE name = %s FOR UPDATE", (account,))
            row = following(_row(connection.execute(_LAST, (account,)).fetchone()))
            values = (account, row.number, row.body, row.hash)
            connection.execute("INSERT INTO apportion_entries VALUES (%s, %s, %s, %s)", values)
        return row

    def last(self, account: str) -> Row | None:
        """The last entry."""
        with self._told():
            return _row(self._one(_LAST, (account,)))

    def rows(self, account: str) -> Iterator[Row]:
        """All entries; one statement sees one moment."""
        with self._told():
            found = self._get().execute(_ALL, (account,)).fetchall()
        yield from (Row(*values) for values in found)

    def close(self) -> None:
        """Close this thread's connection."""
        connection = self._connections.held()
        if connection is not None:
            connection.close()
            self._connections.forget()

    def _get(self) -> Connection:
        held = self._connections.held()
        if held is not None and held.closed:
            self._connections.forget()
        return self._connections.get()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        connection = self._get()
        with connection.transaction():
            yield connection

    def _one(self, query: Any, values: tuple[Any, ...]) -> Any:
        return self._get().execute(query, values).fetchone()

    def _connect(self) -> Connection:
        try:
            import psycopg
        except ImportError:
            raise InputError("A ledger in PostgreSQL needs psycopg: pip install 'apportion[postgres]'.") from None
        connection = psycopg.connect(self._url, autocommit=True)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # each statement sees what is committed
        connection.execute("SET synchronous_commit = on")
        connection.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'")
        found = connection.execute("SHOW fsync").fetchone()
        if found is None or found[0] != "on":
            connection.close()
            raise LedgerError(f"The server of {self.place} runs with fsync off, so that a crash could lose charges.")
        return connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say in one sentence what the database could not do."""
        try:
            yield
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "psycopg":
                raise
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise LedgerError(f"The ledger at {self.place} cannot be used: {reason}.") from error


def _row(values: tuple[Any, ...] | None) -> Row | None:
    return None if values is None else Row(*values)
