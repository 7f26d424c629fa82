"""Rows of numbers on a real server: statistics and regressions of users are those of memory, in every bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from apportion import linalg
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import SeededNoise
from apportion.regression import LabelPrivateRegression, MultiTaskERM, MultiTaskRidge, UserERM
from apportion.statistics import UserCovariance, UserGroupBy, UserMean, UserPCA, UserQuantile
from apportion.statistics.paper_mean import PaperMean

LOCAL = LocalEngine(exact=True)
pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


@pytest.fixture(scope="module")
def rows():
    """Rows of 60 users in the order in which the engine puts those of each user."""
    rng = np.random.default_rng(2)
    users = np.repeat(np.arange(60), 1 + rng.geometric(0.4, 60))
    x = rng.uniform(-1, 1, (len(users), 2))
    labels = np.where(x[:, 0] + rng.normal(size=len(users)) > 0, 1.0, 0.0)
    order = np.lexsort((labels, x[:, 1], x[:, 0], users))
    return users[order], x[order], labels[order]


@pytest.fixture(scope="module")
def grouped(rows):
    """The same rows with a group each, in the order in which the engine puts those of a user, and as a table."""
    users, x, labels = rows
    groups = np.random.default_rng(5).choice(["east", "north", "west"], len(users))
    order = np.lexsort((labels, x[:, 1], x[:, 0], groups, users))
    users, x, labels, groups = users[order], x[order], labels[order], groups[order]
    shuffled = np.random.default_rng(4).permutation(len(users))
    columns = {"who": users, "one": x[:, 0], "two": x[:, 1], "label": labels, "ward": groups}
    return users, x, labels, groups, pa.table({name: pa.array(column[shuffled]) for name, column in columns.items()})


@pytest.fixture(scope="module")
def table(rows):
    users, x, labels = rows
    shuffled = np.random.default_rng(3).permutation(len(users))
    columns = {"one": x[:, 0], "who": np.array([f"u{k}" for k in users]), "two": x[:, 1], "label": labels}
    return pa.table({name: pa.array(column[shuffled]) for name, column in columns.items()})


def test_a_mean_of_a_frame_is_that_of_memory(spark, engine, rows, table):
    users, x, _ = rows
    made = {"value_range": (-1, 1), "delta": 1e-5}
    here = UserMean(4.0, engine=LocalEngine(exact=True), noise=SeededNoise(1), **made).fit(x, users=users)
    frame = spark.createDataFrame(table).select("one", "who", "two")
    there = UserMean(4.0, engine=engine, noise=SeededNoise(1), **made).fit(frame, users="who")
    np.testing.assert_array_equal(there.mean_, here.mean_)
    np.testing.assert_array_equal(there.interval_, here.interval_)
    assert there.statement_.to_json() == here.statement_.to_json()


def test_a_regression_on_a_frame_is_that_of_memory(spark, engine, rows, table):
    users, x, labels = rows
    made = {"steps": 3, "sizes": "private"}
    local = LocalEngine(exact=True)
    here = UserERM("logistic", 5.0, 1e-5, engine=local, noise=SeededNoise(1), **made).fit(x, labels, users=users)
    there = UserERM("logistic", 5.0, 1e-5, engine=engine, noise=SeededNoise(1), **made)
    there.fit(spark.createDataFrame(table), "label", users="who")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert there.intercept_ == here.intercept_


ROWS = {
    "covariance": partial(UserCovariance, 4.0, 1e-5),
    "components": partial(UserPCA, 1, 4.0, 1e-5),
    "mean by the paper's weights": partial(PaperMean, 4.0, 1e-5, sizes="private"),
}


@pytest.mark.parametrize("make", ROWS.values(), ids=ROWS)
def test_statistics_of_a_frame_are_those_of_memory(spark, engine, rows, table, make):
    users, x, _ = rows
    here, there = (make(value_range=(-1, 1), engine=each, noise=SeededNoise(1)) for each in (LOCAL, engine))
    here.fit(x, users=users)
    there.fit(spark.createDataFrame(table).select("one", "who", "two"), users="who")
    assert_same_releases(here, there)


@pytest.mark.parametrize("keys", [("west", "east", "zoo"), "from-data", "private"], ids=["given", "own", "private"])
def test_statistics_by_group_of_a_frame_are_those_of_memory(spark, engine, grouped, keys):
    users, x, _, groups, table = grouped
    make = partial(UserGroupBy, ("users", "quantile"), 50.0, 1e-4, value_range=(-1, 1), keys=keys)
    here, there = (make(engine=each, noise=SeededNoise(1)) for each in (LOCAL, engine))
    here.fit(x[:, 0], users=users, by=groups)
    there.fit(spark.createDataFrame(table).select("ward", "one", "who"), users="who", by="ward")
    assert there.groups_ == here.groups_
    assert len(there.groups_) == 3
    assert_same_releases(here, there)


def test_statistics_of_several_columns_of_groups_and_of_none_are_those_of_memory(spark, engine, grouped):
    users, _, labels, groups, table = grouped
    frame = spark.createDataFrame(table)
    for names, columns in ((["ward", "label"], [groups, labels.astype(int)]), ([], [])):
        here, there = (
            UserGroupBy("count", 50.0, 1e-4, keys="from-data", engine=each, noise=SeededNoise(1))
            for each in (LOCAL, engine)
        )
        here.fit(users=users, by=columns)
        there.fit(frame.withColumn("label", frame["label"].cast("int")), users="who", by=names)
        assert there.groups_ == here.groups_
        assert_same_releases(here, there)


REGRESSIONS = {
    "ridge": partial(MultiTaskRidge, 20.0, 1e-4),
    "ERM": partial(MultiTaskERM, "logistic", 20.0, 1e-4, steps=2),
}


@pytest.mark.parametrize("make", REGRESSIONS.values(), ids=REGRESSIONS)
@pytest.mark.parametrize("given", [["west", "north", "east"], None], ids=["given", "own"])
def test_regressions_by_task_of_a_frame_are_those_of_memory(spark, engine, grouped, make, given):
    """Some users have several rows for one task: workers bring them to their mean."""
    users, x, labels, groups, table = grouped
    labels = np.isin(groups, ["east", "west"]).astype(float)  # one label for each pair, as classes need
    table = table.set_column(3, "label", pa.array(np.isin(table.column("ward").to_numpy(), ["east", "west"]) * 1.0))
    here, there = (make(engine=each, noise=SeededNoise(1)) for each in (LOCAL, engine))
    here.fit(x, labels, tasks=groups, users=users, task_ids=given)
    there.fit(spark.createDataFrame(table), "label", tasks="ward", users="who", task_ids=given)
    assert list(there.task_ids_) == list(here.task_ids_)
    assert_same_releases(here, there)


def assert_same_releases(here, there):
    """Everything that was learned is the same in every bit, and so is the statement."""
    learned = [name for name in vars(here) if name.endswith("_") and name not in ("task_ids_", "statement_")]
    assert learned
    for name in learned:
        mine, theirs = getattr(here, name), getattr(there, name)
        for one, two in (
            zip(mine.values(), theirs.values(), strict=True) if isinstance(mine, dict) else [(mine, theirs)]
        ):
            np.testing.assert_array_equal(np.asarray(two), np.asarray(one), name)
    assert there.statement_.to_json() == here.statement_.to_json()


@pytest.mark.parametrize("step", [0.25, None], ids=["on a scale", "on a line"])
def test_quantiles_of_a_frame_are_those_of_memory_on_the_same_points(spark, engine, rows, table, step):
    users, x, _ = rows
    asked = {"value_range": (-1, 1), "step": step}
    there = UserQuantile([0.2, 0.5], 4.0, engine=engine, noise=SeededNoise(1), **asked).fit(
        spark.createDataFrame(table).select("one", "who"), users="who"
    )
    if step is None:
        asked = {"candidates": -1 + 2 * (np.arange(1 << 16) + 0.5) / (1 << 16)}
    here = UserQuantile([0.2, 0.5], 4.0, engine=LOCAL, noise=SeededNoise(1), **asked).fit(x[:, 0], users=users)
    np.testing.assert_array_equal(there.quantiles_, here.quantiles_)
    assert there.threshold_ == here.threshold_


def test_public_features_come_to_the_driver_and_labels_do_not(spark, engine, rows, table):
    users, x, labels = rows
    make = partial(LabelPrivateRegression, 8.0, label_range=(0, 1))
    here = make(engine=LOCAL, noise=SeededNoise(1)).fit(x, labels, users=users)
    there = make(engine=engine, noise=SeededNoise(1)).fit(spark.createDataFrame(table), "label", users="who")
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-9)  # weights of labels are rounded in another order
    np.testing.assert_allclose(there.coef_intervals_, here.coef_intervals_, rtol=1e-9)
    assert [each.name for each in there.statement_.releases] == [each.name for each in here.statement_.releases]


def test_what_a_frame_cannot_do_is_said_in_one_sentence(spark, engine, table):
    frame = spark.createDataFrame(table)
    with pytest.raises(InputError, match=r"give users .* as names of columns"):
        UserMean(1.0, value_range=(0, 1), engine=engine).fit(frame, users=[1, 2])
    with pytest.raises(InputError, match="There is no column 'whom'"):
        UserMean(1.0, value_range=(0, 1), engine=engine).fit(frame, users="whom")
    with pytest.raises(InputError, match="A Spark frame needs an engine on its cluster"):
        UserMean(1.0, value_range=(0, 1)).fit(frame, users="who")
    with pytest.raises(InputError, match="Weights by public sizes needs all users in memory"):
        UserERM("logistic", 5.0, 1e-5, sizes="public", engine=engine).fit(frame, "label", users="who")
    with pytest.raises(
        InputError, match=r"Expected one column of values beside users and groups, got \['one', 'two'\]"
    ):
        UserGroupBy("mean", value_range=(0, 1), engine=engine).fit(frame, users="who", by="label")
    with pytest.raises(InputError, match="Expected one column of values, got 3"):
        UserQuantile(0.5, value_range=(0, 1), engine=engine).fit(frame, users="who")
    with pytest.raises(InputError, match="Expected columns of numbers beside 'who'"):
        UserMean(1.0, value_range=(0, 1), engine=engine).fit(frame.select("who"), users="who")
