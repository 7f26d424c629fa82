"""An empty ledger in each store. PostgreSQL is a real server in a temporary folder, where its binaries are at hand."""

from __future__ import annotations

import itertools
import sqlite3

import pytest

from apportion.privacy import Ledger
from benchmarks.claim import UnavailableError
from benchmarks.postgres_server import temporary_server

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server():
    """A running PostgreSQL server; tests that need one are skipped where there is none."""
    try:
        with temporary_server() as started:
            yield started
    except UnavailableError as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """Where an empty ledger is to be: a new file, or a new schema of a database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return request.getfixturevalue("in_new_schema")()


@pytest.fixture
def in_new_schema(server):
    """The server's URL, with names in an empty schema."""
    import psycopg

    def made():
        name = f"ledger{next(_NUMBERS)}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{server.url}&options=-csearch_path%3D{name}"

    return made


@pytest.fixture
def ledger(url):
    with Ledger.open(url) as opened:
        yield opened


@pytest.fixture
def sql(url):
    """Runs a statement behind the ledger's back."""

    def run(statement, *values):
        if url.startswith("postgres"):
            import psycopg

            with psycopg.connect(url) as connection:
                connection.execute(statement.replace("?", "%s"), values)
            return
        connection = sqlite3.connect(url)
        with connection:
            connection.execute(statement, values)
        connection.close()

    return run


@pytest.fixture
def unguarded(url, sql):
    """The same, with the guards of the tables taken away."""

    def run(statement, *values):
        for table in ("apportion_accounts", "apportion_entries"):
            if url.startswith("postgres"):
                sql(f"DROP TRIGGER IF EXISTS only_added ON {table}")
                continue
            for action in ("UPDATE", "DELETE", "INSERT"):
                sql(f"DROP TRIGGER IF EXISTS {table}_{action}")
        sql(statement, *values)

    return run
