"""A folder of users is read shard by shard as what it was made of; one that was changed is refused."""

from __future__ import annotations

import gc
import os
import weakref
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from apportion.data import IGNORE, Vocabulary
from apportion.data.on_disk import FolderManifest, UserFolder, shard_files, user_folder
from apportion.data.on_disk.manifest import ITEMS, MANIFEST
from apportion.data.on_disk.shard_files import ITEM, KEPT
from apportion.data.synthetic import long_tailed_ratings
from apportion.errors import InputError
from apportion.privacy.contributions.votes import HeldOut
from user_folders import folder_of, write_folder

from strategies import random_interactions


@pytest.fixture
def data():
    return random_interactions(5, n_users=30)


@pytest.fixture
def folder(data, tmp_path):
    return write_folder(data, tmp_path / "users")


def rows_of(users):
    """Every row of every part, by the user's first key."""
    parts = list(users.parts())
    rows = [
        (part.keys[part.owner, 0].tolist(), part.column("tasks").tolist(), part.column("values").tolist())
        for part in parts
    ]
    return sorted(row for part in rows for row in zip(*part, strict=True))


def test_parts_are_the_users_of_memory(data, tmp_path):
    users = folder_of(data, tmp_path / "users").as_users
    assert len(list(users.parts())) > 1
    assert rows_of(users) == rows_of(data.as_users)


def test_changes_are_made_to_every_part(data, tmp_path):
    codes = np.array([3, -1, 0, 1, -1, 2, -1, -1, 4], np.int32)
    listed = Vocabulary(list("abcde"), name="task")
    there = folder_of(data, tmp_path / "users").recoded(codes, listed)
    assert rows_of(there.as_users) == rows_of(data.recoded(codes, listed).as_users)
    assert there.as_users.nobody().n_tasks == there.as_users.n_tasks == there.n_tasks == 5


@dataclass(frozen=True)
class Counted(HeldOut):
    """Counts how often it is worked out."""

    calls: list = field(default_factory=list, compare=False)

    def of(self, users):
        self.calls.append(users.n_rows)
        return super().of(users)


def test_rows_that_are_held_out_are_worked_out_once_for_each_shard_and_list_of_items(tmp_path):
    data, _ = long_tailed_ratings(800, 30, 12_000, rank=1, rng=np.random.default_rng(1))
    folder, rule = folder_of(data, tmp_path / "users"), Counted(0.1, most=1, voters=0.05)
    fewer = data.task_ids.ids[1:]
    codes = np.arange(-1, len(fewer), dtype=np.int32)
    listed = folder.recoded(codes, Vocabulary(fewer))
    for held in (folder, listed):
        expected = [rows_of(part.with_rows(~rule.of(part))) for part in held.as_users.parts()]
        assert sum(map(len, expected)) < sum(part.n_rows for part in held.as_users.parts())
        rule.calls.clear()
        kept = held.mapped(rule.kept, "held out")
        for _ in range(3):
            assert [rows_of(part) for part in kept.as_users.parts()] == expected
        assert len(rule.calls) == len(expected)


@pytest.mark.parametrize("passes", [1, 2])
def test_users_of_a_shard_leave_memory_when_nobody_holds_them(tmp_path, passes):
    data, _ = long_tailed_ratings(400, 30, 6_000, rank=1, rng=np.random.default_rng(1))
    kept = folder_of(data, tmp_path / "users", bits=3).mapped(HeldOut(0.1, most=1).kept, "held out").as_users
    gc.collect()
    gc.disable()  # memory is bounded without its help
    try:
        for _ in range(passes):
            seen = []
            for users in kept.parts():
                _ = users.by_task, users.owner
                seen.append(weakref.ref(users.column("values")))
                seen.append(weakref.ref(users))
            del users
        assert [each() for each in seen] == [None] * len(seen)
    finally:
        gc.enable()


def written_before(table, path):
    """Write a file of a folder as the first version did: every column may be null, and all but items are compressed."""
    packed = {name: "none" if name == ITEM else "zstd" for name in table.column_names}
    dictionaries = [name for name in table.column_names if name != ITEM]
    parquet.write_table(table, path, compression=packed, use_dictionary=dictionaries)


def test_a_folder_that_was_written_before_is_read(data, tmp_path, monkeypatch):
    now = UserFolder.open(write_folder(data, tmp_path / "now"))
    monkeypatch.setattr(shard_files, "write_parquet", written_before)
    before = UserFolder.open(write_folder(data, tmp_path / "before"))
    assert before.manifest == now.manifest
    for _ in range(2):
        assert rows_of(before.as_users) == rows_of(now.as_users)


def test_what_passes_read_needs_no_unpacking(folder):
    held = parquet.ParquetFile(first(folder).rows_file(folder)).metadata.row_group(0)
    assert {held.column(k).compression for k in range(held.num_columns)} == {"UNCOMPRESSED"}
    assert not any(field.nullable for field in parquet.read_schema(first(folder).rows_file(folder)))


def test_a_pass_that_reads_keys_reads_those_of_the_ids(data, folder):
    users = UserFolder.open(folder).as_users
    _ = rows_of(users)  # checks all of it
    keys = np.concatenate([part.keys for part in users.parts()])
    assert sorted(map(tuple, keys.tolist())) == sorted(map(tuple, data.as_users.keys.tolist()))


