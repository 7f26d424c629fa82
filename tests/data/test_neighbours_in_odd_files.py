"""Files that are not tidy: what one user wrote does not change how another user's rows are read, or is refused."""

from __future__ import annotations

import io
import itertools
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from apportion.cli.loading import load_data
from apportion.cli.options import DataOptions
from apportion.cli.shard import shard
from apportion.data import Interactions, text_files
from apportion.data.arrow_columns import _as_floats, texts_of
from apportion.data.encoding import finite_float32
from apportion.data.on_disk.queries import QueryTable
from apportion.data.row_rules import RowRules
from apportion.data.tables import read_table
from apportion.data.text_streams import _Quoted
from apportion.errors import InputError

OTHERS = [f"u{user},i{item},{1 + (user + item) % 5}" for user in range(8) for item in range(3)]


def of_others(data):
    others = data.users != data.user_ids.find(["zz"])[0]
    users, items = (ids.ids_of(codes[others]).tolist() for ids, codes in
                    ((data.user_ids, data.users), (data.task_ids, data.tasks)))  # fmt: skip
    return sorted(zip(users, items, data.values[others].tolist(), strict=True))


def csv_of(path, lines, header="user,item,rating"):
    path.write_text("\n".join([*([header] if header else []), *lines]) + "\n")
    return path


# -- quotation marks --


@pytest.mark.parametrize(
    ("own", "later"),
    [
        (['zz,"i0,3'], ['u9,5" tall,4']),
        (['zz,"i0,3'], []),
        (["zz,i0,3", 'zz,"i1"x,3'], ['u9,"a",1']),
        (['zz,5",3'], []),
    ],
)
def test_a_quotation_mark_that_may_swallow_rows_of_others_is_refused(tmp_path, own, later):
    path = csv_of(tmp_path / "a.csv", [*OTHERS[:6], *own, *OTHERS[6:], *later])
    with pytest.raises(InputError, match="A quotation mark is"):
        load_data(path, DataOptions())


def test_cells_in_quotes_may_hold_separators_ends_of_lines_and_doubled_marks(tmp_path):
    own = ['zz,"i,\n""0""",3', 'zz,"",4', '"zz","""",5']
    path = csv_of(tmp_path / "a.csv", [*OTHERS[:6], *own, *OTHERS[6:]])
    data = load_data(path, DataOptions()).data
    assert set(data.task_ids) == {"i0", "i1", "i2", 'i,\n"0"', '"'}
    assert of_others(data) == of_others(load_data(csv_of(tmp_path / "b.csv", OTHERS), DataOptions()).data)


@pytest.mark.parametrize("size", range(1, 12))
def test_marks_are_judged_alike_wherever_reads_end(size):
    def verdict(raw):
        stream = _Quoted(io.BytesIO(raw), b",")
        try:
            return b"".join(iter(lambda: stream.read(size), b"")) == raw
        except InputError:
            return "refused"

    good = b'\xef\xbb\xbf"a","b""c"\r\n"","d\n,e"\n"""",f\n"g"'
    assert verdict(good) is True
    for bad in (b'a"b,c\n', b'"a"b,c\n', b'"a,c\n', b'"a" ,c\n', b'a, "c"\n', b'"a""', good + b'h"'):
        assert verdict(bad) == "refused"


@pytest.mark.parametrize(("first", "second"), [("u0 5\n", "u1, 5\n"), ("u0 5\n", "u1\t5\n")])
def test_a_row_that_separates_by_a_space_does_not_speak_for_others(tmp_path, first, second):
    (tmp_path / "a.csv").write_text(first + second * 3)
    with pytest.raises(InputError, match="It is not clear what separates the columns: spaces or"):
        load_data(tmp_path / "a.csv", DataOptions(columns="user,item"))


