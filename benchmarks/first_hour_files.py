"""The files of a new user's first hour: how each is written, what is asked, and how it must end."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import dataset, feather, parquet

Row = tuple[Any, ...]
REFUSED = 2


@dataclass(frozen=True)
class Scene:
    """One try of a new user.

    Attributes:
        name: what it is.
        write: puts files into an empty folder.
        arguments: of `apportion fit`, after the options that all have; the data first.
        code: the exit code.
        words: what the terminal must say.
    """

    name: str
    write: Callable[[Path], object]
    arguments: tuple[str, ...]
    code: int = 0
    words: str = ""


def _rows() -> list[Row]:
    rng = np.random.default_rng(5)
    pairs = [(user, int(item)) for user in range(40) for item in rng.choice(12, 6, replace=False)]
    return [(user, item, int(rng.integers(1, 6)), 1000 + k) for k, (user, item) in enumerate(pairs)]


ROWS = _rows()
NAMES = ("user", "item", "rating", "timestamp")
DATA, OTHER = "data.csv", "other.csv"


def text(
    rows: Sequence[Row] = ROWS, names: Sequence[str] = NAMES, *, by: str = ",", end: str = "\n", header: bool = True
) -> str:
    """Return rows as separated text."""
    lines = [by.join(map(str, row)) for row in ([tuple(names)] if header else []) + list(rows)]
    return end.join(lines) + end


def table(rows: Sequence[Row] = ROWS, names: Sequence[str] = NAMES) -> pa.Table:
    """Return rows as a table."""
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def put(content: str | bytes, name: str = DATA, encoding: str = "utf-8") -> Callable[[Path], object]:
    """Return what writes one file."""
    raw = content if isinstance(content, bytes) else content.encode(encoding)
    return lambda folder: (folder / name).write_bytes(raw)


def both(*writers: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return what writes several files."""
    return lambda folder: [write(folder) for write in writers]


def renamed(*names: str) -> Callable[[Path], object]:
    """Return what writes the rows under other column names."""
    return put(text(names=names))


def with_ids(change: Callable[[int], Any]) -> list[Row]:
    """Return the rows with other item ids."""
    return [(user, change(item), *rest) for user, item, *rest in ROWS]


def _sqlite(folder: Path) -> None:
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute("CREATE TABLE ratings (user INTEGER, item INTEGER, rating REAL, timestamp INTEGER)")
        connection.execute("CREATE TABLE notes (a)")
        connection.executemany("INSERT INTO ratings VALUES (?, ?, ?, ?)", ROWS)
    connection.close()


def _duckdb(folder: Path) -> None:
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.register("given", table())
        connection.execute("CREATE TABLE ratings AS SELECT * FROM given")


def _parts(folder: Path) -> None:
    (folder / "parts").mkdir()
    for part in range(3):
        parquet.write_table(table(ROWS[part::3]), folder / "parts" / f"part-{part}.parquet")


def _hive(folder: Path) -> None:
    hive = dataset.partitioning(pa.schema([("part", pa.int64())]), flavor="hive")
    rows = table().append_column("part", pa.array([k % 2 for k in range(len(ROWS))]))
    dataset.write_dataset(rows, folder / "hive", format="parquet", partitioning=hive)


def _empty_folder(folder: Path) -> None:
    (folder / "parts").mkdir()


CATALOGUE = put("item\n" + "".join(f"{item}\n" for item in range(12)), "items.csv")
SHORT_LIST = put("item\n" + "".join(f"{item}\n" for item in range(6)), "items.csv")
LINES = "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in ROWS)
ALL = (DATA, "--items", "from-data")
NAMED = ("--user", "who", "--item", "what", "--value", "much")
LISTED = (DATA, "--items", "items.csv")


def taken(name: str, write: Callable[[Path], object], *arguments: str, words: str = "") -> Scene:
    """Return a scene that ends well."""
    return Scene(name, write, arguments or ALL, words=words)


