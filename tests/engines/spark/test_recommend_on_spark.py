"""Recommendations on a real server are those of memory; a row's answer depends on that row alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion.data.synthetic import long_tailed_ratings
from apportion.errors import InputError
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender, recommend_on_spark


@pytest.fixture(scope="module")
def data():
    return long_tailed_ratings(60, 12, 400, rank=2, rng=np.random.default_rng(0))[0]


@pytest.fixture(scope="module", params=[PrivateRatingRecommender, PrivateClickRecommender], ids=["ratings", "clicks"])
def model(data, request):
    return request.param(20.0, items="from-data", dimension=2, rounds=2).fit(data).model_


def histories(data, further=()):
    """One row per user: a name, and what the user has."""
    ends = data.by_user.indptr
    rows = [slice(ends[k], ends[k + 1]) for k in range(data.n_users)]
    items = [[int(item) for item in data.task_ids.ids_of(data.tasks[row])] for row in rows]
    values = [data.values[row].tolist() for row in rows]
    names = [f"n{k}" for k in range(len(rows) + len(further))]
    made = {"name": names, "items": [*items, *further], "stars": [*values, *([1.0] * len(each) for each in further)]}
    return pa.table(made)


def recommended(spark, model, table, k=4):
    stars = {"values": "stars"} if model.kind == "ratings" else {}
    frame = recommend_on_spark(model, spark.createDataFrame(table), k, items="items", **stars)
    return {row["name"]: row for row in frame.toArrow().to_pylist()}


def test_lists_are_those_of_memory(spark, data, model):
    found = recommended(spark, model, histories(data))
    wanted = model.recommend(data, 4)
    assert len(found) == data.n_users
    for user, tasks, scores in zip(wanted.users, wanted.tasks, wanted.scores, strict=True):
        row, left = found[f"n{user}"], tasks >= 0
        assert row["recommended"] == data.task_ids.ids_of(tasks[left]).tolist()
        assert row["scores"] == scores[left].tolist()


def test_unknown_items_are_skipped_and_rows_without_any_get_empty_lists(spark, data, model):
    first = int(data.task_ids.id_of(int(data.tasks[0])))
    found = recommended(spark, model, histories(data, [[999_999], [], [first, 999_999], [first]]))
    last = [found[f"n{data.n_users + k}"] for k in range(4)]
    assert [len(row["recommended"]) for row in last] == [0, 0, 4, 4]
    assert last[2]["recommended"] == last[3]["recommended"]
    assert first not in last[3]["recommended"]


def test_what_does_not_fit_is_refused(spark, data, model):
    frame = spark.createDataFrame(histories(data))
    wrong = {} if model.kind == "ratings" else {"values": "stars"}
    with pytest.raises(InputError, match=r"This model (needs|has clicks and takes no) values="):
        recommend_on_spark(model, frame, items="items", **wrong)
    right = {"values": "stars"} if model.kind == "ratings" else {}
    with pytest.raises(InputError, match="There is no column 'watched'"):
        recommend_on_spark(model, frame, items="watched", **right)
    with pytest.raises(InputError, match="has a column 'scores' already"):
        recommend_on_spark(model, frame.withColumnRenamed("name", "scores"), items="items", **right)
