"""A ledger in one SQLite file.

There is one writer at a time. A transaction first takes the write lock (BEGIN IMMEDIATE), so that nobody else can
charge between the read and the write. A commit returns once the write-ahead log is on disk.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from apportion.privacy.ledger.chain import FORMAT, LedgerError, Row, Stored
from apportion.privacy.ledger.store import WAIT_SECONDS, PerThread, Store, Transaction

_TABLES = (
    "CREATE TABLE IF NOT EXISTS apportion_accounts (name TEXT PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL, "
    "code TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS apportion_entries (account TEXT NOT NULL REFERENCES apportion_accounts (name), "
    "number INTEGER NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL, code TEXT NOT NULL, "
    "PRIMARY KEY (account, number)) WITHOUT ROWID",
    *(
        f"CREATE TRIGGER IF NOT EXISTS {table}_{action} BEFORE {action} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END"
        for table in ("apportion_accounts", "apportion_entries")
        for action in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE would delete without firing the triggers above
    "CREATE TRIGGER IF NOT EXISTS apportion_accounts_INSERT BEFORE INSERT ON apportion_accounts "
    "WHEN EXISTS (SELECT 1 FROM apportion_accounts WHERE name = NEW.name) "
    "BEGIN SELECT RAISE(ABORT, 'an account of that name exists'); END",
    "CREATE TRIGGER IF NOT EXISTS apportion_entries_INSERT BEFORE INSERT ON apportion_entries "
    "WHEN NEW.number <> 1 + (SELECT COALESCE(MAX(number), 0) FROM apportion_entries WHERE account = NEW.account) "
    "BEGIN SELECT RAISE(ABORT, 'entries are numbered in order'); END",
)
_ACCOUNT = "SELECT body, hash, code FROM apportion_accounts WHERE name = ?"
_ALL = "SELECT number, body, hash, code FROM apportion_entries WHERE account = ? ORDER BY number"


class SqliteStore(Store):
    """Accounts and entries in a file. Its folder must be on a local disk, because of SQLite's locks."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self.place = repr(path)
        self._connections = PerThread(lambda: self._opened("rw"))

    def format(self) -> int | None:
        """Return the file's user_version if it has the tables. The first version did not set it."""
        if not self._path.exists():
            return None
        with self._told():
            connection = self._connections.get()
            query = "SELECT COUNT(*) FROM sqlite_master WHERE name IN ('apportion_accounts', 'apportion_entries')"
            if connection.execute(query).fetchone()[0] < 2:
                return None
            return int(connection.execute("PRAGMA user_version").fetchone()[0]) or 1

    def prepare(self) -> None:
        """Create the file and its tables."""
        if not self._path.parent.is_dir():
            raise LedgerError(f"There is no folder {str(self._path.parent)!r} for the ledger.")
        with self._told():
            connection = self._opened("rwc")
            try:
                _log_ahead(connection)
                connection.execute("BEGIN IMMEDIATE")
                for statement in _TABLES:
                    connection.execute(statement)
                _raise_format(connection, FORMAT)
                connection.execute("COMMIT")
            finally:
                connection.close()

    def add_account(self, name: str, stored: Stored) -> bool:
        """Write an account, unless the name is taken."""
        with self._told(), self._locked() as connection:
            if connection.execute(_ACCOUNT, (name,)).fetchone():
                return False
            values = (name, stored.body, stored.hash, stored.code)
            connection.execute("INSERT INTO apportion_accounts VALUES (?, ?, ?, ?)", values)
        return True

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        with self._told():
            result = self._connections.get().execute("SELECT name FROM apportion_accounts ORDER BY name")
            return [name for (name,) in result.fetchall()]

    def account(self, name: str) -> Stored | None:
        """Return the stored account."""
        with self._told():
            return _account(self._connections.get(), name)

    @contextmanager
    def transaction(self, account: str) -> Iterator[Transaction]:
        """Hold the write lock of the whole file."""
        with self._told(), self._locked() as connection:
            yield _SqliteTransaction(connection, account)

    def rows(self, account: str) -> Iterator[Row]:
        """Return all entries; a single statement sees one moment."""
        with self._told():
            yield from _rows(self._connections.get(), account)

    def close(self) -> None:
        """Close this thread's connection."""
        connection = self._connections.held()
        if connection is not None:
            connection.close()
            self._connections.forget()

    def _opened(self, mode: str) -> sqlite3.Connection:
        target = f"file:{quote(os.fspath(self._path.absolute()))}?mode={mode}"
        connection = sqlite3.connect(target, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
        connection.execute("PRAGMA synchronous = EXTRA")  # FULL, and as safe if the journal is not a write-ahead log
        connection.execute("PRAGMA fullfsync = ON")  # if the system supports it
        return connection

    @contextmanager
    def _locked(self) -> Iterator[sqlite3.Connection]:
        connection = self._connections.get()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn a database error into one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerError(f"The ledger at {self.place} cannot be used: {error}.") from error


class _SqliteTransaction(Transaction):
    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection, self._name = connection, name

    def account(self) -> Stored | None:
        return _account(self._connection, self._name)

    def rows(self) -> Iterator[Row]:
        return _rows(self._connection, self._name)

    def add(self, row: Row) -> None:
        values = (self._name, row.number, row.body, row.hash, row.code)
        self._connection.execute("INSERT INTO apportion_entries VALUES (?, ?, ?, ?, ?)", values)

    def raise_format(self, version: int) -> None:
        _raise_format(self._connection, version)


def _raise_format(connection: sqlite3.Connection, version: int) -> None:
    """Part of the transaction, like everything else in it."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < version:
        connection.execute(f"PRAGMA user_version = {version}")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch a file to a write-ahead log. SQLite does not wait here: if two processes switch at once, one fails."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _account(connection: sqlite3.Connection, name: str) -> Stored | None:
    result = connection.execute(_ACCOUNT, (name,)).fetchone()
    return None if result is None else Stored(*result)


def _rows(connection: sqlite3.Connection, name: str) -> Iterator[Row]:
    return map(Row._make, connection.execute(_ALL, (name,)))
