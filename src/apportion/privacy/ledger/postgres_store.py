"""A ledger in a PostgreSQL database.

A transaction first locks the account's row (FOR UPDATE), so that nobody else can charge the account between the read
and the write. Other accounts stay free. A commit returns once the server has it on disk, whatever the server, the role
or the session says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from apportion.errors import InputError
from apportion.privacy.ledger.chain import FORMAT, LedgerError, Row, Stored
from apportion.privacy.ledger.store import WAIT_SECONDS, PerThread, Store, Transaction

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_ONE_AT_A_TIME = 0x6170706F7274  # advisory lock for creating tables; CREATE IF NOT EXISTS alone is not enough
_TABLES = f"""
CREATE TABLE IF NOT EXISTS apportion_ledger (format integer PRIMARY KEY);
INSERT INTO apportion_ledger VALUES ({FORMAT}) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS apportion_accounts (
    name text PRIMARY KEY, body text NOT NULL, hash text NOT NULL, code text NOT NULL
);
CREATE TABLE IF NOT EXISTS apportion_entries (
    account text NOT NULL REFERENCES apportion_accounts (name),
    number bigint NOT NULL, body text NOT NULL, hash text NOT NULL, code text NOT NULL,
    PRIMARY KEY (account, number)
);
CREATE OR REPLACE FUNCTION apportion_only_added() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a ledger is only ever added to'; END $$;
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON apportion_accounts
    FOR EACH STATEMENT EXECUTE FUNCTION apportion_only_added();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON apportion_entries
    FOR EACH STATEMENT EXECUTE FUNCTION apportion_only_added();
"""
_ACCOUNT = "SELECT body, hash, code FROM apportion_accounts WHERE name = %s"
_ON_DISK = "SET LOCAL synchronous_commit = on"  # in each transaction: a pool may give the next one another connection
_ALL = "SELECT number, body, hash, code FROM apportion_entries WHERE account = %s ORDER BY number"


class PostgresStore(Store):
    """Accounts and entries in the tables of a database; needs the extra `postgres`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = url
        self.place = repr(f"{parts.hostname or 'local'}{parts.path}")
        self._connections: PerThread[Connection] = PerThread(self._connect)

    def format(self) -> int | None:
        """Return the format in the table apportion_ledger, if the tables exist. The first version had none."""
        with self._told():
            tables = ("apportion_accounts", "apportion_entries", "apportion_ledger")
            result = self._one("SELECT to_regclass(%s), to_regclass(%s), to_regclass(%s)", tables)
            if result[0] is None or result[1] is None:
                return None
            return 1 if result[2] is None else int(self._one("SELECT MAX(format) FROM apportion_ledger", ())[0] or 1)

    def prepare(self) -> None:
        """Create the tables."""
        with self._told(), self._get().transaction():
            connection = self._get()
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
            connection.execute(_TABLES)

    def add_account(self, name: str, stored: Stored) -> bool:
        """Write an account, unless the name is taken."""
        with self._told():
            connection = self._get()
            query = "INSERT INTO apportion_accounts VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
            with connection.transaction():
                connection.execute(_ON_DISK)
                return connection.execute(query, (name, stored.body, stored.hash, stored.code)).rowcount == 1

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        with self._told():
            result = self._get().execute('SELECT name FROM apportion_accounts ORDER BY name COLLATE "C"')
            return [name for (name,) in result.fetchall()]

    def account(self, name: str) -> Stored | None:
        """Return the stored account."""
        with self._told():
            return _account(self._get(), name)

    @contextmanager
    def transaction(self, account: str) -> Iterator[Transaction]:
        """Lock the account's row."""
        with self._told():
            connection = self._get()
            with connection.transaction():
                connection.execute(_ON_DISK)
                connection.execute("SELECT 1 FROM apportion_accounts WHERE name = %s FOR UPDATE", (account,))
                yield _PostgresTransaction(connection, account)

    def rows(self, account: str) -> Iterator[Row]:
        """Return all entries; a single statement sees one moment."""
        with self._told():
            return _rows(self._get(), account)

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

    def _one(self, query: Any, values: tuple[Any, ...]) -> Any:
        return self._get().execute(query, values).fetchone()

    def _connect(self) -> Connection:
        try:
            import psycopg
        except ImportError:
            raise InputError(
                "A ledger in PostgreSQL needs psycopg: pip install 'apportion[postgres]'.", argument=None
            ) from None
        connection = psycopg.connect(self._url, autocommit=True)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # each statement sees what is committed
        connection.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'")
        result = connection.execute("SHOW fsync").fetchone()
        if result is None or result[0] != "on":
            connection.close()
            raise LedgerError(
                f"The server of {self.place} runs with fsync off, so a crash could lose charges. Turn fsync on."
            )
        return connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn a database error into one sentence."""
        try:
            yield
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "psycopg":
                raise
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise LedgerError(f"The ledger at {self.place} cannot be used: {reason}.") from error


class _PostgresTransaction(Transaction):
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name

    def account(self) -> Stored | None:
        return _account(self._connection, self._name)

    def rows(self) -> Iterator[Row]:
        return _rows(self._connection, self._name)

    def add(self, row: Row) -> None:
        values = (self._name, row.number, row.body, row.hash, row.code)
        self._connection.execute("INSERT INTO apportion_entries VALUES (%s, %s, %s, %s, %s)", values)

    def raise_format(self, version: int) -> None:
        found = self._connection.execute("SELECT MAX(format) FROM apportion_ledger").fetchone()
        if found is None or (found[0] or 0) < version:
            self._connection.execute("INSERT INTO apportion_ledger VALUES (%s) ON CONFLICT DO NOTHING", (version,))


def _account(connection: Connection, name: str) -> Stored | None:
    result = connection.execute(_ACCOUNT, (name,)).fetchone()
    return None if result is None else Stored(*result)


def _rows(connection: Connection, name: str) -> Iterator[Row]:
    return map(Row._make, connection.execute(_ALL, (name,)).fetchall())
