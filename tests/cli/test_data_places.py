"""One data set in every format, and wherever it may be, gives one model, to the last bit."""

from __future__ import annotations

import gzip
import sqlite3

import duckdb
import numpy as np
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.dataset
import pytest
from click.testing import CliRunner

from apportion import PrivateRatingRecommender
from apportion.cli.main import program
from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.errors import InputError
from apportion.privacy import SeededNoise
from apportion.recommend import load
from benchmarks.claim import UnavailableError
from benchmarks.postgres_server import temporary_server

FIT = ("--epsilon", "8", "--seed", "3", "--dimension", "2", "--rounds", "1", "--items", "from-data")
MODEL = "model.safetensors"


@pytest.fixture(scope="module")
def table():
    """Ratings with item ids that begin with zeros, and with a repeated pair."""
    data, _ = long_tailed_ratings(60, 20, 700, rank=2, rng=np.random.default_rng(1), stars="whole")
    columns = {
        "reader_id": data.users.tolist(),
        "isbn": [f"{task:05d}" for task in data.tasks],
        "rating": data.values.tolist(),
        "timestamp": list(range(len(data.users))),
    }
    repeated = {name: [*cells, cells[0]] for name, cells in columns.items()}
    return pl.DataFrame(repeated | {"timestamp": [*columns["timestamp"], 9999]})


@pytest.fixture(scope="module")
def database(table):
    """The URL of a PostgreSQL server with the table."""
    try:
        with temporary_server() as server:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("CREATE TABLE ratings (reader_id int, isbn text, rating numeric, timestamp bigint)")
                with connection.cursor() as cursor, cursor.copy("COPY ratings FROM STDIN") as copy:
                    for row in table.iter_rows():
                        copy.write_row(row)
            yield server.url
    except UnavailableError as missing:
        pytest.skip(str(missing))


def fit(*data, options=(), stdin=None):
    done = CliRunner().invoke(program, ["fit", *map(str, data), *FIT, "--out", "m", *options], input=stdin)
    assert done.exit_code == 0, done.output
    return done


def model_of(folder, *data, **how):
    fit(*data, **how)
    return (folder / "m" / MODEL).read_bytes(), load(folder / "m").task_ids


def as_sqlite(table, path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE ratings (reader_id INTEGER, isbn TEXT, rating REAL, timestamp INTEGER)")
        connection.executemany("INSERT INTO ratings VALUES (?, ?, ?, ?)", table.iter_rows())


def as_duckdb(table, path):
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table.to_arrow())
        connection.execute("CREATE TABLE ratings AS SELECT * FROM given")


def as_hive(table, path):
    rows = table.with_columns((pl.col("timestamp") % 3).alias("part")).to_arrow()
    hive = pa.dataset.partitioning(pa.schema([("part", pa.int64())]), flavor="hive")
    pa.dataset.write_dataset(rows, path, format="parquet", partitioning=hive)


def in_parts(table, folder):
    folder.mkdir()
    for number, part in enumerate(table.iter_slices(100)):
        part.write_csv(folder / f"part-{number}.csv")


WRITERS = {
    "a.tsv": lambda table, path: table.write_csv(path, separator="\t"),
    "a.txt": lambda table, path: table.write_csv(path, separator=" "),
    "a.csv.gz": lambda table, path: path.write_bytes(gzip.compress(table.write_csv().encode())),
    "a.jsonl": lambda table, path: table.write_ndjson(path),
    "a.feather": lambda table, path: table.write_ipc(path),
    "a.arrows": lambda table, path: table.write_ipc_stream(path),
    "a.parquet": lambda table, path: table.write_parquet(path),
    "text.parquet": lambda table, path: table.with_columns(pl.col("rating").cast(pl.String)).write_parquet(path),
    "a.sqlite": as_sqlite,
    "a.duckdb": as_duckdb,
    "hive": as_hive,
    "parts": in_parts,
}


