"""Files that are written and read again without a user: bugs of reading are found in every format, and twins pass."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from apportion.auditing import neighbour_files
from apportion.auditing.fits import audit_file, fit_of
from apportion.auditing.neighbour_files import UserFile, readable, refuse_uncovered
from apportion.auditing.replay_files import unlike_rows
from apportion.data import Interactions
from apportion.data.time_texts import UNREADABLE
from apportion.errors import InputError
from apportion.privacy import Budget
from planted import files

from private_estimators import ratings

BUDGET = Budget(5.0, 1e-5)


@pytest.mark.parametrize("ending", files.FORMATS)
@pytest.mark.parametrize("bug", files.BUGS)
def test_a_reader_that_decides_by_all_rows_is_caught_in_every_format(bug, ending):
    owner, function, make = files.BUGS[bug]
    with mock.patch.object(owner, function, make(getattr(owner, function))):
        rows, releases = files.audited(ending).checks
    assert not rows.passed
    assert "of others are read in another way" in rows.words or "other users have 36 rows" in rows.words
    assert not releases.passed
    assert "times its sensitivity" in releases.words or "items that the whole file lacks" in releases.words


@pytest.mark.parametrize("ending", files.FORMATS)
def test_the_reader_as_it_is_passes(ending):
    found = files.read_as_it_is(ending)
    assert not found.caught
    assert found.evidence == "all other users have the same rows, to the last bit"


# -- writing without a user --

QUOTED = 'user,text\r\nann,"one,\n""two"""\n\nbob,x\r"ann",y\nzoë,"bob,z"'


@pytest.mark.parametrize("part", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_records_are_cut_out_of_text_as_they_stand(tmp_path, monkeypatch, part, packed):
    monkeypatch.setattr(neighbour_files, "_PART_BYTES", part)
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(QUOTED.encode()) if packed else QUOTED.encode())
    file = UserFile(path, "user")
    assert readable(file) == Counter({"ann": 2, "bob": 1, "zoë": 1})
    (tmp_path / "out").mkdir()
    target = file.write_without("ann", tmp_path / "out")
    assert target.name == "a.csv"
    assert target.read_bytes().decode() == 'user,text\r\n\nbob,x\rzoë,"bob,z"'
    assert file.write_without("zoë", tmp_path / "out").read_bytes().decode() == QUOTED.removesuffix('zoë,"bob,z"')


@pytest.mark.parametrize("line", ["{}::i{}::3", "{}   i{} 3 ", "{}|i{}|3"])
def test_other_separators_and_names_that_are_given(tmp_path, line):
    lines = [line.format(user, item) for user, item in (("ann", 1), ("bob", 1), ("ann", 2))]
    (tmp_path / "a.dat").write_text("\n".join(lines))
    file = UserFile(tmp_path / "a.dat", "user", ("user", "item", "rating"))
    (tmp_path / "out").mkdir()
    assert file.write_without("ann", tmp_path / "out").read_text() == lines[1] + "\n"
    assert readable(file) == {"ann": 2, "bob": 1}