def test_a_row_longer_than_a_block_is_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("apportion.data.text_files._BLOCK_BYTES", 64)
    with pytest.raises(InputError, match="cannot be read"):
        load_data(csv_of(tmp_path / "a.csv", [*OTHERS, f"zz,{'x' * 500},3"]), DataOptions())


# -- numbers --


def test_digits_of_another_cell_do_not_round_a_decimal():
    cells = [Decimal(f"{k}.{3 * k:03d}") for k in range(1, 30)]
    own = Decimal("0.123456789012345678")
    kept = [
        Interactions.from_frame(
            pa.table({"user": ["a", "b"] * n, "item": list(range(2 * n)), "rating": column}),
            rules=RowRules("rating = '3.009' or rating = '20.06'"),
        ).values.tolist()
        for n, column in ((15, [*cells, Decimal(1)]), (16, [*cells, own, own, own]))
    ]
    assert kept[0] == kept[1] == [np.float32(3.009), np.float32(20.06)]
    wide = _as_floats(pa.array([*cells, own]), "x", 1)[:-1]
    np.testing.assert_array_equal(wide, [float(cell) for cell in cells])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(("zone", "said"), [(None, ""), ("UTC", "Z"), ("Asia/Kolkata", "+0530")])
def test_digits_of_another_time_do_not_change_a_time_as_text(unit, zone, said):
    cells = (
        pa.array(["2026-01-01 10:00:00", "2026-01-01 10:00:10"]).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    )
    hour = "15:30" if zone == "Asia/Kolkata" else "10:00"
    assert texts_of(cells, "x", 1).to_pylist() == [f"2026-01-01 {hour}:00{said}", f"2026-01-01 {hour}:10{said}"]
    half = pa.array(["2026-01-01 10:00:00.500"]).cast(pa.timestamp("us"))
    assert texts_of(half, "x", 1).to_pylist() == ["2026-01-01 10:00:00.5"]


@pytest.mark.parametrize("own", [Decimal(1), Decimal("0.123456789012345678")])
def test_digits_of_another_cell_do_not_change_which_rows_an_expression_keeps(own):
    cells = [Decimal(f"{k}.{3 * k:03d}") for k in range(1, 30)]
    frame = pa.table({"user": [*map(str, cells), "zz"], "item": ["i"] * 30, "rating": [*cells, own]})
    for cell in cells:
        read = Interactions.from_frame(frame, rules=RowRules(f"rating = {cell}"), single_user=True)
        assert list(read.user_ids) == [str(cell)]


def test_large_integers_become_the_same_values_beside_a_fraction():
    whole = np.array([2**53 - 1, 2**60 + 2**36 + 1, 7], np.int64)
    np.testing.assert_array_equal(
        finite_float32(whole, "x", first_row=1), finite_float32(whole * 1.0, "x", first_row=1)
    )


def test_times_that_an_empty_cell_turned_into_floats_are_refused_where_they_may_be_rounded():
    late = 1_600_000_000_000_000_001
    columns = {"user": ["a", "a", "b"], "item": ["i", "i", "j"], "rating": [1, 2, 3]}
    rules = RowRules(missing="drop", repeats="last", loose_times=True)
    exact = pd.DataFrame({**columns, "timestamp": [late + 1, late, 5]})
    assert Interactions.from_frame(exact, rules=rules).values.tolist() == [1.0, 3.0]
    with pytest.raises(InputError, match="below 2\\*\\*53"):
        Interactions.from_frame(pd.DataFrame({**columns, "timestamp": [late + 1, late, None]}), rules=rules)


def test_an_empty_time_in_a_polars_frame_counts_as_before_all_others():
    frame = pl.DataFrame(
        {"user": ["a", "a", "b"], "item": ["i", "i", "j"], "rating": [1, 2, 3], "time": ["2026-01-01", None, "x"]}
    )
    read = Interactions.from_frame(frame, rules=RowRules(repeats="last", loose_times=True))
    assert read.values.tolist() == [1.0, 3.0]


# -- names of columns that rows give --


