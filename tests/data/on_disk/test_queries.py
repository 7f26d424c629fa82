"""Rows of a query: of DuckDB, or of PostgreSQL in batches from a cursor on the server."""

from __future__ import annotations

from collections import namedtuple
from contextlib import contextmanager
from decimal import Decimal

import psycopg
import pytest

from apportion.data.on_disk.queries import QueryTable
from apportion.errors import InputError

Column = namedtuple("Column", "name")


class FakeServer:
    """Two columns and five rows, handed out two at a time."""

    description = (Column("user"), Column("rating"))

    def __init__(self):
        self.asked, self._left = [], [("ann", 1.0), ("bob", 2.0), ("cem", 3.0), ("dan", 4.0), ("eve", 5.0)]

    def execute(self, query):
        self.asked.append(query)

    def fetchmany(self, _):
        rows, self._left = self._left[:2], self._left[2:]
        return rows

    @contextmanager
    def cursor(self, name):
        assert name  # one without a name would fetch everything to this machine
        yield self

    @contextmanager
    def connected(self, _):
        yield self


def test_rows_of_postgres_come_in_batches(monkeypatch):
    server = FakeServer()
    monkeypatch.setattr(psycopg, "connect", server.connected)
    table = QueryTable("SELECT user, rating FROM ratings", "postgresql://somewhere/data")
    assert table.names == ("user", "rating")
    assert table.held_kinds(["user", "rating"]) == {"user": "text", "rating": "number"}
    assert table.scan({"user": "id"}, lambda batches, _: [each.num_rows for each in batches]) == [2, 2, 1]
    assert server.asked == ["SELECT user, rating FROM ratings"]


@pytest.mark.parametrize(
    "odd", [Decimal("NaN"), "7", True, [1], 10**400], ids=["none", "text", "truth", "list", "long"]
)
def test_a_column_of_postgres_that_mixes_types_is_named(odd, monkeypatch):
    """Numbers that are none, and JSON."""
    server = FakeServer()
    server._left[1] = ("bob", odd)
    server._left[0] = ("ann", Decimal(1) if isinstance(odd, Decimal) else 1)
    monkeypatch.setattr(psycopg, "connect", server.connected)
    with pytest.raises(InputError, match="Column 'rating' cannot be read"):
        QueryTable("SELECT user, rating FROM ratings", "postgresql://somewhere/data")


def test_rows_of_duckdb_come_with_their_types():
    table = QueryTable("SELECT range AS user, range / 2 AS rating FROM range(5)", None)
    assert table.held_kinds(["user", "rating"]) == {"user": "number", "rating": "number"}
    assert table.read_all("user").column("rating").to_pylist() == [0.0, 0.5, 1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("query", "said"), [("SELECT 1 AS user WHERE false", "no rows"), ("SELEC 1", "The query failed")]
)
def test_a_query_without_rows_is_refused(query, said):
    with pytest.raises(InputError, match=said):
        QueryTable(query, None)
