"""Public features: frames to sparse rows, ids matched to tasks, later items read alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import Vocabulary
from apportion.data.features import FeatureSpace, FineFeaturesWarning, ItemFeatures
from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.errors import InputError

MOVIES = pa.table(
    {
        "movie_id": [10, 20, 30, 40],
        "genres": ["War|Drama", "Drama", "", None],
        "year": [1990.0, 1996.0, None, 2000.0],
        "people": [["ann", "bob"], ["bob"], [], None],
        "country": ["fr", "uk", "fr", None],
    }
)


def dense(features, group):
    """One group of a small set of features, as a matrix."""
    where = next(each for each in features.rows.groups if each.name == group)
    return features.rows.to_scipy().toarray()[:, where.first : where.last]


def test_words_become_columns_in_sorted_order_and_empty_cells_have_none():
    features = ItemFeatures.from_frame(MOVIES)
    assert repr(features) == "ItemFeatures(4 items, genres: 2, year: 1, people: 2, country: 2)"
    np.testing.assert_array_equal(dense(features, "genres"), [[1, 1], [1, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(dense(features, "people"), [[1, 1], [0, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(dense(features, "country"), [[1, 0], [0, 1], [1, 0], [0, 0]])


def test_a_number_is_standardised_and_a_binned_one_lies_between_its_knots():
    standard = dense(ItemFeatures.from_frame(MOVIES), "year")[:, 0]
    known = np.array([1990.0, 1996.0, 2000.0])
    np.testing.assert_allclose(standard[[0, 1, 3]], (known - known.mean()) / known.std(), rtol=1e-6)
    assert standard[2] == 0
    binned = dense(ItemFeatures.from_frame(MOVIES, kinds={"year": "binned"}, bins=2), "year")
    np.testing.assert_allclose(binned, [[1, 0], [0.4, 0.6], [0, 0], [0, 1]], atol=1e-6)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.integers(2, 9))
def test_binned_numbers_are_recovered_from_their_knots(numbers, bins):
    features = ItemFeatures.from_frame(
        pa.table({"id": range(len(numbers)), "x": numbers}), kinds={"x": "binned"}, bins=bins
    )
    knots = np.array(features.space.groups[0].numbers)
    np.testing.assert_allclose(dense(features, "x") @ knots, numbers, atol=1e-2, rtol=1e-4)


@pytest.mark.parametrize("convert", [pl.from_arrow, pa.Table.to_pandas, lambda t: t.to_pandas().iloc[::-1]])
def test_polars_pandas_and_pyarrow_give_the_same_features(convert):
    ours, theirs = ItemFeatures.from_frame(MOVIES), ItemFeatures.from_frame(convert(MOVIES))
    assert theirs.space == ours.space
    np.testing.assert_array_equal(theirs.rows.to_scipy().toarray(), ours.rows.to_scipy().toarray())


def test_several_rows_of_an_item_count_words_and_average_numbers():
    cast = pd.DataFrame({"id": [1, 1, 2], "role": ["actor", "actor", "actor"], "age": [20.0, 40.0, 60.0]})
    features = ItemFeatures.from_frame(cast)
    np.testing.assert_array_equal(dense(features, "role"), [[2], [1]])
    spread = np.std([20, 40, 60])
    np.testing.assert_allclose(dense(features, "age")[:, 0], [-10 / spread, 20 / spread], rtol=1e-6)
    np.testing.assert_allclose(features.rows.averaged().to_scipy().toarray()[:, 0], [1, 1])


def test_a_cross_has_a_column_for_every_combination_within_a_row():
    cast = pa.table({"id": [1, 1, 2], "person": ["ann", "bob", "ann"], "role": ["actor", "director", "director"]})
    features = ItemFeatures.from_frame(cast, crosses=[("person", "role")], kinds={"person": "ignore", "role": "ignore"})
    assert features.space.groups[0].words == ("ann & actor", "ann & director", "bob & director")
    np.testing.assert_array_equal(features.rows.to_scipy().toarray(), [[1, 0, 1], [0, 1, 0]])
    wide = pa.table({"id": [1], "person": [["ann", "bob"]], "role": ["actor|director"]})
    found = ItemFeatures.from_frame(wide, crosses=[("person", "role")])
    assert found.space.groups[-1].words == ("ann & actor", "ann & director", "bob & actor", "bob & director")


def test_text_is_hashed_by_word_whatever_its_case():
    frame = pa.table({"id": [1, 2, 3], "title": ["The Red Shoes", "red, RED!", "blue sky"]})
    features = ItemFeatures.from_frame(frame, buckets=1 << 16)
    table = features.rows.to_scipy().toarray()
    assert features.rows.n_columns == 1 << 16
    assert features.rows.counts.tolist() == [3, 1, 2]
    red = int(np.argmax(table[1]))
    assert table[:, red].tolist() == [1, 2, 0]


def test_later_items_are_read_in_the_same_way_and_unknown_words_say_nothing():
    features = ItemFeatures.from_frame(MOVIES, kinds={"year": "binned"}, bins=2)
    space = FeatureSpace.from_json(features.space.to_json())
    assert space == features.space
    later = pa.table(
        {"movie_id": ["new"], "genres": ["Drama|Noir"], "year": [1994], "people": [["zoe"]], "country": ["uk"]}
    )
    read = ItemFeatures.from_frame(later, space=space)
    np.testing.assert_allclose(read.rows.to_scipy().toarray(), [[1, 0, 0.6, 0.4, 0, 0, 0, 1]], atol=1e-6)
    with pytest.raises(InputError, match="no column 'genres'"):
        ItemFeatures.from_frame(later.drop_columns(["genres"]), space=space)


def test_files_are_read_as_frames_are_and_ids_as_they_are_written(tmp_path):
    (tmp_path / "items.csv").write_text("id,genres,year\n1,A|B,1990\nx,B,1991\n007,A,1992\n")
    features = ItemFeatures.read(tmp_path / "items.csv")
    assert features.item_ids.ids.tolist() == ["007", "1", "x"]
    assert features.for_tasks(Vocabulary([7, 5, 1])).counts.tolist() == [0, 0, 3]
    assert features.for_tasks(Vocabulary(["7", "007", "x"])).counts.tolist() == [0, 2, 2]
    parquet.write_table(MOVIES, tmp_path / "items.parquet")
    read = ItemFeatures.read(tmp_path / "items.parquet")
    np.testing.assert_array_equal(read.rows.indices, ItemFeatures.from_frame(MOVIES).rows.indices)


def test_tasks_get_their_rows_in_the_order_of_their_codes():
    features = ItemFeatures.from_frame(MOVIES)
    rows = features.for_tasks(Vocabulary([40, 99, 10]))
    assert rows.counts.tolist() == [1, 0, 6]
    with pytest.raises(InputError, match="No item with features is a task: the first ids are 10 and 'a'"):
        features.for_tasks(Vocabulary(["a", "b"]))


def test_features_of_two_frames_are_joined_by_id():
    cast = ItemFeatures.from_frame(pa.table({"id": [20, 50, 50], "person": ["a", "b", "b"]}))
    joined = ItemFeatures.from_frame(MOVIES, kinds={"people": "ignore"}).beside(cast)
    assert joined.item_ids.ids.tolist() == [10, 20, 30, 40, 50]
    np.testing.assert_array_equal(dense(joined, "person"), [[0, 0], [1, 0], [0, 0], [0, 0], [0, 2]])
    with pytest.raises(InputError, match="different names, got 'person' twice"):
        joined.beside(cast)


def test_taking_rows_agrees_with_dense_indexing():
    rng = np.random.default_rng(0)
    groups = (ColumnRange("a", 0, 4), ColumnRange("b", 4, 10))
    entries = rng.integers(0, 8, 40), rng.integers(0, 10, 40), rng.standard_normal(40)
    rows = SparseRows.from_entries(*entries, 8, groups)
    whole = rows.to_scipy().toarray()
    by_hand = np.zeros((8, 10))
    np.add.at(by_hand, (entries[0], entries[1]), entries[2])
    np.testing.assert_allclose(whole, by_hand, atol=1e-6)
    taken = rows.take([3, -1, 3, 0]).to_scipy().toarray()
    np.testing.assert_array_equal(taken, np.stack([whole[3], np.zeros(10), whole[3], whole[0]]))


@pytest.mark.parametrize(
    ("frame", "arguments", "message"),
    [
        ([1, 2], {}, "supports Arrow"),
        (pa.table({"id": [1]}), {}, "at least one column of features"),
        (pa.table({"id": [1], "item": [2], "x": [1]}), {}, "looks like the item, got 2"),
        (pa.table({"id": [1], "x": [1]}), {"item": "nr"}, "no column 'nr'"),
        (pa.table({"id": [1], "x": [1]}), {"kinds": {"y": "number"}}, "no column 'y'"),
        (pa.table({"id": [1], "x": [1]}), {"kinds": {"x": "vector"}}, "'vector'"),
        (pa.table({"id": [1], "x": ["a"]}), {"kinds": {"x": "number"}}, "'x' of features holds"),
        (pa.table({"id": [1], "x": [1.0]}), {"kinds": {"x": "binned"}, "bins": 1}, "at least 2 bins, got 1"),
        (pa.table({"id": [1], "x": ["a"]}), {"crosses": [("x", "z")]}, "no column 'z' to cross"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(frame, arguments, message):
    with pytest.raises(InputError, match=message):
        ItemFeatures.from_frame(frame, **arguments)


def test_features_that_only_tell_items_apart_are_pointed_out():
    n = 60
    ids, brand = range(n), [f"brand {k % 5}" for k in range(n)]
    with pytest.warns(FineFeaturesWarning, match="'serial' is very specific: 100%"):
        ItemFeatures.from_frame(pa.table({"id": ids, "brand": brand, "serial": [f"s{k}" for k in range(n)]}))
    advertisements = {"id": ids, "brand": brand, "text": [f"t{k % 15}" for k in range(n)]}
    ItemFeatures.from_frame(pa.table(advertisements))  # no warning: they would be errors here
    with pytest.warns(FineFeaturesWarning, match="'font' may be too specific: without it, the 60 .* would be 15"):
        ItemFeatures.from_frame(pa.table(advertisements | {"font": [f"{8 + k // 15}pt" for k in range(n)]}))


def test_two_features_that_form_a_grid_of_items_are_pointed_out_and_two_that_items_share_are_not():
    n = 400
    brand = [f"b{k % 10}" for k in range(n)]
    with pytest.warns(FineFeaturesWarning, match="'font' may be too specific: without it, the 400 .* would be 10"):
        ItemFeatures.from_frame(
            pa.table({"item": np.arange(n), "brand": brand, "font": [f"f{k // 10}" for k in range(n)]})
        )
    rng = np.random.default_rng(0)  # what follows must not warn: warnings are errors here
    shared = {"genre": [f"g{k % 10}" for k in range(n)], "decade": [f"d{k}" for k in rng.integers(0, 6, n)]}
    ItemFeatures.from_frame(pa.table({"item": np.arange(n), **shared}))
    scattered = {"maker": [f"m{k}" for k in rng.integers(0, 60, n)], "place": [f"p{k}" for k in rng.integers(0, 60, n)]}
    ItemFeatures.from_frame(pa.table({"item": np.arange(n), **scattered}))
    ItemFeatures.from_frame(pa.table({"item": np.arange(n), "length": rng.random(n), "kind": ["film"] * n}))