def json_of(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def json_rows(*names):
    return [dict(zip(names, [f"u{user}", f"i{item}", 1 + user % 5, user], strict=False)) for user in range(6)
            for item in range(3)]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "own"),
    [
        (("user", "item"), {"user": "zz", "item": "i0", "rating": 3}),
        (("username", "item", "rating"), {"username": "zz", "uid": "zz", "item": "i0", "rating": 3}),
        (("user", "movie", "rating"), {"user": "zz", "movie": "i0", "item": "i0", "rating": 3}),
        (("user", "item", "rating", "zeitstempel"), {"user": "zz", "item": "i0", "rating": 3, "timestamp": 5}),
    ],
)
def test_a_name_in_the_rows_of_one_user_does_not_change_which_columns_are_read(tmp_path, names, own):
    others = json_rows(*names)
    assert load_data(json_of(tmp_path / "a.jsonl", others), DataOptions()).data.n_observations == len(others)
    for rows in ([own, *others], [*others, own]):
        with pytest.raises(InputError, match=r"is empty in some rows|could each be the"):
            load_data(json_of(tmp_path / "b.jsonl", rows), DataOptions())


@pytest.mark.parametrize("lacks", ["rating", "timestamp"])
def test_rows_of_one_user_that_fill_the_first_block_do_not_hide_a_column(tmp_path, lacks):
    own = {"user": "zz", "item": "i0", "rating": 3, "timestamp": 1, "text": "x" * 5000}
    own.pop(lacks)
    path = json_of(tmp_path / "a.jsonl", [*[own] * 300, *json_rows("user", "item", "rating", "timestamp")])
    with pytest.raises(InputError, match=f"Column '{lacks}' is empty in some rows"):
        load_data(path, DataOptions())


def test_a_column_of_times_in_which_all_are_empty_changes_nothing(tmp_path):
    others = json_rows("user", "item", "rating")
    read = [
        of_others(load_data(json_of(tmp_path / "a.jsonl", rows), DataOptions()).data)
        for rows in (others, [*others, {"user": "zz", "item": "i0", "rating": 3, "timestamp": None}])
    ]
    assert read[0] == read[1]


def test_columns_that_are_named_need_not_be_in_all_rows(tmp_path):
    named = DataOptions(user="user", item="item", value="rating", timestamp="timestamp")
    others = json_rows("user", "item", "rating", "timestamp")
    read = [
        of_others(load_data(json_of(tmp_path / "a.jsonl", rows), named).data)
        for rows in (others, [*others, {"user": "zz", "item": "i0", "score": 3}])
    ]
    assert read[0] == read[1]


def test_a_second_column_of_times_in_a_folder_of_json_is_refused(tmp_path):
    others = json_rows("user", "item", "rating", "timestamp")
    for name in ("a", "b"):
        json_of(tmp_path / f"{name}.jsonl", [*others, {"user": "zz", "item": name, "rating": 3, "ts": 5}])
    with pytest.raises(InputError, match="It is not clear which column holds times"):
        load_data(tmp_path, DataOptions())


# -- edges of the blocks in which a file is read --


@pytest.mark.parametrize("block", [64, 97, 200])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_where_a_block_ends_changes_no_cell(tmp_path, monkeypatch, block, end):
    cells = ['"a\nb"', '"a\r\nb"', '"a\rb"', '"\r\n\r\n"', '"x""y"', "plain"]
    rows = [f"u{k % 5},{cells[k % len(cells)]},{1 + k % 5}" for k in range(40)]
    path = tmp_path / "a.csv"
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", block)
    for shift in range(0, 40, 3):
        path.write_bytes(end.join(["user,item,rating", *(["zz," + "p" * (1 + shift) + ",1"]), *rows, ""]).encode())
        found = of_others(Interactions.read(path, rules=RowRules(repeats="sum")))
        wanted = {(f"u{k % 5}", cells[k % len(cells)].strip('"').replace('""', '"')) for k in range(40)}
        assert {(user, item) for user, item, _ in found} == wanted


