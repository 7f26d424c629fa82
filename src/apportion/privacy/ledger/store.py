"""Where a ledger is stored: what every store can do, and how its URL selects one."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Generic, TypeVar

from apportion.errors import InputError
from apportion.privacy.ledger.chain import Row, Stored

Connection = TypeVar("Connection")
WAIT_SECONDS = 60  # time to wait for other processes that charge at the same time

_INHERITED: list[object] = []
_SQLITE, _POSTGRES = "sqlite:///", ("postgresql://", "postgres://")


class Transaction(ABC):
    """One account of a store, while nobody else can add to it."""

    @abstractmethod
    def account(self) -> Stored | None:
        """Return the stored account."""

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Return all entries in order."""

    @abstractmethod
    def add(self, row: Row) -> None:
        """Add an entry. It is on disk once the transaction has ended."""

    @abstractmethod
    def raise_format(self, version: int) -> None:
        """Say that the ledger has this format from now on, if its own is older."""


class Store(ABC):
    """Stores accounts and entries. Rows are only ever added."""

    place: str
    """Where it is, without any password."""

    @abstractmethod
    def format(self) -> int | None:
        """Return the format of the stored ledger; None if there is none. Refuse anything that cannot be a ledger."""

    @abstractmethod
    def prepare(self) -> None:
        """Create an empty ledger. Several processes may do so at once."""

    @abstractmethod
    def add_account(self, name: str, stored: Stored) -> bool:
        """Write an account; False if the name is taken."""

    @abstractmethod
    def accounts(self) -> list[str]:
        """Return the names of all accounts."""

    @abstractmethod
    def account(self, name: str) -> Stored | None:
        """Return the stored account."""

    @abstractmethod
    def transaction(self, account: str) -> AbstractContextManager[Transaction]:
        """Hold an account, so that nothing can happen between reading it and adding to it.

        When it ends, what was added is on disk. If an exception ends it, nothing is written.
        """

    @abstractmethod
    def rows(self, account: str) -> Iterator[Row]:
        """Return all entries in order, as of one moment."""

    @abstractmethod
    def close(self) -> None:
        """Close this thread's connection."""

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


class PerThread(Generic[Connection]):
    """One connection for each thread of each process. A fork opens its own and leaves the inherited one alone."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._local = threading.local()

    def get(self) -> Connection:
        """Return this thread's connection, opening it if needed."""
        held: Connection | None = self.held()
        if held is None:
            held = self._connect()
            self._local.connection, self._local.process = held, os.getpid()
        return held

    def held(self) -> Connection | None:
        """Return this thread's connection if it has one."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None and self._local.process != os.getpid():
            _INHERITED.append(connection)  # closing it here would disturb the process that opened it
            connection = self._local.connection = None
        return connection

    def forget(self) -> None:
        """Forget the connection; the next call opens a new one."""
        self._local.connection = None


def open_store(url: str | os.PathLike[str]) -> Store:
    """Return the store that a path or URL names. Nothing is opened yet."""
    text = os.fspath(url)
    if text.startswith(_POSTGRES):
        from apportion.privacy.ledger.postgres_store import PostgresStore

        return PostgresStore(text)
    path = text.removeprefix(_SQLITE)
    if not path or "://" in path or path == ":memory:":
        raise InputError(
            f"Expected a path, sqlite:///path or postgresql://... for the ledger, got {text!r}.", argument="url"
        )
    from apportion.privacy.ledger.sqlite_store import SqliteStore

    return SqliteStore(path)
