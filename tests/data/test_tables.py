"""Named columns of a file: read whole whatever the file is, or refused in one sentence with the row."""

from __future__ import annotations

import gzip
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.data import Interactions, text_files
from apportion.data.row_rules import RowRules
from apportion.data.tables import read_table
from apportion.errors import InputError

COLUMNS = {
    "who": [3, 1, 3, 2],
    "cost": [4.25, -2.5, 1e300, 0.1],
    "ward": ["b", "a", "b", "é"],
    "junk": [[1], [2], [], []],
}
KINDS = {"cost": "number", "ward": "text"}


def write(folder, text, name="rows.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def refused(path, user="who", columns=None, **arguments):
    with pytest.raises(InputError) as caught:
        read_table(path, user=user, columns=KINDS if columns is None else columns, **arguments)
    return str(caught.value)


def as_lists(table):
    texts = {name: column.vocabulary.ids_of(column.codes).tolist() for name, column in table.texts.items()}
    users = table.users.vocabulary.ids_of(table.users.codes).tolist()
    return users, {name: column.tolist() for name, column in table.numbers.items()} | texts


EXPECTED = (COLUMNS["who"], {name: COLUMNS[name] for name in KINDS})


def test_a_parquet_file_is_read_whole_and_only_where_it_is_asked_for(tmp_path):
    pyarrow.parquet.write_table(pa.table(COLUMNS), tmp_path / "rows.parquet", row_group_size=1)
    table = read_table(tmp_path / "rows.parquet", user="who", columns=KINDS)
    assert as_lists(table) == EXPECTED
    assert table.n_rows == 4
    assert table.numbers["cost"].dtype == np.float64


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::"])
def test_a_text_file_gives_the_same_with_any_separator(tmp_path, separator):
    text = "who,cost,ward,junk\n3,4.25,b,x\n1,-2.5,a,\n3,1e300,b,x\n2,0.1,é,1\n"
    path = write(tmp_path, text.replace(",", separator))
    assert as_lists(read_table(path, user="who", columns=KINDS)) == EXPECTED
    headless = write(tmp_path, text.partition("\n")[2].replace(",", separator), "headless.csv")
    names = ["who", "cost", "ward", "junk"]
    assert as_lists(read_table(headless, user="who", columns=KINDS, names=names, separator=separator)) == EXPECTED


def test_a_compressed_file_is_read(tmp_path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"who,cost,ward\n3,4.25,b\n1,-2.5,a\n"))
    assert read_table(path, user="who", columns=KINDS).numbers["cost"].tolist() == [4.25, -2.5]


@pytest.mark.parametrize("users", ["7,8,7", "a,7,b", "007,8,9", "1,2,guest"])
def test_users_are_integers_or_text_just_as_in_interactions(tmp_path, users):
    cells = users.split(",")
    path = write(tmp_path, "user,item\n" + "".join(f"{user},{k}\n" for k, user in enumerate(cells)))
    expected = Interactions.read(path)
    table = read_table(path, user="user", columns={"item": "number"})
    assert table.users.vocabulary == expected.user_ids
    assert table.users.vocabulary.ids_of(table.users.codes).tolist() == (
        expected.user_ids.ids_of(expected.users)[np.argsort(expected.tasks)].tolist()
    )