# -- times in several files --

TIMES = {
    "numbers": pa.array([1767225600]),
    "times without a zone": pa.array([datetime(2026, 1, 1)]),
    "times with a zone": pa.array([datetime(2026, 1, 1, tzinfo=UTC)]),
    "text": pa.array(["2026-01-01"]),
}


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(TIMES, 2)])
@pytest.mark.parametrize("named", [None, "timestamp"])
def test_times_of_two_forms_in_files_with_a_schema_are_refused(tmp_path, first, second, named):
    for name, form in (("a", first), ("b", second)):
        rows = {"user": [name], "item": ["i"], "rating": [3.0], "timestamp": TIMES[form]}
        parquet.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match=f"holds {first} in some rows and {second} in others"):
        load_data(tmp_path, DataOptions(timestamp=named))
    made = CliRunner().invoke(shard, [*map(str, sorted(tmp_path.iterdir())), "--out", str(tmp_path / "folder")])
    assert f"'timestamp' holds {first} in a.parquet and {second} in b.parquet" in str(made.exception)


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_file_does_not_decide_that_there_are_no_times(tmp_path, first):
    """Its column of times was no time, so that the last of several rows of others was the last in the file."""
    names = ["a.parquet", "b.parquet"]
    own = {"user": ["zz"], "item": ["i"], "rating": [3.0], "timestamp": [{"at": 5}]}
    others = {"user": ["u0", "u0"], "item": ["i", "i"], "rating": [1.0, 2.0], "timestamp": [20, 10]}
    parquet.write_table(pa.table(own), tmp_path / names[first])
    parquet.write_table(pa.table(others), tmp_path / names[1 - first])
    with pytest.raises(InputError, match=r"'timestamp' holds .* no number, text or time.*; write it in one form"):
        load_data(tmp_path, DataOptions())


def test_a_file_without_times_goes_with_any_form(tmp_path):
    for name, cells in (("a", pa.nulls(1)), ("b", TIMES["times with a zone"]), ("c", pa.nulls(1))):
        rows = {"user": [name], "item": ["i"], "rating": [3.0], "timestamp": cells}
        parquet.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    times = load_data(tmp_path, DataOptions()).data.timestamps.tolist()
    assert times == [-(2**63), 1767225600, -(2**63)]


# -- columns that `shard` keeps --


def sharded(path, *keep):
    out = path.parent / "folder"
    arguments = [str(path), "--out", str(out), "--user", "user", *(part for name in keep for part in ("--keep", name))]
    result = CliRunner().invoke(shard, arguments)
    if result.exception is not None:
        raise result.exception
    table = read_table(out, user="user", columns={"g": "text"})
    return sorted(np.array(list(table.texts["g"].vocabulary))[table.texts["g"].codes].tolist())


@pytest.mark.parametrize("own", ["abc", "2026-01-01"])
def test_the_first_cell_does_not_decide_how_cells_of_others_are_stored(tmp_path, own):
    others = [f"u{user},{1 + user % 4}.0" for user in range(8)]
    path = csv_of(tmp_path / "a.csv", [f"zz,{own}", *others], "user,g")
    with pytest.raises(InputError, match="--keep g:text"):
        sharded(path, "g")
    assert sharded(path, "g:text") == sorted([own, *(line.split(",")[1] for line in others)])


@pytest.mark.parametrize("own", ["true", "False"])
def test_a_first_number_does_not_decide_how_truth_values_of_others_are_stored(tmp_path, own):
    path = csv_of(tmp_path / "a.csv", ["zz,1", *(f"u{user},{own}" for user in range(4))], "user,g")
    with pytest.raises(InputError, match="--keep g:text"):
        sharded(path, "g")


