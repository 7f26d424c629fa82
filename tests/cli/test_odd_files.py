"""Files that ordinary programs write and nobody plans for: each is read as it stands, or refused in one sentence."""

from __future__ import annotations

import gzip
import json
import os
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from apportion.cli.item_files import read_item_list
from apportion.cli.loading import load_data
from apportion.cli.options import DataOptions

ROWS = [(user, item, 1 + (user + item) % 5) for user in range(6) for item in range(4)]
PLAIN = "user,item,rating\n" + "".join(f"{user},{item},{value}\n" for user, item, value in ROWS)


def loaded(folder, content, name="data.csv", **options):
    """Write a file and load it as the commands do."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_data(folder / name, DataOptions(items="from-data", **options))


def same(data, values=tuple(float(row[2]) for row in ROWS)):
    """Whether the values are those of the rows, in their order."""
    return data.values.tolist() == list(values) and (data.n_users, data.n_tasks) == (6, 4)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines that end in a carriage return alone", PLAIN.replace("\n", "\r")),
        ("the same after empty lines", "\r\r" + PLAIN.replace("\n", "\r")),
        ("gzip under a plain name", gzip.compress(PLAIN.encode())),
        ("a name of a column with a line end", PLAIN.replace("rating\n", '"rating"\n').replace("item", '"item\n(id)"')),
        ("a name of a column with the separator", PLAIN.replace("item", '"item, code"')),
        (
            "names longer than the first 64 KiB",
            PLAIN.replace("rating\n", "rating," + ",".join(f"{k:06d}x" for k in range(12_000)) + "\n", 1).replace(
                "\n", "," * 12_000 + "\n"
            ).replace("x" + "," * 12_000, "x", 1),
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_only_odd_is_read_as_it_stands(folder, name, content):
    item = {"the separator": "item, code", "a line end": "item\n(id)"}
    given = next((each for words, each in item.items() if name.endswith(words)), None)
    assert same(loaded(folder, content, item=given).data)


def test_a_name_with_the_ending_of_gzip_may_hold_plain_text(folder):
    assert same(loaded(folder, PLAIN, name="data.csv.gz").data)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PLAIN + '5,"7,3\n' + PLAIN * 200, "A quotation mark is not closed, near '\"7,3"),
        (json.dumps([{"user": 1, "item": 2}]).encode(), "`jq -c '.[]'` writes JSON lines"),
        (b'{\n "user": 1}', "one object over several lines"),
        (b'{"user": 1, "item": 2}\n{"user": "x", "item": 2}\n', "in line 2"),
        (b"\xfd7zXZ\x00" + bytes(100), "compressed in xz"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(refused, folder, content, said):
    name = "data.csv" if isinstance(content, str) or content[:1] == b"\xfd" else "data.json"
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    sentence = refused("fit", name, "--epsilon", 1)
    assert said in sentence
    assert sentence.startswith(f"Error: {name}: ")
    assert len(sentence) < 400


def test_a_truncated_file_is_named(refused, folder):
    (folder / "data.csv.gz").write_bytes(gzip.compress(PLAIN.encode())[:60])
    assert "data.csv.gz: The file cannot be read" in refused("fit", "data.csv.gz", "--epsilon", 1)


def test_a_line_of_names_among_clicks_is_no_click(refused, folder):
    clicks = "user,item\n" + "".join(f"{user},{item}\n" for user, item, _ in ROWS)
    (folder / "joined.csv").write_text(clicks * 2)
    assert "Row 25 (counting data rows from 1) holds the column names again" in refused(
        "fit", "joined.csv", "--epsilon", 1
    )
    (folder / "one.csv").write_text(clicks)
    for names in ("user,item", "a,b"):
        sentence = refused("fit", "one.csv", "--epsilon", 1, "--columns", names, "--user", names.split(",")[0])
        assert "'user,item' holds the names of the columns, not data; leave out --columns" in sentence


@pytest.mark.parametrize(
    ("option", "said"), [("--columns", "Names of columns are given for text"), ("--table", "Only a database has")]
)
def test_an_option_that_a_format_does_not_know_is_refused(refused, folder, option, said):
    parquet.write_table(pa.table({"user": [1, 2], "item": [1, 2], "rating": [1, 2]}), folder / "data.parquet")
    assert said in refused("fit", "data.parquet", "--epsilon", 1, option, "a,b,c")


def test_columns_may_be_named_as_they_are(folder):
    parquet.write_table(pa.table({"user": [1, 2], "item": [1, 2], "rating": [1, 2]}), folder / "data.parquet")
    data = load_data(folder / "data.parquet", DataOptions(items="from-data", columns="user,item,rating")).data
    assert data.values.tolist() == [1, 2]


def test_a_pipe_is_called_one(refused, folder):
    os.mkfifo(folder / "data.csv")
    assert "pipe it to standard input, as `-`" in refused("fit", "data.csv", "--epsilon", 1)


def test_ids_that_look_alike_are_said_to_differ(folder):
    names = ("é", "e\u0301")
    lines = [f"{user} ,{names[item]},3\n{user},é,4\n" for user in range(3) for item in range(2)]
    remarks = " ".join(loaded(folder, "user,item,rating\n" + "".join(lines)).remarks)
    assert "3 user ids differ from another by spaces or Unicode form alone" in remarks
    assert "1 item id differs from another" in remarks


def test_an_unsigned_id_beyond_64_bits_signed_says_what_fits(refused, folder):
    table = pa.table({"user": pa.array([2**63, 2**63 + 1], pa.uint64()), "item": [1, 2], "rating": [1, 2]})
    parquet.write_table(table, folder / "data.parquet")
    assert "an integer below 2**63 or text" in refused("fit", "data.parquet", "--epsilon", 1)


@pytest.mark.parametrize("ids", [["a\nb", "c\u2028d", "e"], ["p0", "p1"]])
def test_a_list_of_items_keeps_every_character(folder, ids):
    lines = "".join(f'"{each}"\n' for each in ids)
    (folder / "items.csv").write_text("Produkt\n" + lines, newline="")
    (folder / "items.csv.gz").write_bytes(gzip.compress(("item\n" + lines).encode()))
    assert read_item_list(folder / "items.csv") == ids
    assert read_item_list(folder / "items.csv.gz") == ids


def test_a_repeated_item_is_named_with_the_file_of_the_list(refused, folder):
    (folder / "data.csv").write_text(PLAIN)
    (folder / "items.csv").write_text("item\n0\n1\n2\n3\n1\n")
    assert "items.csv: the list has '1' more than once" in refused(
        "fit", "data.csv", "--items", "items.csv", "--epsilon", 1
    )


@pytest.mark.parametrize(
    ("scale", "words"),
    [((1e-310, 5e-310), "give the values in another unit"), ((1e9, 1e9 + 1), "that float32 can divide finely")],
)
def test_a_scale_too_narrow_for_arithmetic_is_refused(refused, folder, scale, words):
    lines = [f"{user},{item},{scale[item % 2]!r}\n" for user, item, _ in ROWS]
    (folder / "data.csv").write_text("user,item,rating\n" + "".join(lines))
    assert words in refused("fit", "data.csv", "--epsilon", 1, "--scale", *scale)


@pytest.mark.parametrize(
    "times",
    [
        ["2026-01-01T00:00:00.900", "2026-01-01T00:00:00.100"],
        ["2026-01-01T00:00:00.000002Z", "2026-01-01T00:00:00.000001Z"],
        ["1969-12-31T23:59:59.900", "1969-12-31T23:59:59.100"],
        [10.9, 10.1],
    ],
)
@pytest.mark.parametrize("kind", ["text", "Arrow"])
def test_the_last_row_is_the_last_also_within_a_second(folder, times, kind):
    if kind == "text":
        lines = "".join(f"a,x,{value},{time}\n" for value, time in zip((1, 2), times, strict=True))
        found = loaded(folder, f"user,item,rating,timestamp\n{lines}b,x,3,{times[0]}\n").data
    else:
        written = [time if isinstance(time, float) else datetime.fromisoformat(time) for time in (*times, times[0])]
        table = pa.table({"user": ["a", "a", "b"], "item": ["x"] * 3, "rating": [1, 2, 3], "timestamp": written})
        parquet.write_table(table, folder / "data.parquet")
        found = load_data(folder / "data.parquet", DataOptions(items="from-data")).data
    assert found.values.tolist() == [1, 3]
