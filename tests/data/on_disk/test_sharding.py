"""Tables become a folder of users: all rows once, users whole, and the work goes on where it was stopped."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from apportion.data import Interactions
from apportion.data.on_disk import FolderManifest, UserFolder, sharding, staging
from apportion.data.on_disk.sharding import NamedSource, make_user_folder
from apportion.data.on_disk.staging import ShardColumns
from apportion.data.sources import open_table
from apportion.data.tables import read_table
from apportion.errors import InputError

from strategies import random_interactions

RATINGS = ShardColumns("user", "item", {"rating": "number"})
GOLDEN = Path(__file__).with_name("manifest_format_1.json")


def table_of(data, texts=False):
    """Rows of observations in no order; ids as text if asked for."""
    order = np.random.default_rng(0).permutation(data.n_observations)
    users, items = (data.user_ids.ids[data.users], data.task_ids.ids[data.tasks])
    if texts:
        users, items = [f"user {u}" for u in users], [f"ö{i}" for i in items]
    columns = {"user": pa.array(users), "item": pa.array(items), "rating": pa.array(data.values.astype(float))}
    return pa.table(columns).take(order)


def sources(*paths):
    return [NamedSource(path.name, "as written", open_table(path)) for path in paths]


def written(table, folder):
    """Half of the rows as CSV, half as Parquet, and all of them as one CSV to compare with."""
    half = table.num_rows // 2
    pyarrow.csv.write_csv(table.slice(0, half), folder / "a.csv")
    pyarrow.parquet.write_table(table.slice(half), folder / "b.parquet")
    pyarrow.csv.write_csv(table, folder / "all.csv")
    return sources(folder / "a.csv", folder / "b.parquet")


@pytest.mark.parametrize("texts", [False, True])
def test_a_folder_holds_the_rows_of_all_files(texts, tmp_path):
    made = make_user_folder(
        written(table_of(random_interactions(1, n_users=50), texts), tmp_path),
        RATINGS, tmp_path / "users", rows_of_a_shard=20,
    )  # fmt: skip
    assert len(made.shards) > 2
    assert Interactions.read(tmp_path / "users") == Interactions.read(tmp_path / "all.csv")
    assert sum(part.n_rows for part in UserFolder.open(tmp_path / "users").as_users.parts()) == made.n_rows


def test_ids_that_are_numbers_in_one_file_and_text_in_another_are_texts(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n7,1\n8,2\n")
    (tmp_path / "b.csv").write_text("user,item\n07,1\n8,x\n")
    make_user_folder(sources(tmp_path / "a.csv", tmp_path / "b.csv"), ShardColumns("user", "item", {}), tmp_path / "u")
    data = Interactions.read(tmp_path / "u")
    assert list(data.user_ids) == ["07", "7", "8"]
    assert list(data.task_ids) == ["1", "2", "x"]


@pytest.mark.parametrize("column", ["user", "item"])
@pytest.mark.parametrize("first", [0, 1])
def test_ids_of_two_kinds_in_files_with_a_schema_are_refused(column, first, tmp_path):
    """Text in one user's file would make text of everybody's integers, and 7 and "7" one id."""
    rows = {"user": pa.array([1, 1, 2, 2]), "item": pa.array([7, 8, 7, 9]), "rating": pa.array([1.0, 2.0, 3.0, 4.0])}
    pa.parquet.write_table(pa.table(rows), tmp_path / "a.parquet")
    odd = {"user": pa.array([3]), "item": pa.array([7]), "rating": pa.array([5.0]), column: pa.array(["7"])}
    pa.parquet.write_table(pa.table(odd), tmp_path / "b.parquet")
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(InputError, match=f"'{column}' holds text in b.parquet and integers in a.parquet"):
        make_user_folder(sources(paths[first], paths[1 - first]), RATINGS, tmp_path / "users")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_rows_without_items_keep_their_order(tmp_path):
    (tmp_path / "a.csv").write_text("user,cost,ward\nann,3,x\nbob,1,y\nann,2,z\n")
    columns = ShardColumns("user", None, {"cost": "number", "ward": "text"})
    make_user_folder(sources(tmp_path / "a.csv"), columns, tmp_path / "u")
    table = read_table(tmp_path / "u", user="user", columns={"cost": "number", "ward": "text"})
    assert sorted(zip(table.users.codes.tolist(), table.numbers["cost"].tolist(), strict=True)) == [
        (0, 2),
        (0, 3),
        (1, 1),
    ]
    assert table.numbers["cost"][table.users.codes == 0].tolist() == [3, 2]


def test_a_pair_in_two_files_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nann,1\nbob,2\n")
    (tmp_path / "b.csv").write_text("user,item\nann,1\n")
    with pytest.raises(InputError, match=r"User 'ann' has item 1 in more than one row.*--query with GROUP BY"):
        make_user_folder(
            sources(tmp_path / "a.csv", tmp_path / "b.csv"), ShardColumns("user", "item", {}), tmp_path / "u"
        )
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [("user,item,rating\nann,1,x\n", "rating"), ("user,item\nann,1\n", "rating"), ("user,item,rating\n,1,3\n", "user")],
)
def test_a_bad_file_is_named(text, said, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=rf"a\.csv: .*{said}"):
        make_user_folder(sources(tmp_path / "a.csv"), RATINGS, tmp_path / "u")
    assert not (tmp_path / "u").exists()


@pytest.mark.parametrize("texts", [False, True])
def test_rows_that_are_sorted_a_bucket_at_a_time_make_the_same_folder(texts, tmp_path, monkeypatch):
    made_of = written(table_of(random_interactions(3, n_users=60), texts), tmp_path)
    make_user_folder(made_of, RATINGS, tmp_path / "at-once", rows_of_a_shard=20)
    monkeypatch.setattr(sharding, "_OF_MEMORY", 1 << 40)  # a bucket is more than fits
    monkeypatch.setattr(staging, "_BYTES_OF_A_WINDOW", 500)
    monkeypatch.setattr(staging, "_ROWS_OF_A_GROUP", 5)
    make_user_folder(made_of, RATINGS, tmp_path / "by-bucket", rows_of_a_shard=20)
    for path in (tmp_path / "at-once").iterdir():
        assert (tmp_path / "by-bucket" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("texts", [False, True])
def test_a_reader_of_one_bucket_of_a_staged_file_needs_few_of_its_row_groups(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_ROWS_OF_A_GROUP", 10)
    pyarrow.parquet.write_table(table_of(random_interactions(4, n_users=200), texts), tmp_path / "a.parquet")
    (staged,) = staging.stage(open_table(tmp_path / "a.parquet"), 0, RATINGS, tmp_path)
    groups = pyarrow.parquet.ParquetFile(tmp_path / staged.file).metadata
    found = [groups.row_group(k).column(0).statistics for k in range(groups.num_row_groups)]
    holding = [sum(each.min <= bucket <= each.max for each in found) for bucket in range(0, 1 << staging.BITS, 1 << 18)]
    assert len(found) > 20
    assert max(holding) <= 3


class Stopped(Exception):
    """The program was stopped."""


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_stopped_work_goes_on_where_it_was(steps, tmp_path, monkeypatch):
    made_of = written(table_of(random_interactions(2, n_users=40)), tmp_path)
    make_user_folder(made_of, RATINGS, tmp_path / "whole", rows_of_a_shard=20)
    left, write = [steps], sharding._Journal.write

    def until_stopped(journal, folder):
        write(journal, folder)
        left[0] -= 1
        if not left[0]:
            raise Stopped

    monkeypatch.setattr(sharding._Journal, "write", until_stopped)
    with pytest.raises(Stopped):
        make_user_folder(made_of, RATINGS, tmp_path / "users", rows_of_a_shard=20)
    assert not (tmp_path / "users").exists()
    staged, stage = [], sharding.stage
    monkeypatch.setattr(sharding, "stage", lambda *given: staged.append(given[1]) or stage(*given))
    make_user_folder(made_of, RATINGS, tmp_path / "users", rows_of_a_shard=20)
    assert staged == list(range(min(steps, 2), 2))  # sources that were staged are not read again
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert sorted(path.name for path in (tmp_path / "users").iterdir()) == files
    assert FolderManifest.read(tmp_path / "users") == FolderManifest.read(tmp_path / "whole")


def test_other_sources_do_not_go_on_with_the_work_of_these(tmp_path):
    made_of = written(table_of(random_interactions(2, n_users=40)), tmp_path)
    (tmp_path / ".users.partial").mkdir()
    (tmp_path / ".users.partial" / "journal.json").write_text(
        json.dumps({"mark": "of other files", "staged": [[], []], "shards": []})
    )
    make_user_folder(made_of, RATINGS, tmp_path / "users")
    assert Interactions.read(tmp_path / "users") == Interactions.read(tmp_path / "all.csv")


def test_the_format_is_that_of_the_stored_manifest(tmp_path):
    (tmp_path / "a.csv").write_text("user,item,rating\nann,Alien,4\nbob,Brazil,3\nann,Brazil,5\ncem,Alien,1\n")
    make_user_folder(sources(tmp_path / "a.csv"), RATINGS, tmp_path / "u", rows_of_a_shard=2)
    assert (tmp_path / "u" / "manifest.json").read_text() == GOLDEN.read_text()


def test_two_processes_do_not_make_one_folder(tmp_path):
    tables, seen = written(table_of(random_interactions(1, n_users=50)), tmp_path), []

    def another(*_):
        with pytest.raises(InputError, match="Another process is making"):
            make_user_folder(tables, RATINGS, tmp_path / "users")
        seen.append(1)

    made = make_user_folder(tables, RATINGS, tmp_path / "users", rows_of_a_shard=20, progress=another)
    assert len(seen) > 2
    assert FolderManifest.read(tmp_path / "users") == made
    assert Interactions.read(tmp_path / "users") == Interactions.read(tmp_path / "all.csv")


@pytest.mark.parametrize("when", ["before its folder is opened", "before its folder is locked", "while it sorts"])
def test_a_process_that_comes_second_is_told_that_the_folder_exists(when, tmp_path, monkeypatch):
    """The first one is quicker between any two steps of the second."""
    tables, target = written(table_of(random_interactions(1, n_users=50)), tmp_path), tmp_path / "users"

    def first_one_ends(*_):
        monkeypatch.undo()
        (tmp_path / ".users.partial").rename(tmp_path / "aside")
        make_user_folder(tables, RATINGS, target)
        if when == "while it sorts":
            (tmp_path / "aside").rename(tmp_path / ".users.partial")

    def first(called):
        def then(*arguments):
            first_one_ends()
            return called(*arguments)

        return then

    if when == "before its folder is opened":
        monkeypatch.setattr(sharding.os, "open", first(sharding.os.open))
    elif when == "before its folder is locked":
        monkeypatch.setattr(fcntl, "flock", first(fcntl.flock))
    else:
        monkeypatch.setattr(sharding.os, "rename", first(sharding.os.rename))
    with pytest.raises(InputError, match=r"'.*users' exists already; name a new folder"):
        make_user_folder(tables, RATINGS, target)
    assert Interactions.read(target) == Interactions.read(tmp_path / "all.csv")
    assert not (tmp_path / ".users.partial").exists()