def test_the_first_file_with_a_schema_does_not_decide_how_cells_of_others_are_stored(tmp_path):
    (tmp_path / "parts").mkdir()
    parquet.write_table(pa.table({"user": ["zz"], "g": ["5"]}), tmp_path / "parts" / "a.parquet")
    parquet.write_table(pa.table({"user": ["u0", "u1"], "g": [5, 7]}), tmp_path / "parts" / "b.parquet")
    with pytest.raises(InputError, match="holds text in the first rows, and number here; name its kind: --keep g:text"):
        sharded(tmp_path / "parts", "g")
    assert sharded(tmp_path / "parts", "g:text") == ["5", "5", "7"]


def test_text_without_numbers_is_kept_as_it_is(tmp_path):
    path = csv_of(tmp_path / "a.csv", ["zz,NA", *(f"u{user},g{user % 2}" for user in range(4))], "user,g")
    assert sharded(path, "g") == ["NA", "g0", "g0", "g1", "g1"]


NAMED = "columns = {'user': 'VARCHAR', 'item': 'VARCHAR', 'g': 'VARCHAR'}"
WHOLE = "read_csv('a.csv', auto_detect = false, header = true, quote = '', " + NAMED + ")"
GUESSING = (
    "'a.csv'", "read_csv('a.csv')", "read_csv('a.csv', types={'user': 'VARCHAR'})",
    f"read_csv('a.csv', header = true, {NAMED})",  # one row changes what separates columns, or quotes
    WHOLE.replace("quote = '', ", ""),  # a mark that one row does not close swallows the next
    "read_ndjson('a.jsonl')", "read_json_auto('a.jsonl')", "sniff_csv('a.csv')", "read_text('a.csv')",
    "read_ndjson('a.jsonl', columns = {'user': 'VARCHAR'})",  # rows say whether they are records
    f"read_json('a.jsonl', records = true, {NAMED})",  # ... and whether every line is one
    f"read_json('a.jsonl', records = true, format = 'auto', {NAMED})",
    f"read_ndjson('a.jsonl', records = true, format = 'unstructured', {NAMED})",
    "(SELECT 1 AS columns WHERE columns = 1), 'a.csv'", f"{WHOLE} JOIN 'a.csv' b USING (user)",
    f"(WITH \"a.csv\" AS (SELECT 1) SELECT * FROM \"a.csv\"), {WHOLE}", "a.csv", "'a.csv?.parquet'",
    f"(SELECT * FROM {WHOLE} UNION ALL SELECT * FROM read_csv('a.csv'))", "query('SELECT * FROM read_csv(''a.csv'')')",
    "(SELECT user FROM 'a.csv' WHERE false UNION ALL BY NAME SELECT 'u0' AS user)",  # the plan forgets the file
)  # fmt: skip


def two_files(folder, own):
    csv_of(folder / "a.csv", [*OTHERS, *own], "user,item,g")
    rows = [dict(zip(("user", "item", "g"), line.split(","), strict=True)) for line in (*OTHERS, *own)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def queried(query, database=None):
    return QueryTable(query, database).read_all("user").to_pylist()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_files(tmp_path, [])
    return tmp_path


@pytest.mark.parametrize("own", [[], ["zz,i0,abc"]])
@pytest.mark.parametrize("asked", GUESSING)
def test_a_query_does_not_guess_columns_from_rows(here, asked, own):
    two_files(here, own)
    with pytest.raises(InputError, match="DuckDB guesses the columns"):
        QueryTable(f"SELECT * FROM {asked}", None)


@pytest.mark.parametrize(
    "query",
    [
        "WITH v AS (SELECT 'u0' AS user) SELECT * FROM main.v",
        "WITH v AS (SELECT 1 AS user) SELECT * FROM memory.main.v",
        "WITH csv AS (SELECT 1 AS user) SELECT * FROM a.csv", "SELECT * FROM information_schema.tables",
        "WITH RECURSIVE v AS (SELECT 1 AS user UNION ALL SELECT user FROM main.v) SELECT * FROM v",
    ],
)  # fmt: skip
def test_only_a_bare_name_is_a_part_of_the_query(here, query):
    with pytest.raises(InputError, match="no part of the query"):
        QueryTable(query, None)


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TEMP VIEW t AS FROM 'a.csv'; SELECT * FROM t", "SET schema = 'main'; SELECT 1 AS user",
        "COPY (FROM 'a.csv') TO 's.parquet'; FROM 's.parquet'", "CREATE TEMP MACRO m() AS TABLE FROM 'a.csv'; FROM m()",
        "SELECT 1 AS user; SELECT 2 AS user", "CREATE TABLE t AS FROM 'a.csv'", "",
        "PIVOT 'a.csv' ON item USING count(*)",
    ],
)  # fmt: skip
def test_a_query_is_one_select(here, query):
    with pytest.raises(InputError, match="A query is one SELECT statement, not"):
        QueryTable(query, None)
    assert not (here / "s.parquet").exists()


