"""Item lists and titles are read from the formats they come in."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from apportion.cli.group_options import read_groups
from apportion.cli.item_files import read_item_list, read_titles
from apportion.data import Vocabulary
from apportion.errors import InputError


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1\n2\n3\n", [1, 2, 3]),
        ("movieId,title,genres\n1,Toy Story (1995),A|B\n2,Jumanji,C\n", [1, 2]),
        ("1::Toy Story::A|B\n2::Jumanji::C\n", [1, 2]),
        ("item\nb\na\n\n", ["b", "a"]),
        ("item_id\n7\n", [7]),
        ("b\na\n", ["b", "a"]),
        ("item\n007\n7\n", ["007", "7"]),
        ("item\n0x1F\n31\n", ["0x1F", "31"]),
        ('\ufeffitem\n"x, y"\nz\n', ["x, y", "z"]),
        ("1|Toy Story (1995)|01-Jan-1995\n2|Twelve\n", [1, 2]),
    ],
)
def test_an_item_list_is_the_first_column_in_its_own_order(tmp_path, text, ids):
    (tmp_path / "items").write_text(text, encoding="utf-8")
    assert read_item_list(tmp_path / "items") == ids


@pytest.mark.parametrize(
    "text",
    [
        "id,title\n1,Amélie\n2,Brazil\n",
        "movieId;year;name\n1;2001;Amélie\n2;1985;Brazil\n",
        "1::Amélie::x\n2::Brazil::y\n",
        '1,"Amélie"\n2,"Brazil"\n99,"Other"\n',
        "1\tAmélie\n2\tBrazil\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_titles_are_found_in_any_usual_file(tmp_path, text, encoding):
    (tmp_path / "titles").write_bytes(text.encode(encoding))
    assert read_titles(tmp_path / "titles", Vocabulary([1, 2, 3])) == {1: "Amélie", 2: "Brazil"}


def test_titles_for_text_ids_and_from_parquet(tmp_path):
    (tmp_path / "titles.csv").write_text("id,title\na,Alien\nb,Brazil\n", encoding="utf-8")
    assert read_titles(tmp_path / "titles.csv", Vocabulary(["a", "c"])) == {"a": "Alien"}
    parquet.write_table(pa.table({"id": [1, 2], "title": ["Alien", "Brazil"]}), tmp_path / "titles.parquet")
    assert read_titles(tmp_path / "titles.parquet", Vocabulary([2, 5])) == {2: "Brazil"}
    assert read_item_list(tmp_path / "titles.parquet") == [1, 2]


def test_titles_that_fit_no_item_are_refused(tmp_path):
    (tmp_path / "titles.csv").write_text("id,title\n8,Alien\n", encoding="utf-8")
    with pytest.raises(InputError, match="none of its ids"):
        read_titles(tmp_path / "titles.csv", Vocabulary([1, 2]))
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="found none"):
        read_titles(tmp_path / "empty.csv", Vocabulary([1, 2]))


def test_cells_of_a_list_with_a_schema_read_as_in_a_column_of_ids(tmp_path):
    columns = {"item": pa.array([5.0, None, 7.0]), "title": pa.array(["five", "none", None])}
    parquet.write_table(pa.table(columns), tmp_path / "items.parquet")
    assert read_item_list(tmp_path / "items.parquet") == [5, 7]
    assert read_titles(tmp_path / "items.parquet", Vocabulary([5, 7])) == {5: "five"}


@pytest.mark.parametrize("read", [read_item_list, lambda path: read_groups(path, ["ward"])])
def test_records_are_no_ids_and_no_groups(tmp_path, read):
    (tmp_path / "a.jsonl").write_text('{"ward": {"id": "east"}}\n{"ward": {"id": "west"}}\n')
    with pytest.raises(InputError, match=r"a\.jsonl: Column 'ward' holds {'id': 'east'} in row 1 .*; expected text"):
        read(tmp_path / "a.jsonl")


def test_the_names_of_columns_of_a_file_with_a_schema_are_no_item_and_no_group(tmp_path):
    parquet.write_table(pa.table({"anything": ["b", "a"]}), tmp_path / "a.parquet")
    assert read_item_list(tmp_path / "a.parquet") == ["b", "a"]
    assert read_groups(tmp_path / "a.parquet", ["ward"]) == ["b", "a"]
    (tmp_path / "a.txt").write_text("anything\nb\na\n")  # a line like the others, for all that the file says
    assert read_item_list(tmp_path / "a.txt") == ["anything", "b", "a"]
