"""Frames and files in: the same rows come back from every one of them, and bad input is named."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import apportion.data.text_files as text_files
import apportion.data.text_streams as text_streams
from apportion.cli.compare import in_study_words
from apportion.cli.fit import fit
from apportion.cli.main import in_options
from apportion.data import IGNORE, Interactions
from apportion.errors import InputError

COLUMNS = {
    "userId": [3, 1, 3, 2],
    "movieId": [10, 10, 20, 30],
    "rating": [4.0, 2.5, 5.0, 1.0],
    "timestamp": [900, 100, 300, 200],
}
EXPECTED = Interactions.from_arrays(*COLUMNS.values())
HEADER = "userId,movieId,rating,timestamp\n"
NAMES = ["user", "item", "rating", "timestamp"]


def write(folder: Path, text: str, name: str = "ratings.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(path: Path, **choices: object) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(InputError) as caught:
        Interactions.read(path, **choices)  # type: ignore[arg-type]
    return str(caught.value)


# -- frames --


def duckdb_relation(columns):
    ratings = pa.table(columns)  # noqa: F841  (DuckDB finds it by its name)
    return duckdb.sql("select * from ratings")


FRAMES = {"polars": pl.DataFrame, "pandas": pd.DataFrame, "pyarrow": pa.table, "duckdb": duckdb_relation}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_frame_gives_the_same_data(frame):
    assert Interactions.from_frame(frame(COLUMNS)) == EXPECTED


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_frame_may_hold_text_ids(frame):
    named = COLUMNS | {"userId": ["c", "a", "c", "é"]}
    assert Interactions.from_frame(frame(named)) == Interactions.from_arrays(*named.values())


def test_a_duckdb_query_is_a_frame():
    relation = duckdb.sql("select * from (values ('a', 1::hugeint, 2.5), ('b', 2, 3.5)) t(uid, item_id, stars)")
    assert Interactions.from_frame(relation) == Interactions.from_arrays(["a", "b"], [1, 2], [2.5, 3.5])


def test_categories_are_read_as_what_they_stand_for():
    named = pl.DataFrame(COLUMNS).with_columns(pl.Series("movieId", ["x", "y", "y", "x"], dtype=pl.Categorical))
    expected = Interactions.from_arrays(
        COLUMNS["userId"], ["x", "y", "y", "x"], COLUMNS["rating"], COLUMNS["timestamp"]
    )
    assert Interactions.from_frame(named) == expected


def test_a_frame_in_many_pieces_is_read_as_one():
    pieces = pa.concat_tables([pa.table(COLUMNS).slice(row, 1) for row in range(4)])
    text = pieces.set_column(0, "userId", pieces["userId"].cast(pa.string()))
    assert Interactions.from_frame(pieces) == EXPECTED
    assert Interactions.from_frame(text).users.tolist() == EXPECTED.users.tolist()


def test_dates_in_a_frame_become_seconds():
    dated = pl.DataFrame(COLUMNS).with_columns(pl.from_epoch("timestamp", time_unit="s"))
    assert Interactions.from_frame(dated) == EXPECTED


def test_clicks_need_no_value_column_and_a_value_column_can_be_ignored():
    clicks = Interactions.from_arrays(COLUMNS["userId"], COLUMNS["movieId"])
    assert Interactions.from_frame(pl.DataFrame(COLUMNS).select("userId", "movieId")) == clicks
    assert Interactions.from_frame(pl.DataFrame(COLUMNS), value=IGNORE, timestamp=IGNORE) == clicks


def test_one_user_is_refused_with_the_word_that_allows_a_history(tmp_path):
    columns = {"user": [1, 1], "item": [1, 2]}
    pl.DataFrame(columns).write_csv(tmp_path / "a.csv")
    ways = {
        "frame": lambda **more: Interactions.from_frame(pl.DataFrame(columns), **more),
        "file": lambda **more: Interactions.read(tmp_path / "a.csv", **more),
        "arrays": lambda **more: Interactions.from_arrays(columns["user"], columns["item"], **more),
    }
    for name, way in ways.items():
        with pytest.raises(InputError, match="two users; allow one, as in a history, with single_user=") as told:
            way()
        assert in_options(told.value, fit).endswith("expected at least two users.")
        assert in_study_words(told.value).argument is None
        assert way(single_user=True).n_users == 1, name


def test_columns_that_are_not_wanted_may_hold_anything():
    junk = pd.DataFrame(COLUMNS | {"notes": [[1], "a", None, {}]})
    assert Interactions.from_frame(junk) == EXPECTED


FRAMES_REFUSED = {
    "empty": ({"user": [], "item": []}, "There are no rows"),
    "one row": ({"user": [1], "item": [1]}, "Column 'user' holds user 1 in its only row; expected at least two users"),
    "one user": ({"user": [1, 1], "item": [1, 2]}, "Column 'user' holds the same user 1 in every row"),
    "missing value": ({"user": [1, 2], "item": [1, 2], "rating": [1.0, None]}, "Column 'rating' is empty in row 2"),
    "missing user": ({"user": [1, None], "item": [1, 2]}, "Column 'user' is empty in row 2"),
    "infinity": (
        {"user": [1, 2], "item": [1, 2], "rating": [1.0, float("inf")]},
        "Column 'rating' holds inf in row 2",
    ),
    "text value": (
        {"user": [1, 2], "item": [1, 2], "rating": ["4", "good"]},
        "Column 'rating' holds 'good' in row 2 .* expected a number, not text",
    ),
    "truth as id": ({"user": [True, False], "item": [1, 2]}, "Column 'user' holds True in row 1"),
    "fraction as id": ({"user": [1.0, 2.5], "item": [1, 2]}, r"Column 'user' holds 2\.5 in row 2"),
    "list as id": ({"user": [1, 2], "item": [[1], [2]]}, r"Column 'item' holds \[1\] in row 1"),
    "text time": ({"user": [1, 2], "item": [1, 2], "ts": ["1", "noon"]}, "Column 'ts' holds 'noon' in row 2"),
    "repeated": ({"user": [1, 2, 1], "item": ["x", "x", "x"]}, "User 1 has item 'x' in row 1 and again in row 3"),
}


@pytest.mark.parametrize(("columns", "sentence"), FRAMES_REFUSED.values(), ids=FRAMES_REFUSED)
def test_a_frame_that_cannot_be_used_is_refused_in_one_sentence(columns, sentence):
    with pytest.raises(InputError, match=sentence):
        Interactions.from_frame(pl.DataFrame(columns))


def test_a_pandas_column_of_mixed_types_is_refused_with_its_first_odd_cell():
    with pytest.raises(InputError, match=r"Column 'rating' holds 'x' in row 3 .* same type"):
        Interactions.from_frame(pd.DataFrame({"user": [1, 2, 3], "item": [1, 2, 3], "rating": [1.0, 2.0, "x"]}))


def test_something_that_is_no_frame_is_refused():
    with pytest.raises(InputError, match=r"Expected a frame that supports Arrow .* got builtins\.dict"):
        Interactions.from_frame(COLUMNS)


# -- names of columns --


@pytest.mark.parametrize("user", ["user", "userId", "user_id", "uid", "UserID", "User ID", "USER"])
@pytest.mark.parametrize("task", ["item", "movieId", "item_id", "MovieID", "product_id", "song"])
def test_the_usual_names_are_guessed(user, task):
    frame = pa.table({"title": ["a", "b"], task: [1, 2], user: [3, 4], "Stars": [1.0, 2.0], "TS": [5, 6]})
    assert Interactions.from_frame(frame) == Interactions.from_arrays([3, 4], [1, 2], [1.0, 2.0], [5, 6])


def test_given_names_go_before_guesses():
    frame = pa.table({"user": [1, 2], "uid": [3, 4], "item": [5, 6], "rating": [7.0, 8.0], "score": [9.0, 10.0]})
    data = Interactions.from_frame(frame, user="uid", task="item", value="score")
    assert data == Interactions.from_arrays([3, 4], [5, 6], [9.0, 10.0])


NAMES_REFUSED = {
    "no user": ({}, ["a", "item"], "No column looks like the user among 'a', 'item'; name it with user="),
    "two items": ({}, ["user", "item", "song"], "'item', 'song' among 'user', .* the item; say which with task="),
    "no header": ({}, ["u7", "i3", "4.5"], "'u7', 'i3', '4.5'; if the first line holds data, name the columns with"),
    "two values": ({}, ["user", "item", "rating", "score"], "'rating', 'score' among .* could each be the value"),
    "one value twice": (
        {},
        ["user", "item", "rating", "rating"],
        "Column 'rating' occurs 2 times; the columns are .*; rename one",
    ),
    "missing": (
        {"value": "stars"},
        ["user", "item"],
        "There is no column 'stars' to use as value; the columns are 'user', ",
    ),
    "same": ({"user": "id", "task": "id"}, ["id", "item"], "Column 'id' cannot be both user and item"),
}


@pytest.mark.parametrize(("choices", "names", "sentence"), NAMES_REFUSED.values(), ids=NAMES_REFUSED)
def test_names_that_cannot_be_settled_are_listed(choices, names, sentence):
    with pytest.raises(InputError, match=sentence):
        Interactions.from_frame(pa.Table.from_arrays([pa.array([1, 2])] * len(names), names=names), **choices)


@pytest.mark.parametrize(
    "names",
    [
        ("Kunden-Nr", "Artikel", "Bewertung", "Zeitstempel"),
        ("utilisateur", "produit", "évaluation", "horodatage"),
        ("usuario", "artículo", "calificación", "timestamp"),
    ],
)
def test_german_french_and_spanish_names_are_guessed(names):
    frame = pa.table(dict(zip(names, ([3, 4], [1, 2], [1.0, 2.0], [5, 6]), strict=True)))
    assert Interactions.from_frame(frame) == Interactions.from_arrays([3, 4], [1, 2], [1.0, 2.0], [5, 6])


# -- files --


@pytest.mark.parametrize("written", [("true", "false", "true"), ("True", "False", "TRUE")])
def test_truth_values_in_words_are_1_and_0_as_in_a_parquet_file(tmp_path, written):
    truths = pa.table({"user": ["a", "b", "c"], "item": ["x", "y", "x"], "rating": [True, False, True]})
    lines = [f"{user},{item},{word}" for user, item, word in zip("abc", "xyx", written, strict=True)]
    (tmp_path / "words.csv").write_text("\n".join(["user,item,rating", *lines]))
    pyarrow.parquet.write_table(truths, tmp_path / "truths.parquet")
    found = Interactions.read(tmp_path / "words.csv")
    assert found == Interactions.read(tmp_path / "truths.parquet")
    assert found.values.tolist() == [1.0, 0.0, 1.0]


def test_a_truth_value_among_numbers_is_refused(tmp_path):
    (tmp_path / "mixed.csv").write_text("user,item,rating\na,x,4\nb,y,true\n")
    with pytest.raises(InputError, match="Column 'rating' holds 'true' in row 2"):
        Interactions.read(tmp_path / "mixed.csv")


def test_a_zip_archive_is_called_so(tmp_path):
    with zipfile.ZipFile(tmp_path / "ratings.zip", "w") as archive:
        archive.writestr("ratings.csv", "user,item,rating\na,x,4\nb,y,3\n")
    with pytest.raises(InputError, match=r"ratings\.zip: This is a ZIP archive .*; unpack it"):
        Interactions.read(tmp_path / "ratings.zip")


def test_a_csv_file_and_a_parquet_file_give_the_same_data(tmp_path):
    pyarrow.csv.write_csv(pa.table(COLUMNS), tmp_path / "ratings.csv")
    pyarrow.parquet.write_table(pa.table(COLUMNS), tmp_path / "ratings.parquet", row_group_size=1)
    assert Interactions.read(tmp_path / "ratings.csv") == EXPECTED
    assert Interactions.read(str(tmp_path / "ratings.parquet")) == EXPECTED


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::"])
def test_any_usual_separator_is_seen(tmp_path, separator):
    text = HEADER + "3,10,4,900\n1,10,2.5,100\n3,20,5,300\n2,30,1,200\n"
    assert Interactions.read(write(tmp_path, text.replace(",", separator))) == EXPECTED


def test_the_movielens_layout_is_read_with_given_names(tmp_path):
    path = write(tmp_path, "3::10::4::900\n1::10::2.5::100\n3::20::5::300\n2::30::1::200\n", "ratings.dat")
    assert Interactions.read(path, columns=NAMES) == EXPECTED
    assert "holds numbers, not column names; name the columns with columns=" in refused(path)


@given(st.integers(1, 40))
@settings(max_examples=40)
def test_a_long_separator_is_replaced_wherever_reads_end(size):
    raw = b"1::2:::3::4:5\n:" * 5
    stream = text_streams._Replacing(pa.BufferReader(raw), b"::")
    pieces = list(iter(lambda: stream.read(size), b""))
    assert b"".join(pieces) == raw.replace(b"::", b"\x1f")
    assert max(map(len, pieces)) <= size + 1


def test_a_compressed_file_is_read(tmp_path):
    path = tmp_path / "ratings.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "3,10,4,900\n1,10,2.5,100\n3,20,5,300\n2,30,1,200\n").encode()))
    assert Interactions.read(path) == EXPECTED


def test_a_file_may_begin_with_a_byte_order_mark_and_hold_quotes_and_empty_lines(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_bytes(b'\xef\xbb\xbf"user","item"\r\n"a, b",1\r\n\r\nc,2\r\n')
    assert Interactions.read(path) == Interactions.from_arrays(["a, b", "c"], [1, 2])


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_line_in_which_excel_notes_the_separator_is_passed_over(tmp_path, mark):
    path = tmp_path / "ratings.csv"
    path.write_bytes(mark + b"sep=;\r\nuser;item;rating\r\na;1;4,5\r\nc;2;3\r\n")
    expected = Interactions.from_arrays(["a", "c"], [1, 2], [4.5, 3.0])
    assert Interactions.read(path) == expected
    path.write_bytes(mark + b"sep=;\r\na;1;4,5\r\nc;2;3\r\n")
    assert Interactions.read(path, columns=["user", "item", "rating"]) == expected


def test_ids_that_stop_being_integers_far_down_are_text_throughout(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 64)
    rows = [f"{user},{task}" for user in range(50) for task in range(3)]
    path = write(tmp_path, "user,item\n" + "\n".join(rows) + "\nguest,1\n7,last\n")
    data = Interactions.read(path)
    assert data.user_ids.holds_text
    assert data.task_ids.holds_text
    assert data.n_observations == 152
    assert data.task_ids.id_of(int(data.tasks[data.users == data.user_ids.code_of("7")][-1])) == "last"


TEXT_REFUSED = {
    "text value": ("1,2,3.5,9\n2,2,good,8\n", "Column 'rating' holds 'good' in row 2 .* expected a number"),
    "NaN": ("1,2,3.5,9\n2,2,NaN,8\n", "Column 'rating' holds nan in row 2"),
    "infinity": ("1,2,-inf,9\n2,2,1,8\n", "Column 'rating' holds -inf in row 1"),
    "overflow": ("1,2,1e39,9\n2,2,1,8\n", r"Column 'rating' holds 1e\+39 in row 1"),
    "missing value": ("1,2,3.5,9\n2,2,,8\n", "Column 'rating' is empty in row 2"),
    "missing user": ("1,2,3.5,9\n,2,1,8\n", "Column 'userId' is empty in row 2"),
    "text time": ("1,2,3.5,9\n2,2,1,noon\n", "Column 'timestamp' holds 'noon' in row 2 .* a time"),
    "short row": ("1,2,3.5,9\n2,2,1\n", r"Row 2 .* has 3 columns where 4 were expected: '2,2,1'"),
    "long row": ("1,2,3.5,9\n2,2,1,8,7\n", "Row 2 .* has 5 columns where 4 were expected"),
    "no rows": ("", "There are no rows; expected some in columns userId, movieId, rating, timestamp"),
    "one user": ("1,2,3.5,9\n1,3,1,8\n", "Column 'userId' holds the same user 1 in every row"),
    "repeated": ("1,2,3.5,9\n2,2,1,8\n1,2,4,7\n", "User 1 has item 2 in row 1 and again in row 3"),
}


@pytest.mark.parametrize(("rows", "sentence"), TEXT_REFUSED.values(), ids=TEXT_REFUSED)
def test_a_text_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, rows, sentence):
    with pytest.raises(InputError, match=f"^ratings.csv: {sentence}"):
        Interactions.read(write(tmp_path, HEADER + rows))


@pytest.mark.parametrize("bad", ["7,20,good,1", "7,20,nan,1", "7,20,,1", "7,20,1", "0,0,1,1", ",1,1,1"])
def test_the_row_is_right_in_any_block_of_a_large_file(tmp_path, monkeypatch, bad):
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 100)
    rows = [f"{user},{task},1,1" for user in range(10) for task in range(20)]
    path = write(tmp_path, HEADER + "\n".join([*rows[:150], bad, *rows[150:]]) + "\n")
    assert "ow 151 " in refused(path)


def test_an_empty_or_a_missing_file_is_refused(tmp_path):
    assert refused(write(tmp_path, "")) == "ratings.csv: The file is empty."
    assert "There is no file" in refused(tmp_path / "nothing.csv")


def test_a_binary_file_is_refused_without_showing_its_bytes(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_bytes(b"\x06\xb77,r\x02\xff\n\x01,\xfe\n")
    with pytest.raises(InputError, match=r"^ratings\.csv: The file is not text in UTF-8"):
        Interactions.read(path)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = tmp_path / "ratings.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    assert refused(path).startswith("ratings.parquet: The Parquet file cannot be read: ")


def test_a_parquet_row_is_counted_over_row_groups(tmp_path):
    values = np.ones(100)
    values[77] = np.nan
    table = pa.table({"user": range(100), "item": range(100), "rating": values})
    pyarrow.parquet.write_table(table, tmp_path / "r.parquet", row_group_size=10)
    assert "Column 'rating' holds nan in row 78 " in refused(tmp_path / "r.parquet")


def test_a_public_list_goes_with_a_file(tmp_path):
    path = write(tmp_path, "user,item\n1,b\n2,a\n")
    assert Interactions.read(path, task_ids=["a", "b", "c"]).n_tasks == 3
    assert "Column 'item' holds 'b' in row 1 " in refused(path, task_ids=["a", "c"])


ids = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9))
words = st.text(st.characters(codec="utf-8", exclude_characters='",\r\n\0 ', exclude_categories=["Cs"]), min_size=1)


@given(st.sets(st.tuples(words, ids), min_size=2, max_size=20).filter(lambda rows: len({u for u, _ in rows}) > 1))
@settings(max_examples=50, deadline=None)
def test_any_ids_survive_a_frame(rows):
    users, tasks = ([*column] for column in zip(*sorted(rows), strict=True))
    expected = Interactions.from_arrays(users, np.array(tasks, np.int64))
    assert Interactions.from_frame(pa.table({"user": users, "item": pa.array(tasks, pa.int64())})) == expected


# -- real data, where it is at hand --


def data_folder() -> Path:
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("APPORTION_DATA", beside))


def test_movielens_1m_is_read_whole():
    path = data_folder() / "ml-1m" / "ratings.parquet"
    if not path.is_file():
        pytest.skip(f"MovieLens 1M is not at {path}; set APPORTION_DATA to a folder that holds ml-1m/")
    data = Interactions.read(path)
    assert (data.n_observations, data.n_users, data.n_tasks) == (1_000_209, 6_040, 3_706)
    assert set(np.unique(data.values).tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_a_stand_in_of_the_movielens_layout_is_read_whole(tmp_path):
    rng = np.random.default_rng(5)
    pairs = rng.choice(604 * 370, size=20_000, replace=False)
    users, movies, stars = pairs // 370 + 1, pairs % 370 + 1, rng.integers(1, 6, 20_000)
    table = pa.table({"UserID": users, "MovieID": movies, "Rating": stars, "Timestamp": 978_300_000 + pairs})
    pyarrow.parquet.write_table(table, tmp_path / "ratings.parquet", row_group_size=3_000)
    lines = zip(*(column.to_pylist() for column in table.columns), strict=True)
    write(tmp_path, "".join("::".join(map(str, line)) + "\n" for line in lines), "ratings.dat")
    from_parquet = Interactions.read(tmp_path / "ratings.parquet")
    assert from_parquet.n_observations == 20_000
    assert from_parquet.n_users == len(np.unique(users))
    assert from_parquet == Interactions.read(tmp_path / "ratings.dat", columns=NAMES)


def test_texts_of_a_dictionary_that_no_row_has_are_no_ids(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    users = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.int8()), pa.array(["ann", "nobody", "bob", "bob"]))
    items = pa.array(["x", "y", "y"])
    table = pa.table({"user": users, "item": items})
    parquet.write_table(table, tmp_path / "data.parquet")
    for data in (Interactions.from_frame(table), Interactions.read(tmp_path / "data.parquet")):
        assert list(data.user_ids) == ["ann", "bob"]
        assert data.users.tolist() == [0, 1, 1]
        assert data.tasks.tolist() == [1, 0, 1]


def test_a_malformed_row_far_down_a_file_is_named_by_its_number(tmp_path):
    """Several threads read the file; the number is found by reading it once more, in order."""
    lines = ["user,item,rating", *(f"u{k % 900},i{k},3" for k in range(400_000))]
    lines[350_000] += ",4"
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"Row 350000 .* has 4 columns where 3 were expected"):
        Interactions.read(tmp_path / "data.csv")


def test_numbers_with_a_decimal_comma_are_read_and_what_may_be_thousands_is_refused(tmp_path):
    path = tmp_path / "stars.csv"
    path.write_text("user;item;rating\na;x;4,5\na;y;3\nb;x;1,25\n", encoding="utf-8-sig")
    assert sorted(Interactions.read(path).values.tolist()) == [1.25, 3.0, 4.5]
    path.write_text("user;item;rating\na;x;4,500\na;y;3\nb;x;1,5\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"holds '4,500'.* without a comma: three digits after a comma may be"):
        Interactions.read(path)


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path):
    for name, said in (
        ("a.parquet", "parquet"),
        ("a.feather", "Arrow"),
        ("a.duckdb", "DuckDB"),
        ("a.sqlite", "SQLite"),
    ):
        (tmp_path / name).write_text("user,item\n1,2\n2,2\n")
        with pytest.raises(
            InputError, match=f"{name}: The file is not in the format {said}, although its name says so"
        ):
            Interactions.read(tmp_path / name)


def test_truth_values_of_json_are_numbers(tmp_path):
    lines = [f'{{"user": "u{k % 3}", "item": "i{k}", "rating": {str(k % 2 == 0).lower()}}}' for k in range(6)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert Interactions.read(tmp_path / "a.jsonl").values.tolist() == [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
