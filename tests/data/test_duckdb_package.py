"""The package duckdb where it is missing, too old, or of the oldest version that will do."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import duckdb
import pytest

from apportion.data.duckdb_package import arrow_reader
from apportion.data.formats.duckdb_file import FORMAT
from apportion.data.on_disk.queries import QueryTable
from apportion.data.on_disk.sharding import _connected
from apportion.data.sources import Opening
from apportion.errors import InputError
from apportion.statistics.groups.sql import _parsed

NEEDS = {
    "A query needs duckdb 1.4": lambda folder: QueryTable("SELECT 1 AS user", None),
    "Making a folder of users needs duckdb 1.4": lambda folder: _connected(1 << 30, folder / "spill"),
    "DuckDB files need duckdb 1.4": lambda folder: FORMAT.open(folder / "a.duckdb", Opening()),
    "Queries in SQL need duckdb 2.0": lambda folder: _parsed("SELECT count(*) FROM 'a.csv'"),
}


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize(("version", "said"), [("1.3.2", ", and 1.3.2 is installed; install it"), (None, "; install")])
def test_what_duckdb_is_too_old_for_is_refused_in_one_sentence(tmp_path, monkeypatch, need, version, said):
    monkeypatch.setitem(sys.modules, "duckdb", None if version is None else SimpleNamespace(__version__=version))
    with pytest.raises(InputError) as caught:
        NEEDS[need](tmp_path)
    assert str(caught.value).startswith(f"{need} or later{said}")


@pytest.mark.parametrize("method", ["to_arrow_reader", "fetch_arrow_reader"])
def test_rows_come_in_batches_by_the_name_that_a_version_has(method):
    class OfAVersion:
        pass

    setattr(OfAVersion, method, lambda _, n_rows: duckdb.sql("SELECT range AS a FROM range(5000)").to_arrow_table())
    assert arrow_reader(OfAVersion(), 10).num_rows == 5000
