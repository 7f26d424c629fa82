"""Folders of tasks: names and columns as found, numbers to the last digit, whatever the kind of file."""

from __future__ import annotations

import datetime
import gzip

import pyarrow as pa
import pyarrow.parquet
import pytest

from apportion.data.task_files import read_task_folder, task_files
from apportion.errors import InputError


@pytest.fixture
def write(tmp_path):
    def written(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path

    return written


def test_features_are_the_union_of_columns_with_zeros_where_a_task_lacks_one(write):
    write("b.csv", "y,x\n1.5,2\n,9\n-3,4e-3\n")
    folder = write("a.tsv", "z\tx\ty\n7\t8\t9\n")
    read = read_task_folder(folder, label="y")
    assert read.names == ("a", "b")
    assert read.features == ("z", "x")
    assert [matrix.tolist() for matrix in read.matrices] == [[[7.0, 8.0]], [[0.0, 2.0], [0.0, 0.004]]]
    assert [column.tolist() for column in read.labels] == [[9.0], [1.5, -3.0]]
    assert read.has.tolist() == [[True, True], [False, True]]
    assert read.unlabelled == (0, 1)


def test_named_features_keep_the_order_in_which_they_were_named(write):
    folder = write("a.csv", "x,y,z\n1,2,3\n")
    read = read_task_folder(folder, label="y", features=["z", "x"])
    assert read.matrices[0].tolist() == [[3.0, 1.0]]


@pytest.mark.parametrize(
    "columns",
    [
        {"y": pa.array([1, None, 3]), "x": pa.array([True, False, None])},
        {"y": pa.array([1.0, float("nan"), 3.0]), "x": pa.array([1, 0, None], pa.int8())},
        {"y": pa.array([1, None, 3]).cast(pa.decimal128(21, 1)), "x": pa.array([1, 2, None]).dictionary_encode()},
    ],
)
def test_parquet_columns_of_any_numeric_type_are_read_and_an_empty_feature_is_named(tmp_path, columns):
    pyarrow.parquet.write_table(pa.table(columns).slice(0, 2), tmp_path / "a.parquet")
    read = read_task_folder(tmp_path, label="y")
    assert read.labels[0].tolist() == [1.0]
    assert read.matrices[0].tolist() == [[1.0]]
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"^a\.parquet: Column 'x' is empty in row 3 "):
        read_task_folder(tmp_path, label="y")


def test_compressed_text_is_read_and_hidden_files_and_folders_are_not(write, tmp_path):
    write(".a.csv", "not,a,table")
    (tmp_path / "sub.csv").mkdir()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"y,x\n1,2\n"))
    write("notes.md", "hello")
    read = read_task_folder(tmp_path, label="y")
    assert read.names == ("a",)
    assert read.ignored == ("notes.md",)


def test_a_damaged_parquet_file_is_refused_by_name(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match=r"^a\.parquet: The Parquet file cannot be read"):
        read_task_folder(tmp_path, label="y")


def test_names_are_sorted_whatever_the_ending(write):
    for name in ("b.csv", "a.tsv", "c.csv"):
        folder = write(name, "y,x\n1,2\n")
    assert list(task_files(folder)[0]) == ["a", "b", "c"]


def test_a_date_is_no_number(tmp_path):
    table = pa.table({"y": [1.0], "x": [2.0], "day": pa.array([datetime.date(2026, 1, 1)])})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read_task_folder(tmp_path, label="y").features == ("x",)
    with pytest.raises(InputError, match=r"^a\.parquet: Column 'day' holds no numbers"):
        read_task_folder(tmp_path, label="y", features=["day"])


def test_a_file_whose_name_no_page_can_hold_is_refused_before_anything_is_read(tmp_path):
    with open(bytes(tmp_path) + b"/clinic-\xff.csv", "w") as file:
        file.write("x,y\n1,2\n")
    with pytest.raises(InputError, match=r"'clinic-\\udcff.csv' is not in UTF-8"):
        task_files(tmp_path)