@pytest.mark.parametrize("of", ["rows", "users"])
def test_a_shard_that_is_changed_while_it_is_read_is_refused(folder, of, monkeypatch):
    users, entry = UserFolder.open(folder).as_users, first(folder)
    before = rows_of(users)
    read_rows = shard_files.read_rows

    def changed_meanwhile(shard, *arguments):
        if shard == entry and of == "rows":
            changed(folder, entry, lambda table: table.set_column(1, KEPT + "rating", pa.array([5.0] * len(table))))
        rows = read_rows(shard, *arguments)
        if shard == entry and of == "users":
            changed(folder, entry, lambda table: table.take(list(range(len(table)))[::-1]), of="users")
        return rows

    monkeypatch.setattr(user_folder, "read_rows", changed_meanwhile)
    with pytest.raises(InputError, match="not what was written"):
        rows_of(users)
    assert before


def test_keys_that_are_changed_before_they_are_read_are_refused(folder):
    users, entry = UserFolder.open(folder).as_users, first(folder)
    _ = rows_of(users)
    part = next(iter(users.parts()))
    changed(folder, entry, lambda table: table.take(list(range(len(table)))[::-1]), of="users")
    with pytest.raises(InputError, match="not what was written"):
        _ = part.keys


def test_a_file_of_equal_size_and_time_that_takes_the_place_of_a_shard_is_checked(folder):
    users, path = UserFolder.open(folder).as_users, first(folder).rows_file(folder)
    _ = rows_of(users)
    before, content = path.stat(), bytearray(path.read_bytes())
    at = content.index(b"PAR1") + 60  # in the pages
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError):
        rows_of(users)


def test_a_digest_tells_data_with_other_changes_apart(folder):
    users = UserFolder.open(folder)
    codes = np.arange(users.n_tasks, dtype=np.int32)
    fewer = np.where(codes == 1, -1, codes).astype(np.int32)
    read = [
        users,
        UserFolder.open(folder, value=IGNORE),
        users.mapped(lambda part: part, "clicks of at least 3.0"),
        users.mapped(lambda part: part, "clicks of at least 4.0"),
        users.recoded(codes, users.task_ids),
        users.recoded(fewer, users.task_ids),
        users.recoded(codes, users.task_ids).recoded(codes, users.task_ids),
    ]
    assert len({each.digest for each in read}) == len(read)
    assert users.recoded(codes, users.task_ids).digest == users.recoded(codes.copy(), users.task_ids).digest


def test_values_that_are_ignored_are_ones(folder):
    users = UserFolder.open(folder, value=IGNORE).as_users
    assert {value for part in users.parts() for value in part.column("values").tolist()} == {1.0}


def changed(folder, entry, change, *, of="rows"):
    """Write a changed table of a shard, and the manifest that a careful forger would write with it."""
    from apportion.data.on_disk.shard_files import read_shard

    path = entry.rows_file(folder) if of == "rows" else entry.users_file(folder)
    parquet.write_table(change(parquet.read_table(path)), path)
    manifest = FolderManifest.read(folder)
    forged = read_shard(entry, folder, None, None).entry(entry.bucket)
    shards = tuple(forged if each.bucket == entry.bucket else each for each in manifest.shards)
    return replace(manifest, shards=shards)


def first(folder):
    return FolderManifest.read(folder).shards[0]


def read(folder):
    return sum(part.n_rows for part in UserFolder.open(folder).as_users.parts())


def test_a_shard_that_was_changed_is_refused(folder):
    changed(folder, first(folder), lambda table: table.set_column(1, KEPT + "rating", pa.array([5.0] * table.num_rows)))
    with pytest.raises(InputError, match="not what was written"):
        read(folder)


def test_a_shard_that_is_changed_between_two_passes_is_refused(folder):
    users = UserFolder.open(folder).as_users
    before = rows_of(users)
    assert rows_of(users) == before  # the second pass trusts what the first has checked
    changed(folder, first(folder), lambda table: table.set_column(1, KEPT + "rating", pa.array([5.0] * table.num_rows)))
    with pytest.raises(InputError, match="not what was written"):
        rows_of(users)


@pytest.mark.parametrize("bits", [1, 3])
def test_a_user_in_two_shards_is_refused(data, bits, tmp_path):
    def split(data, own):
        heavy = np.bincount(data.users).argmax()
        return np.where((data.users == heavy) & (data.tasks % 2 == 0), (own + 1) % (1 << bits), own)

    folder = write_folder(data, tmp_path / "users", bits=bits, bucket_of_row=split)
    with pytest.raises(InputError, match="holds a user of another shard"):
        read(folder)


@pytest.mark.parametrize(
    ("change", "of", "said"),
    [
        (lambda table: table.take(list(range(table.num_rows))[::-1]), "users", "out of order"),
        (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "users", "user"),
        (lambda table: table.slice(1), "rows", "does not have the rows"),
        (lambda table: table.set_column(0, ITEM, pa.array([99] * table.num_rows, pa.int32())), "rows", "items"),
    ],
)
def test_a_folder_that_was_made_wrongly_is_refused(folder, change, of, said):
    manifest = changed(folder, first(folder), change, of=of)
    (folder / MANIFEST).write_text(manifest.to_json())
    with pytest.raises(InputError, match=said):
        read(folder)


def test_a_shard_that_is_missing_is_refused(folder):
    first(folder).rows_file(folder).unlink()
    with pytest.raises(InputError, match=r"shard-00000.rows.parquet of the folder of users cannot be read"):
        read(folder)


def test_a_list_of_items_that_was_changed_is_refused(folder):
    parquet.write_table(parquet.read_table(folder / ITEMS).slice(1), folder / ITEMS)
    with pytest.raises(InputError, match="list of items"):
        UserFolder.open(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format": 1', '"format": 2', "install a newer apportion"),
        ('"bits": 2', '"bits": 0', "cannot be"),
        ("{", "", "cannot be read"),
    ],
)
def test_another_manifest_is_refused(folder, old, new, said):
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        UserFolder.open(folder)