def test_a_mark_of_utf8_is_no_part_of_the_first_id(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfann,i1\n\xef\xbb\xbfann,i2\nbob,i1\n")
    file = UserFile(tmp_path / "a.csv", "user", ("user", "item"))
    assert readable(file) == {"ann": 1, "\ufeffann": 1, "bob": 1}


def test_json_and_parquet_keep_what_is_in_other_rows(tmp_path):
    (tmp_path / "out").mkdir()
    lines = ['{"user": 7, "a": 1e0}', '{"a": [1], "user":8}', "", '{"user": 7.0}', '{"a": 2}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    file = UserFile(tmp_path / "a.jsonl", "user")
    assert readable(file) == {"7": 2, "8": 1}
    assert file.write_without("7", tmp_path / "out").read_text() == '{"a": [1], "user":8}\n\n{"a": 2}'
    table = pa.table({"user": pa.array([7, 8, 7, None], pa.int32()), "a": pa.array(["x", None, "y", "z"])})
    parquet.write_table(table, tmp_path / "a.parquet")
    file = UserFile(tmp_path / "a.parquet", "user")
    assert readable(file) == {"7": 2, "8": 1}
    left = parquet.read_table(file.write_without("7", tmp_path / "out"))
    assert left.schema == table.schema
    assert left.to_pylist() == [{"user": 8, "a": None}, {"user": None, "a": "z"}]


def test_what_is_not_covered_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n")
    (tmp_path / "a.sqlite").write_bytes(b"SQLite format 3\x00")
    assert refuse_uncovered(tmp_path / "a.csv") is None
    assert refuse_uncovered(tmp_path / "a.sqlite") == "SQLite files are not covered"
    for place in (tmp_path, str(tmp_path / "*.csv"), [tmp_path / "a.csv"]):
        assert refuse_uncovered(place) == "it is not one file"
    (tmp_path / "b.jsonl").write_text('{"user": 1}\n[3]\n')
    with pytest.raises(InputError, match="cannot be told apart"):
        readable(UserFile(tmp_path / "b.jsonl", "user"))


# -- comparing rows --


def test_rows_are_compared_by_ids_values_and_times():
    def data(*rows):
        users, items, values, times = zip(*rows, strict=True)
        return Interactions.from_arrays(users, items, values, times, single_user=True)

    rows = [("a", "x", 1, 5), ("b", "y", 2, 6), ("b", "x", 3, 7)]
    whole = data(*rows, ("zz", "w", 3, 7))
    assert unlike_rows(whole, data(*rows[::-1]), "zz") == ""
    assert unlike_rows(whole, data(*rows[:2]), "zz").startswith("other users have 3 rows with, and 2 without")
    for other in (("b", "x", 4, 7), ("b", "x", 3, 8), ("c", "x", 3, 7), ("b", "v", 3, 7)):
        assert "read in another way" in unlike_rows(whole, data(*rows[:2], other), "zz")


def test_no_column_of_times_is_the_same_as_no_times():
    users, items = ["a", "b"], ["x", "y"]
    without = Interactions.from_arrays(users, items, [1, 2])
    for time, same in ((UNREADABLE, True), (0, False)):
        assert (unlike_rows(Interactions.from_arrays(users, items, [1, 2], [time] * 2), without, "zz") == "") is same


def audited(path, load, **settings):
    return audit_file(
        UserFile(path, "user"), load, fit_of(lambda: ratings(rounds=1, items="from-data")), BUDGET, **settings
    )


def test_a_fit_that_moves_too_far_is_caught_even_if_rows_are_alike(tmp_path):
    path = files.written(tmp_path, "csv")

    def doubled(some, session):  # a user's rows beyond the first eight count for the whole
        return fit_of(lambda: ratings(rounds=1 + (some.n_users > 12), items="from-data"))(some, session)

    report = audit_file(UserFile(path, "user"), files.load, doubled, BUDGET, users=1)
    assert [check.passed for check in report.checks] == [True, False]
    assert report.violated


def test_refused_neighbours_tell_nothing_and_time_is_bounded(tmp_path):
    path = files.written(tmp_path, "csv")

    def refusing(some):
        if some != path:
            raise InputError("no", argument=None)
        return files.load(some)

    report = audited(path, refusing, users=2)
    assert report.checks == ()
    assert "2 of these files were refused" in report.tried[0]
    hurried = audited(path, files.load, users=5, seconds=0.0)
    assert "without 1 of 5 chosen users" in hurried.tried[0]
    assert not hurried.violated


def test_nothing_is_left_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    seen: list[Path] = []
    path = files.written(tmp_path, "jsonl")
    audited(path, lambda some: (seen.append(some), files.load(some))[1], users=2)
    assert len(seen) == 3
    assert all(json.loads(line)["user"] for line in path.read_text().splitlines())
    assert list((tmp_path / "t").iterdir()) == []
