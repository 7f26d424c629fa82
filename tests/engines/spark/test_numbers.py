"""Rows of numbers on a real server: means and regressions of users are those of memory, in every bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion import linalg
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import SeededNoise
from apportion.regression import UserERM
from apportion.statistics import UserMean

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
    with pytest.raises(InputError, match="Expected columns of numbers beside 'who'"):
        UserMean(1.0, value_range=(0, 1), engine=engine).fit(frame.select("who"), users="who")