@pytest.mark.parametrize("query", ["FROM (DESCRIBE 'a.csv')", "DESCRIBE 'a.csv'", "SUMMARIZE 'a.csv'", "SHOW TABLES"])
def test_a_query_does_not_tell_of_tables(here, query):
    with pytest.raises(InputError, match="DESCRIBE, SUMMARIZE and SHOW"):
        QueryTable(query, None)


LINES = f"read_ndjson('a.jsonl', records = true, {NAMED})"


@pytest.mark.parametrize(
    "option",
    [
        "ignore_errors = true", "store_rejects = true", "strict_mode = false", "null_padding = true", "comment = '#'",
        "escape = '\\'", "all_varchar = true", "filename = true", "union_by_name = true",
        "auto_type_candidates = ['DATE']",
    ],
)  # fmt: skip
def test_an_option_of_csv_that_lets_a_row_reach_into_others_is_refused(here, option):
    with pytest.raises(InputError, match=f"With {option.split()[0]}, read_csv could read one user's rows otherwise"):
        QueryTable(f"SELECT * FROM {WHOLE[:-1]}, {option})", None)


@pytest.mark.parametrize("option", ["ignore_errors = true", "maximum_depth = 1", "convert_strings_to_integers = true"])
def test_an_option_of_json_that_lets_a_row_reach_into_others_is_refused(here, option):
    with pytest.raises(InputError, match=f"With {option.split()[0]}, read_ndjson could read"):
        QueryTable(f"SELECT * FROM {LINES[:-1]}, {option})", None)


@pytest.mark.parametrize("files", ["'a' || '.csv'", "['a.csv', 'a' || '.csv']", "getvariable('a')", "[]"])
def test_files_of_a_reader_are_texts(here, files):
    with pytest.raises(InputError, match="Write the files of read_csv as text"):
        QueryTable(f"SELECT * FROM {WHOLE.replace(repr('a.csv'), files)}", None)


@pytest.mark.parametrize(
    "asked",
    [
        WHOLE, LINES, f"(WITH part AS (SELECT * FROM {WHOLE}) SELECT * FROM Part)",
        WHOLE.replace(" = {", " := {").replace("auto_detect = false", "AUTO_DETECT := False"),
        WHOLE.replace("'a.csv'", "['a.csv']"), f"{WHOLE[:-1]}, delim = ',', nullstr = 'NA')",
        f"read_json('a.jsonl', format = 'newline_delimited', records = true, {NAMED})",
        "(PIVOT 'a.parquet' ON item IN ('i0') USING max(g) GROUP BY user, g)",
        "'a.parquet'", "read_parquet(['a.parquet'])", "read_parquet('*.parquet', filename = true)",
        "'a.parquet' JOIN range(1) ON true", "(SELECT g FROM 'a.parquet', (SELECT unnest([1])))",
        "(WITH RECURSIVE v AS (SELECT 0 AS k UNION ALL SELECT k + 1 FROM v WHERE k < 0) SELECT g FROM v, 'a.parquet')",
    ],
)  # fmt: skip
def test_a_query_that_names_the_columns_of_text_is_made(here, asked):
    duckdb.sql(f"COPY (FROM {WHOLE}) TO 'a.parquet'")
    made = QueryTable(f"SELECT * FROM {asked}", None).read_all("user")["g"].to_pylist()
    assert sorted(made) == sorted(line.split(",")[2] for line in OTHERS)


