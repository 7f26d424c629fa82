"""Frames on a real server: recommenders learn the same from a frame as from memory, in every bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from apportion import linalg
from apportion.auditing.hidden_values import raw_steps
from apportion.data import Interactions
from apportion.data.item_lists import in_text_order, texts_of, with_priorities
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import SeededNoise
from apportion.privacy.contributions import KeyCounts
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender

from private_estimators import PRIVATE_ESTIMATORS

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")

RATINGS = partial(PrivateRatingRecommender, 20.0, 1e-5, dimension=2, rounds=2)
CLICKS = partial(PrivateClickRecommender, 20.0, 1e-5, dimension=2, rounds=2)


@pytest.fixture(scope="module")
def table():
    """Ratings in no order: users are text, items are integers."""
    data, _ = long_tailed_ratings(150, 12, 900, rank=2, rng=np.random.default_rng(0))
    order = np.random.default_rng(1).permutation(data.n_observations)
    users = pa.array([f"user {code}" for code in data.users[order]])
    return pa.table({"user": users, "item": pa.array(3 * data.tasks[order]), "rating": data.values[order]})


@pytest.fixture(scope="module")
def frame(spark, table):
    return spark.createDataFrame(table)


@pytest.fixture(scope="module")
def items(table):
    return sorted(table.column("item").unique().to_pylist(), reverse=True)


def fitted(make, data, engine, items):
    return make(items=items, engine=engine, noise=SeededNoise(5)).fit(data).model_


@pytest.mark.parametrize("make", [RATINGS, CLICKS], ids=["ratings", "clicks"])
@pytest.mark.parametrize("listed", ["private", "from-data", "given"])
def test_a_fit_to_a_frame_is_the_fit_to_memory(make, listed, engine, frame, table, items):
    given = items if listed == "given" else listed
    here = fitted(make, Interactions.from_frame(table), LocalEngine(exact=True), given)
    there = fitted(make, frame, engine, given)
    assert there.task_ids == here.task_ids
    np.testing.assert_array_equal(there.vectors, here.vectors)
    np.testing.assert_array_equal(there.popularity, here.popularity)
    assert there.statement.to_json() == here.statement.to_json()


def test_a_published_method_learns_the_same_from_rows_on_a_list(engine, frame, table):
    make = PRIVATE_ESTIMATORS["ratings, statistics, adaptive"]
    here = make(engine=LocalEngine(exact=True), noise=SeededNoise(3)).fit(Interactions.from_frame(table))
    with engine.read(frame) as rows:
        there = make(engine=engine, noise=SeededNoise(3)).fit(rows.with_own_list())
    np.testing.assert_array_equal(there.model_.vectors, here.model_.vectors)
    assert there.statement_.to_json() == here.statement_.to_json()


def test_counts_of_a_private_list_are_those_of_memory(engine, frame, table):
    form, keyed = KeyCounts(2), in_text_order(Interactions.from_frame(table))
    with engine.read(frame) as rows:
        counts, texts = rows.count_keys(form)
    assert texts == texts_of(keyed.task_ids)
    wanted = add_up_one(LocalEngine(exact=True), with_priorities(keyed), form)
    np.testing.assert_array_equal(raw_steps(counts), raw_steps(wanted))


def test_columns_are_named_and_texts_of_numbers_are_numbers(engine, spark, table):
    plain = table.set_column(1, "thing", table.column("item").cast(pa.string())).rename_columns(["who", "thing", "x"])
    with engine.read(spark.createDataFrame(plain), user="who", task="thing", value="x", untyped=True) as rows:
        assert rows.with_own_list().task_ids == Interactions.from_frame(table).task_ids
    with engine.read(spark.createDataFrame(plain), user="who", task="thing", value="x") as rows:
        assert rows.with_own_list().task_ids.holds_text


def test_items_outside_a_public_list_are_refused(engine, frame, items):
    with pytest.raises(InputError, match=rf"^Expected items of the 11 that are listed, got {items[0]}\.$"):
        fitted(RATINGS, frame, engine, items[1:])


@pytest.mark.parametrize(
    ("column", "cells", "said"),
    [
        ("user", ["ann", None, "bob"], "Column 'user' is empty in row"),
        ("rating", [3.0, float("nan"), 2.0], "expected a finite number"),
        ("item", [1, 1, 1], "A user has two rows for item 1; expected each pair of user and item once"),
    ],
)
def test_rows_that_make_no_sense_are_refused_in_one_sentence(engine, spark, column, cells, said):
    rows = {"user": ["ann", "ann", "bob"], "item": [1, 2, 1], "rating": [3.0, 4.0, 2.0], column: cells}
    with pytest.raises(InputError, match=said) as refused:
        fitted(RATINGS, spark.createDataFrame(pa.table(rows)), engine, [1, 2])
    assert "\n" not in str(refused.value)


def test_a_frame_needs_an_engine_on_its_cluster(engine, frame):
    with pytest.raises(InputError, match="A Spark frame needs an engine on its cluster"):
        PrivateRatingRecommender(1.0).fit(frame)
    with (
        engine.read(frame) as rows,
        pytest.raises(InputError, match=r"add them up with SparkEngine\(spark\)"),
    ):
        PrivateRatingRecommender(1.0, items="from-data", noise="exact").fit(rows)