def test_every_format_gives_the_same_model_to_the_last_bit(table, folder, database):
    table.write_csv("a.csv")
    expected, items = model_of(folder, "a.csv")
    for name, write in WRITERS.items():
        write(table, folder / name)
        tensors, listed = model_of(folder, name)
        assert tensors == expected, name
        assert listed == items, name
    places = {
        "standard input": (["-"], (), (folder / "a.csv").read_bytes()),
        "packed standard input": (["-"], (), (folder / "a.csv.gz").read_bytes()),
        "pattern": (["parts/part-*.csv"], (), None),
        "several files": (sorted((folder / "parts").iterdir()), (), None),
        "PostgreSQL": ([database], ("--table", "ratings"), None),
        "query": ([database], ("--table", "SELECT * FROM ratings WHERE rating > 0"), None),
    }
    for name, (data, options, stdin) in places.items():
        assert model_of(folder, *data, options=options, stdin=stdin)[0] == expected, name


def test_a_query_is_declared_to_keep_users_apart(database):
    done = fit(database, options=("--table", "select * from ratings"))
    assert "that each row of the query is made of one user's data alone" in done.stdout


def test_frames_are_fitted_as_they_are(table):
    def fitted(data):
        estimator = PrivateRatingRecommender(
            8.0, items="from-data", noise=SeededNoise(5), random_state=0, dimension=2, rounds=1
        )
        return estimator.fit(data).model_

    unique = table.unique(["reader_id", "isbn"], keep="last", maintain_order=True)
    expected = fitted(Interactions.from_frame(unique))
    for frame in (unique, unique.lazy(), unique.to_pandas(), unique.to_arrow()):
        assert np.array_equal(fitted(frame).vectors, expected.vectors)
    with pytest.raises(InputError, match=r"Expected a frame that supports Arrow .* got builtins\.list"):
        fitted([1, 2])


def test_what_was_guessed_is_said(table):
    table.write_csv("a.csv")
    assert "Columns: user = reader_id, item = isbn, value = rating, time = timestamp." in fit("a.csv").stderr


REFUSED = {
    "no table named": (("two.sqlite",), "The database has the tables other, ratings; name one with --table."),
    "no such table": (("two.sqlite", "--table", "rating"), "The query failed: no such table: rating"),
    "no such database": (("postgresql://nobody@/x?host=/nowhere", "--table", "t"), "The query failed: "),
    "empty folder": (("empty",), "There is no file of a known format in the folder 'empty'"),
    "no match": (("nothing-*.csv",), "does not exist"),
    "different columns": (("mixed",), "b.csv has the columns a, b, but a.csv has "),
    "different formats": (("formats",), "are of different formats"),
    "an array": (("array.json",), "The file holds one array"),
    "damaged": (("damaged.feather",), "The Arrow file cannot be read"),
}


@pytest.fixture
def odd_files(table, folder):
    as_sqlite(table, folder / "two.sqlite")
    with sqlite3.connect(folder / "two.sqlite") as connection:
        connection.execute("CREATE TABLE other (a)")
    for name in ("empty", "mixed", "formats"):
        (folder / name).mkdir()
        if name != "empty":
            table.write_csv(folder / name / "a.csv")
    (folder / "mixed" / "b.csv").write_text("a,b\n1,2\n")
    table.write_parquet(folder / "formats" / "b.parquet")
    (folder / "array.json").write_text("[1, 2]\n")
    (folder / "damaged.feather").write_bytes(b"ARROW1" + b"x" * 100)


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
@pytest.mark.usefixtures("odd_files")
def test_what_cannot_be_read_is_refused_in_one_sentence(arguments, words):
    done = CliRunner().invoke(program, ["fit", *arguments, *FIT, "--out", "m"])
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_integers_in_one_part_and_text_in_another_are_refused(folder):
    (folder / "parts").mkdir()
    pl.DataFrame({"user": [1, 2], "item": [1, 2]}).write_parquet(folder / "parts" / "a.parquet")
    pl.DataFrame({"user": ["1", "2"], "item": [1, 2]}).write_parquet(folder / "parts" / "b.parquet")
    with pytest.raises(InputError, match=r"^parts: Column 'user' holds integers in some rows and text in others"):
        Interactions.read(folder / "parts")