def test_ids_that_stop_being_integers_far_down_are_text_throughout(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 64)
    path = write(tmp_path, "who,cost\n" + "".join(f"{k},1\n" for k in range(50)) + "guest,2\n")
    table = read_table(path, user="who", columns={"cost": "number"})
    assert table.users.vocabulary.holds_text
    assert table.n_rows == 51


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5"], "number"),
        (["-1e3", "nan2"], None),
        (["a", "b"], "text"),
        (["true", "false"], "text"),
        (["2020-01-01", "2020-01-02"], "text"),
        (["small", "3"], "text"),
    ],
)
def test_a_column_whose_first_cell_is_a_number_holds_numbers(tmp_path, cells, kind):
    path = write(tmp_path, "who,x\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells)))
    if kind is None:
        assert "Column 'x' holds 'nan2' in row 2 (counting data rows from 1); expected a number" in refused(
            path, columns={"x": "number or text"}
        )
        return
    table = read_table(path, user="who", columns={"x": "number or text"})
    assert ("x" in table.texts) == (kind == "text")
    assert as_lists(table)[1]["x"] == (cells if kind == "text" else [float(cell) for cell in cells])


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        (pa.array([1, 0], pa.int8()), "number or text", [1.0, 0.0]),
        (pa.array([True, False]), "number or text", [1.0, 0.0]),
        (pa.array(["a", "b"]).dictionary_encode(), "number or text", ["a", "b"]),
        (pa.array(["a", "b"], pa.large_string()), "number or text", ["a", "b"]),
        (pa.array([1, 2]), "text", ["1", "2"]),
        (pa.array([True, False]), "text", ["true", "false"]),
    ],
)
def test_parquet_types_decide_what_a_column_holds(tmp_path, cells, kind, expected):
    pyarrow.parquet.write_table(pa.table({"who": [1, 2], "x": cells}), tmp_path / "rows.parquet")
    assert as_lists(read_table(tmp_path / "rows.parquet", user="who", columns={"x": kind}))[1]["x"] == expected


REFUSED = {
    "not a number": (
        "1,2,a\n2,high,b\n",
        "Column 'cost' holds 'high' in row 2 (counting data rows from 1); expected a",
    ),
    "NaN": ("1,2,a\n2,nan,b\n", "Column 'cost' holds nan in row 2"),
    "infinity": ("1,-inf,a\n2,1,b\n", "Column 'cost' holds -inf in row 1"),
    "no number": ("1,2,a\n2,,b\n", "Column 'cost' is empty in row 2"),
    "no text": ("1,2,a\n2,3,\n", "Column 'ward' is empty in row 2"),
    "no user": ("1,2,a\n,3,b\n", "Column 'who' is empty in row 2"),
    "one user": ("1,2,a\n1,3,b\n", "Column 'who' holds the same user 1 in every row"),
    "no rows": ("", "There are no rows; expected some in columns who, cost, ward"),
    "short row": ("1,2,a\n2,3\n", "Row 2 (counting data rows from 1) has 2 columns where 3 were expected: '2,3'"),
}