def refused(name: str, write: Callable[[Path], object], words: str, *arguments: str) -> Scene:
    """Return a scene that ends in one sentence."""
    return Scene(name, write, arguments or ALL, REFUSED, words)


PLAIN = put(text())
CLICKS = text([row[:2] for row in ROWS], NAMES[:2])
PACKED = gzip.compress(text().encode())
IN_PARQUET = ("data.parquet", *ALL[1:])


def _parquet(folder: Path) -> None:
    parquet.write_table(table(), folder / "data.parquet")


SCENES: tuple[Scene, ...] = (
    taken("CSV", PLAIN),
    taken("CSV of clicks", put(CLICKS), words="Treating the rows as clicks"),
    taken("TSV", put(text(by="\t"))),
    taken("semicolons", put(text(by=";"))),
    taken("bars", put(text(by="|"))),
    taken("spaces", put(text(by="  "))),
    taken("MovieLens .dat", put(text(by="::", header=False)), *ALL, "--columns", ",".join(NAMES)),
    taken("lines of Windows", put(text(end="\r\n"))),
    taken("byte order mark", put(text(), encoding="utf-8-sig")),
    taken("empty lines first", put("\n\n" + text())),
    taken("lines of an old Mac", put(text(end="\r"))),
    taken("gzip under a plain name", put(PACKED)),
    taken(
        "a name of a column with a comma",
        renamed("user", '"item, code"', *NAMES[2:]),
        *ALL,
        "--item",
        "item, code",
    ),
    taken("gzip", put(PACKED, "data.csv.gz"), "data.csv.gz", *ALL[1:]),
    taken("bzip2", put(bz2.compress(text().encode()), "data.csv.bz2"), "data.csv.bz2", *ALL[1:]),
    taken("ids with zeros", put(text(with_ids(lambda item: f"{item:08d}")))),
    taken("ids that look like hexadecimal", put(text(with_ids(lambda item: f"0x{item:02X}")))),
    taken("ids in other scripts", put(text(with_ids(lambda item: f"本{item}é")))),
    taken("ids with quotes", put(text(with_ids(lambda item: f'"a, {item}"')))),
    taken("half stars", put(text([(*row[:2], row[2] - 0.5, 0) for row in ROWS])), *ALL, "--scale", "0.5", "4.5"),
    taken("JSON lines", put(LINES, "data.jsonl"), "data.jsonl", *ALL[1:]),
    taken("Feather", lambda f: feather.write_feather(table(), f / "data.feather"), "data.feather", *ALL[1:]),
    taken("Parquet", _parquet, *IN_PARQUET),
    taken(
        "numbers as text in Parquet",
        lambda f: parquet.write_table(table([(*row[:2], str(row[2]), row[3]) for row in ROWS]), f / "data.parquet"),
        "data.parquet",
        *ALL[1:],
    ),
    taken("folder of Parquet", _parts, "parts", *ALL[1:]),
    taken("Hive folder", _hive, "hive", *ALL[1:]),
    taken("pattern", _parts, "parts/part-*.parquet", *ALL[1:]),
    taken("several files", _parts, *(f"parts/part-{part}.parquet" for part in range(3)), *ALL[1:]),
    taken("SQLite", _sqlite, "shop.db", *ALL[1:], "--table", "ratings"),
    taken("DuckDB", _duckdb, "shop.duckdb", *ALL[1:]),
    taken("query", _duckdb, "shop.duckdb", *ALL[1:], "--table", "SELECT * FROM ratings WHERE rating > 1"),
    taken("standard input", PLAIN, "-", *ALL[1:]),
    taken("columns of a bookshop", renamed("User-ID", "ISBN", "Book-Rating", "when"), words="item = ISBN"),
    taken("columns of music", renamed("listener", "track_id", "plays", "ts"), words="item = track_id"),
    taken("columns of places", renamed("visitor", "venue_id", "stars", "time"), words="item = venue_id"),
    taken("columns of courses", renamed("student_id", "course_id", "grade", "date"), words="value = grade"),
    taken("unusual columns", renamed("who", "what", "much", "t"), *ALL, *NAMED),
    taken("repeated rows", put(text([*ROWS, *ROWS[:9]])), words="9 rows repeated"),
    taken("repeated rows, mean", put(text([*ROWS, *ROWS[:9]])), *ALL, "--repeats", "mean", words="9 rows repeated"),
    taken("empty values", put(text([*ROWS, (1, 2, "", 3), (2, 3, "NA", 4)])), words="2 rows had an empty"),
    taken("unwanted rows", put(text([*ROWS, (1, 2, 0, 3)])), *ALL, "--where", "rating > 0", words="1 row did"),
    taken("item list", both(PLAIN, CATALOGUE), *LISTED),
    taken("unlisted items left out", both(PLAIN, SHORT_LIST), *LISTED, "--unlisted", "drop", words="outside the list"),
    taken("weak guarantee", PLAIN, *ALL, "--epsilon", "50", words="no protection worth the name"),
    taken("long vectors of few items", PLAIN, *ALL, "--dimension", "1000", words="Item vectors have length"),
    refused("unlisted items", both(PLAIN, SHORT_LIST), "of the public list", *LISTED),
    refused("repeated rows refused", put(text([*ROWS, ROWS[0]])), "again in row", *ALL, "--repeats", "refuse"),
    refused("UTF-16", put(text(), encoding="utf-16"), "not text in UTF-8"),
    refused("Latin-1", put(text(with_ids(lambda item: f"é{item}")), encoding="latin-1"), "UTF-8"),
    refused("nothing in the file", put(""), "The file is empty"),
    refused("only a header", put(text([])), "no rows"),
    refused("no header", put(text(header=False)), "--columns"),
    refused("short row", put(text() + "1,2\n"), "has 2 columns where 4 were expected"),
    refused("a word as a value", put(text([*ROWS, (1, 2, "good", 3)])), "'good'"),
    refused("a value outside the scale", put(text([*ROWS, (39, 99, 7, 3)])), "outside the scale"),
    refused("one user", put(text([(1, *row[1:]) for row in ROWS[:6]])), "at least two users"),
    refused("two columns of items", renamed("user", "movie", "rating", "book"), "say which with --item"),
    refused("a JSON array", put(f"[{LINES}]", "data.json"), "one array", "data.json", *ALL[1:]),
    refused("a quotation mark that is not closed", put(text() + '1,"2,3,4\n'), "is not closed"),
    refused("names of columns among clicks", put(CLICKS * 2), "column names again"),
    refused("other names for clicks that have names", put(CLICKS), "leave out --columns", *ALL, "--columns", "a,b"),
    refused("names for Parquet", _parquet, "text files alone", *IN_PARQUET, "--columns", "a,b,c,d"),
    refused("a pipe", lambda f: os.mkfifo(f / DATA), "pipe it to standard input"),
    refused("a cut archive", put(PACKED[:200], "data.csv.gz"), "cannot be read", "data.csv.gz", *ALL[1:]),
    refused("a binary file", put(bytes(range(256)) * 9), "not text in UTF-8"),
    refused("damaged Parquet", put(b"PAR1 and nothing", "data.parquet"), "cannot be read", "data.parquet", *ALL[1:]),
    refused("an empty folder", _empty_folder, "no file of a known format", "parts", *ALL[1:]),
    refused("a database of two tables", _sqlite, "name one with --table", "shop.db", *ALL[1:]),
    refused("an aggregate", PLAIN, "one of the functions", *ALL, "--where", "count(rating) > 1"),
    refused("endless rounds", PLAIN, "at most 200", *ALL, "--rounds", "100000"),
    refused("ratings and clicks", PLAIN, "cannot be combined", *ALL, "--ratings", "--clicks"),
    refused("no delta", PLAIN, "above 1e-300", *ALL, "--delta", "0"),
    refused("no such file", lambda folder: None, "does not exist", "nowhere.csv", *ALL[1:]),
)  # fmt: skip
