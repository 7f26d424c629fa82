"""Files of features as people have them: spaced headers, no headers, other encodings, numbers out of range."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.errors import InputError
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender


def test_a_header_with_spaces_reads_as_one_without(tmp_path):
    for name, header in (("plain", "item,genre,year"), ("spaced", "item, genre , year")):
        (tmp_path / name).write_text(f"{header}\n1,Drama,1999\n2,War,2001\n", encoding="utf-8")
    spaced, plain = (ItemFeatures.read(tmp_path / name) for name in ("spaced", "plain"))
    assert spaced.space == plain.space
    np.testing.assert_array_equal(spaced.rows.values, plain.rows.values)


def test_a_data_file_with_a_spaced_header_is_read(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("\nuser, item, rating\n1,7,3\n2,8,4\n", encoding="utf-8")
    data = Interactions.read(file)
    assert data.values.tolist() == [3.0, 4.0]


def test_the_row_of_a_bad_line_counts_rows_of_data_also_after_empty_lines(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text("\n\nuser,item,rating\n1,7,3\n2,8,4,9\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"Row 2 \(counting data rows from 1\) has 4 columns"):
        Interactions.read(file)


def test_a_row_of_too_few_columns_is_named_as_in_every_other_file(tmp_path):
    (tmp_path / "ragged.csv").write_text("item,genre,year\n1,a,1999\n2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"Row 2 \(counting data rows from 1\) has 1 column where 3 were expected"):
        ItemFeatures.read(tmp_path / "ragged.csv")


def test_a_file_without_a_header_is_read_with_names(tmp_path):
    file = tmp_path / "movies.dat"
    file.write_text("1::Toy Story (1995)::Animation|Comedy\n2::Heat (1995)::Crime\n", encoding="utf-8")
    found = ItemFeatures.read(file, columns=["movie_id", "title", "genres"], kinds={"title": "text"})
    assert [group.name for group in found.space.groups] == ["title", "genres"]
    assert found.space.groups[1].words == ("Animation", "Comedy", "Crime")
    with pytest.raises(InputError, match="Expected 2 columns, as named, got 3"):
        ItemFeatures.read(file, columns=["movie_id", "title"])


def test_two_columns_of_one_name_are_refused(tmp_path):
    file = tmp_path / "movies.csv"
    file.write_text("item,genre,genre\n1,Drama,War\n", encoding="utf-8")
    with pytest.raises(InputError, match="different names, got 'genre' twice"):
        ItemFeatures.read(file)
    frame = pa.Table.from_arrays([pa.array([1]), pa.array(["a"]), pa.array(["b"])], names=["item", "x", "x"])
    with pytest.raises(InputError, match="different names, got 'x' twice"):
        ItemFeatures.from_frame(frame)


def test_text_in_another_encoding_is_named(tmp_path):
    file = tmp_path / "movies.csv"
    file.write_bytes("item,title\n1,Amélie\n".encode("latin-1"))
    with pytest.raises(InputError, match="Column 'title' holds text that is not in UTF-8"):
        ItemFeatures.read(file)


def test_an_id_column_that_cannot_be_guessed_is_asked_for_among_those_found():
    with pytest.raises(InputError, match="got 0 among name, year; name it with item="):
        ItemFeatures.from_frame(pa.table({"name": ["a"], "year": [1]}))


def test_a_new_number_beyond_those_met_counts_as_the_last_of_them():
    known = ItemFeatures.from_frame(pa.table({"item": [1, 2, 3], "minutes": [90.0, 100.0, 140.0]}))
    new = ItemFeatures.from_frame(pa.table({"item": [4, 5], "minutes": [1e30, -1e30]}), space=known.space)
    assert new.rows.values.tolist() == [known.rows.values[2], known.rows.values[0]]


@pytest.mark.parametrize("recommender", [PrivateRatingRecommender, PrivateClickRecommender])
def test_features_that_are_none_are_refused_before_anything_is_spent(recommender):
    users = np.repeat(np.arange(40), 5)
    items = np.tile(np.arange(10), 20)
    data = Interactions.from_frame(pa.table({"user": users, "item": items, "rating": items % 5 + 1.0}))
    frame = pa.table({"item": np.arange(10), "genre": ["a", "b"] * 5})
    with pytest.raises(InputError, match="Expected features as an ItemFeatures"):
        recommender(1.0, features=frame).fit(data)
    known = ItemFeatures.from_frame(frame)
    silent = ItemFeatures.from_frame(pa.table({"item": np.arange(10), "genre": ["z"] * 10}), space=known.space)
    with pytest.raises(InputError, match="got no informative ones"):
        recommender(1.0, features=silent).fit(data)


def test_numbers_with_a_decimal_comma_are_numbers_and_not_words(tmp_path):
    for name, lines in (("comma", "1;2,5;1,5 x\n2;-4;2\n3;;x\n"), ("point", "1;2.5;1,5 x\n2;-4;2\n3;;x\n")):
        (tmp_path / name).write_text(f"item;price;size\n{lines}", encoding="utf-8")
    comma, point = (ItemFeatures.read(tmp_path / name) for name in ("comma", "point"))
    assert [group.kind for group in comma.space.groups] == ["number", "categorical"]
    np.testing.assert_array_equal(comma.rows.values, point.rows.values)
    codes = ItemFeatures.from_frame(pa.table({"item": [1, 2], "code": ["01234", "99"]}))
    assert [group.kind for group in codes.space.groups] == ["categorical"]