@pytest.mark.parametrize(("rows", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_cannot_be_used_is_refused_with_its_name_and_the_row(tmp_path, rows, sentence):
    assert refused(write(tmp_path, "who,cost,ward\n" + rows)).startswith(f"rows.csv: {sentence}")


@pytest.mark.parametrize("bad", ["7,high,a", "7,nan,a", "7,,a", "7,1", ",1,a"])
def test_the_row_is_right_in_any_block_of_a_large_file(tmp_path, monkeypatch, bad):
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 100)
    rows = [f"{k % 9},1,a" for k in range(200)]
    path = write(tmp_path, "who,cost,ward\n" + "\n".join([*rows[:150], bad, *rows[150:]]) + "\n")
    assert "ow 151 " in refused(path)


def test_another_encoding_is_named_instead_of_guessed(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes("who,cost,ward\n1,2,a\n2,3,é\n".encode("latin-1"))
    assert "Column 'ward' holds 'é' in row 2 (counting data rows from 1); expected text in UTF-8" in refused(path)
    named = write(tmp_path, "user,item\nx,1\n", "named.csv")
    named.write_bytes("user,item\nx,1\né,2\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"Column 'user' holds 'é' in row 2 .* expected text in UTF-8"):
        Interactions.read(named)


def test_columns_that_are_not_there_are_answered_with_those_that_are(tmp_path):
    path = write(tmp_path, "who,cost,ward\n1,2,a\n2,3,b\n")
    assert refused(path, user="whom") == "rows.csv: There is no column 'whom'; the columns are 'who', 'cost', 'ward'."
    assert "There is no column 'age'; the columns are 'who'" in refused(path, columns={"age": "number"})
    assert "Column 'who' cannot be both user and something else" in refused(path, columns={"who": "number"})
    twice = write(tmp_path, "who,cost,cost\n1,2,3\n2,3,4\n", "twice.csv")
    assert "Column 'cost' occurs 2 times" in refused(twice, columns={"cost": "number"})


def test_an_empty_a_missing_and_a_damaged_file_are_refused(tmp_path):
    assert refused(write(tmp_path, "")) == "rows.csv: The file is empty."
    assert "There is no file" in refused(tmp_path / "nowhere.csv")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and nothing else")
    assert refused(tmp_path / "rows.parquet").startswith("rows.parquet: The Parquet file cannot be read: ")


def test_parquet_columns_of_other_types_are_refused(tmp_path):
    pyarrow.parquet.write_table(pa.table({"who": [1, 2], "x": [[1], [2]]}), tmp_path / "rows.parquet")
    assert "Column 'x' holds [1] in row 1" in refused(tmp_path / "rows.parquet", columns={"x": "number"})
    assert "Column 'x' holds [1] in row 1" in refused(tmp_path / "rows.parquet", columns={"x": "text"})


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_progress_reaches_the_end_and_never_goes_back(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 256)
    monkeypatch.setattr("apportion.data.formats.parquet._BATCH_ROWS", 40)
    table = pa.table({"who": [k % 7 for k in range(400)], "cost": range(400)})
    (pyarrow.csv.write_csv if name.endswith("csv") else pyarrow.parquet.write_table)(table, tmp_path / name)
    seen = []
    read_table(
        tmp_path / name,
        user="who",
        columns={"cost": "number"},
        progress=lambda step, *counts: seen.append((step, *counts)),
    )
    steps, done, totals = zip(*seen, strict=True)
    assert set(steps) == {"part"}
    assert len(set(totals)) == 1
    assert list(done) == sorted(set(done))
    assert (done[0], done[-1]) == (0, totals[0])
    assert len(done) > 3


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.floats(allow_nan=False, allow_infinity=False)), min_size=2, max_size=20)
)
@settings(max_examples=50, deadline=None)
def test_every_digit_of_a_number_survives_either_file(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("digits")
    users, values = zip(*[*rows, (10, 0.1)], strict=True)
    path = write(folder, "who,x\n" + "".join(f"{user},{value!r}\n" for user, value in zip(users, values, strict=True)))
    pyarrow.parquet.write_table(pa.table({"who": users, "x": values}), folder / "rows.parquet")
    for file in (path, folder / "rows.parquet"):
        assert read_table(file, user="who", columns={"x": "number"}).numbers["x"].tolist() == list(values)


LISTS = r"holds \[1\] in row 2 .*; expected text, not list<"
RECORDS = r"holds \{'a': 2\} in row 2 .*; expected text, not struct<"
BYTES = r"holds b'\\xff' in row 2 .*; expected text in UTF-8\."


@pytest.mark.parametrize(
    ("cells", "said"),
    [(pa.array([None, [1]]), LISTS), (pa.array([None, {"a": 2}]), RECORDS), (pa.array([b"a", b"\xff"]), BYTES)],
)
def test_lists_records_and_bytes_are_refused_as_text_and_in_expressions(tmp_path, cells, said):
    pyarrow.parquet.write_table(pa.table({"who": [1, 2], "kind": cells}), tmp_path / "odd.parquet")
    read = partial(refused, tmp_path / "odd.parquet", columns={})
    assert re.search(said, read(rules=RowRules(where="kind = 'a'")))
    assert read(rules=RowRules(where="kind > 1")).endswith("expected a number, as the expression does.")
    pyarrow.parquet.write_table(pa.table({"who": [1, 2], "kind": cells.take([1, 1])}), tmp_path / "odd.parquet")
    assert re.search(said.replace("row 2", "row 1"), read(columns={"kind": "text"}))


def test_a_column_of_decimal_commas_is_one_of_numbers_without_being_named_as_one(tmp_path):
    path = write(tmp_path, "who;cost;ward\n1;2,5;1,a\n2;-3,25;2,b\n3; 4;3\n")
    table = read_table(path, user="who", columns={"cost": "number or text", "ward": "number or text"})
    assert table.numbers["cost"].tolist() == [2.5, -3.25, 4.0]
    assert list(table.texts) == ["ward"]
    kept = read_table(path, user="who", columns={}, rules=RowRules(where="cost > 2.4"))
    assert kept.n_rows == 2
