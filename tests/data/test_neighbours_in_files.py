"""What one user's cells hold does not change how another user's rows are read from a file."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from apportion.cli.loading import load_data
from apportion.cli.options import DataOptions
from apportion.data.formats import parquet
from apportion.data.row_rules import RowRules
from apportion.data.tables import read_table
from apportion.errors import InputError

LATE = 1_600_000_000_000_000_000  # in nanoseconds: float64 holds only every 256th of these
ODD_TIMES = ["7.5", "1e9", "unknown", "yesterday", "2020-01-01", "3"]


def rows_of_others():
    """Two rows of each user for one item; the later one, which has the value 5, comes first."""
    both = ((5, 3), (1, 2))
    return [[f"u{user}", f"i{user % 3}", value, LATE + 300 * user + late] for user in range(9) for value, late in both]


def values_of_others(path):
    data = load_data(path, DataOptions()).data
    return data.values[data.users != data.user_ids.find(["zz"])[0]].tolist()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("time", ODD_TIMES)
def test_no_time_of_a_user_changes_which_row_of_another_is_the_last(tmp_path, time, first):
    own, others = [["zz", "i0", 3, time]], rows_of_others()
    rows = own + others if first else others + own
    lines = ["user,item,rating,timestamp", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert values_of_others(tmp_path / "a.csv") == [5.0] * 9


def written(path, rows, names):
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def test_json_times_that_a_fraction_of_another_row_may_round_are_refused(tmp_path):
    names = ("user", "item", "rating", "timestamp")
    assert values_of_others(written(tmp_path / "a.jsonl", [["zz", "i0", 3, 7], *rows_of_others()], names)) == [5.0] * 9
    path = written(tmp_path / "b.jsonl", [["zz", "i0", 3, 7.5], *rows_of_others()], names)
    with pytest.raises(InputError, match="below 2\\*\\*53 beside times with fractions"):
        load_data(path, DataOptions())


@pytest.mark.parametrize(("cells", "odd"), [(["2026-01-01", "2026-01-02"], "unknown"), ([12345678901, 3], 7.5)])
def test_the_names_of_groups_in_json_do_not_depend_on_another_row(tmp_path, cells, odd):
    others = [[f"u{user}", cells[user % 2]] for user in range(8)]
    tables = [
        read_table(written(tmp_path / f"{n}.jsonl", rows, ("user", "group")), user="user", columns={"group": "text"})
        for n, rows in enumerate((others, [*others, ["zz", odd]]))
    ]
    known, with_another = (
        np.array(list(table.texts["group"].vocabulary))[table.texts["group"].codes].tolist() for table in tables
    )
    assert with_another == [*known, str(odd)]
    assert known[:2] == [str(cell) for cell in cells]


@pytest.mark.parametrize(
    ("where", "cells", "odd"), [("g <= '2026-01-01'", ["2026-01-01", "2026-01-02"], "x"), ("g = '3'", [3, 4], 7.5)]
)
def test_a_rule_on_texts_of_json_keeps_the_same_rows_whatever_another_row_holds(tmp_path, where, cells, odd):
    others = [[f"u{user}", cells[user % 2], user] for user in range(8)]
    kept = [
        read_table(
            written(tmp_path / f"{n}.jsonl", rows, ("user", "g", "v")),
            user="user",
            columns={"v": "number"},
            rules=RowRules(where=where),
        ).numbers["v"]
        for n, rows in enumerate((others, [*others, ["zz", odd, 99]]))
    ]
    np.testing.assert_array_equal(*kept)
    assert len(kept[0]) == 4


def test_integers_that_may_have_been_rounded_are_refused_as_names(tmp_path):
    rows = [["a", 2**60], ["b", 3], ["zz", 7.5]]
    path = written(tmp_path / "a.jsonl", rows, ("user", "group"))
    with pytest.raises(InputError, match="below 2\\*\\*53"):
        read_table(path, user="user", columns={"group": "text"})


def small_rows():
    return [[f"u{user}", "i0", value, late + user] for user in range(6) for value, late in ((5, 30), (1, 20))]


def test_a_second_column_of_times_in_json_is_refused(tmp_path):
    names = ("user", "item", "rating", "timestamp")
    path = written(tmp_path / "a.jsonl", small_rows(), names)
    assert values_of_others(written(tmp_path / "b.jsonl", [*small_rows(), ["zz", "i0", 3, 1]], names)) == [5.0] * 6
    with path.open("a") as stream:
        stream.write('{"user": "zz", "item": "i0", "rating": 3, "ts": 5}\n')
    with pytest.raises(InputError, match="It is not clear which column holds times"):
        load_data(path, DataOptions())


def test_a_second_column_of_times_is_refused_in_parts_too_and_in_a_format_that_does_not_say(tmp_path, monkeypatch):
    rows = [[*row, 1] for row in small_rows()]
    for name in ("a.jsonl", "b.jsonl"):
        written(tmp_path / name, rows, ("user", "item", "rating", "timestamp", "ts"))
    with pytest.raises(InputError, match="It is not clear which column holds times"):
        load_data(tmp_path, DataOptions())
    table = pa.table(dict(zip(("user", "item", "rating", "time", "ts"), zip(*rows, strict=True), strict=True)))
    pq.write_table(table, tmp_path / "a.parquet")
    load_data(tmp_path / "a.parquet", DataOptions())  # whose schema nobody's rows change
    monkeypatch.delattr(parquet._OpenParquet, "schema_from_rows")
    with pytest.raises(InputError, match="It is not clear which column holds times"):
        load_data(tmp_path / "a.parquet", DataOptions())


def test_a_time_in_one_row_alone_leaves_the_rows_of_others(tmp_path):
    path = written(tmp_path / "a.jsonl", [row[:3] for row in small_rows()], ("user", "item", "rating"))
    assert values_of_others(path) == [1.0] * 6
    with path.open("a") as stream:
        stream.write('{"user": "zz", "item": "i0", "rating": 3, "timestamp": 5}\n')
    assert values_of_others(path) == [1.0] * 6


def test_a_blob_in_the_first_row_of_sqlite_does_not_switch_times_off(tmp_path):
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("CREATE TABLE ratings (user, item, rating, timestamp)")
    connection.executemany("INSERT INTO ratings VALUES (?, ?, ?, ?)", [["zz", "i0", 3, b"x"], *small_rows()])
    connection.commit()
    with pytest.raises(InputError):
        load_data(tmp_path / "a.sqlite", DataOptions())


@pytest.mark.parametrize("own", [[], ['zz,"4,5"']])
def test_a_rule_has_values_as_they_are_written(tmp_path, own):
    others = [f"u{user},{1 + user % 4}.0" for user in range(8)]
    (tmp_path / "a.csv").write_text("\n".join(["user,v", *others, *own]) + "\n")
    rules = RowRules(where="v <> '4.0'")
    read = read_table(tmp_path / "a.csv", user="user", columns={"v": "number"}, rules=rules)
    assert read.numbers["v"][:6].tolist() == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]
    assert len(read.numbers["v"]) == 6 + len(own)


def test_a_row_that_two_separators_divide_alike_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("Name0, Anna;i0;2,5\nName1, Eva;i0;3,5\n")
    with pytest.raises(InputError, match="It is not clear what separates the columns"):
        load_data(tmp_path / "a.csv", DataOptions(columns="user,item,rating"))