# -- queries of a database --

HELD = (
    "CREATE TABLE kept AS SELECT 'u0' AS user", "CREATE VIEW seen AS SELECT * FROM 'a.csv'",
    "CREATE VIEW known AS SELECT * FROM kept", "CREATE SCHEMA o", "CREATE VIEW o.kept AS SELECT * FROM 'a.csv'",
    "CREATE MACRO made() AS TABLE SELECT * FROM 'a.csv'", "CREATE MACRO range(a) AS TABLE SELECT * FROM 'a.csv'",
    "CREATE MACRO parquet_scan(a) AS TABLE SELECT * FROM read_csv('a.csv')",
    "CREATE MACRO most() AS (SELECT max(g) FROM 'a.csv')", "CREATE VIEW told AS FROM (DESCRIBE 'a.csv')",
    "CREATE MACRO json_serialize_sql(a) AS '{\"error\": false}'",
)  # fmt: skip


@pytest.fixture
def database(here):
    with duckdb.connect("kept.duckdb") as database:
        for each in HELD:
            database.execute(each)
    return "kept.duckdb"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM seen", "SELECT * FROM made()", "SELECT * FROM o.kept", "SELECT * FROM range(4)", "FROM told",
        "SELECT * FROM parquet_scan('a.parquet')", "SELECT user, most() AS g FROM kept", "SELECT * FROM main.seen",
        "WITH seen AS (SELECT user, g FROM seen) SELECT * FROM seen", "WITH seen AS (SELECT 1) SELECT * FROM main.seen",
        "SELECT * FROM (WITH seen AS (SELECT 1) SELECT * FROM seen), seen", "SELECT * FROM 'a.csv'",
        "WITH RECURSIVE seen AS (SELECT 1 UNION ALL SELECT 1 FROM main.seen) SELECT * FROM seen",
        f"SELECT k.user FROM kept k JOIN {WHOLE} a ON k.user = a.user", "FROM query('FROM seen')", "FROM 'a.parquet'",
        "SELECT user FROM seen WHERE false UNION ALL BY NAME SELECT user FROM kept",
    ],
)  # fmt: skip
def test_a_query_of_a_database_reads_no_other_file(here, database, query):
    duckdb.sql(f"COPY (FROM {WHOLE}) TO 'a.parquet'")
    with pytest.raises(InputError, match="A query of a database reads its tables alone"):
        QueryTable(query, database)


@pytest.mark.parametrize("query", ["FROM kept", "SELECT * FROM known", "WITH v AS (FROM main.kept) SELECT * FROM v"])
def test_a_query_of_a_database_reads_its_tables(database, query):
    assert queried(query, database) == [{"user": "u0"}]


@pytest.mark.parametrize(
    ("query", "said"), [("FROM kept; FROM kept", "one SELECT"), ("DESCRIBE kept", "DESCRIBE, SUM")]
)
def test_a_query_of_a_database_is_one_select(database, query, said):
    with pytest.raises(InputError, match=said):
        QueryTable(query, database)


# -- several files of a query --


def folders(*users):
    for user in users:
        duckdb.sql(f"COPY (SELECT 'i' AS item, '{user}' AS user) TO 'h-{user}.parquet'")
        where = Path(f"h/user={user}")
        where.mkdir(parents=True)
        (where / "a.csv").write_text("item\ni\n")
        (where / "a.jsonl").write_text('{"item": "i"}\n')
        duckdb.sql(f"COPY (SELECT 'i' AS item) TO '{where}/a.parquet'")


ITEM = "columns = {'item': 'VARCHAR'}"
IN_FOLDERS = (
    "read_parquet('h/*/*.parquet')", f"read_csv('h/*/*.csv', auto_detect = false, header = true, quote = '', {ITEM})",
    f"read_ndjson(['h/user=7/a.jsonl', 'h/*/*.jsonl'], records = true, {ITEM})",
)  # fmt: skip


@pytest.mark.parametrize("users", [("7", "8"), ("7", "abc")])
@pytest.mark.parametrize("option", ["", ", hive_partitioning = true", ", hive_types_autocast = false"])
@pytest.mark.parametrize("asked", IN_FOLDERS)
def test_names_of_folders_do_not_decide_on_a_type(here, asked, option, users):
    folders(*users)
    with pytest.raises(InputError, match="whose type depends on the folders of all users"):
        QueryTable(f"SELECT * FROM {asked[:-1]}{option})", None)


@pytest.mark.parametrize("asked", ["'h/*/*.parquet'", "READ_PARQUET('h')", "'h/user=7/a.parquet'"])
def test_names_of_folders_do_not_decide_on_a_type_of_parquet(here, asked):
    folders("7", "8")
    with pytest.raises(InputError, match="whose type depends on the folders of all users"):
        QueryTable(f"SELECT * FROM {asked}", None)


@pytest.mark.parametrize("asked", IN_FOLDERS)
def test_folders_may_be_text_or_left_out(here, asked):
    folders("7", "abc")
    as_text = "hive_partitioning = true, hive_types_autocast = false"
    text = queried(f"SELECT DISTINCT * FROM {asked[:-1]}, {as_text})")
    assert sorted(row["user"] for row in text) == ["7", "abc"]
    assert queried(f"SELECT DISTINCT * FROM {asked[:-1]}, hive_partitioning = false)") == [{"item": "i"}]


@pytest.mark.parametrize("asked", ["'h-*.parquet'", "read_parquet(['h-7.parquet', 'h-8.parquet'])"])
@pytest.mark.parametrize(
    "own", ["8 AS item, '8' AS user", "'i' AS item, 8 AS user", "'i' AS item", "'8' AS user, 'i' AS item"]
)
def test_parquet_files_of_a_query_agree_on_their_columns(here, asked, own):
    folders("7", "8")
    assert sorted(row["user"] for row in queried(f"SELECT * FROM {asked}")) == ["7", "8"]
    duckdb.sql(f"COPY (SELECT {own}) TO 'h-8.parquet'")
    with pytest.raises(InputError, match=r"'h-8\.parquet' has other columns or types than 'h-7\.parquet'"):
        QueryTable(f"SELECT * FROM {asked}", None)


def test_parquet_files_of_several_writers_agree(here):
    folders("7")
    parquet.write_table(pa.table({"item": ["i"], "user": ["8"]}), "h-8.parquet")
    assert sorted(row["user"] for row in queried("SELECT * FROM 'h-*.parquet'")) == ["7", "8"]


def test_a_pattern_of_text_without_files_is_said(here):
    with pytest.raises(InputError, match=r"There is no file 'b\*.csv'"):
        QueryTable(f"SELECT * FROM {WHOLE.replace('a.csv', 'b*.csv')}", None)


# -- what is said --


@pytest.mark.parametrize(("named", "said"), [(None, True), ("timestamp", False)])
def test_what_counts_as_a_time_is_said_where_nobody_named_the_column(tmp_path, named, said):
    lines = [f"{line},2026-01-0{1 + k % 3}" for k, line in enumerate(OTHERS)]
    path = csv_of(tmp_path / "a.csv", lines, "user,item,rating,timestamp")
    remarks = load_data(path, DataOptions(user="user", item="item", value="rating", timestamp=named)).remarks
    assert any("Times in timestamp: seconds, or dates" in remark for remark in remarks) is said
