"""The engine on a real server: the reference's whole numbers, and refusals where users are lost, split or repeated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion import linalg
from apportion.allocation.weightings import SplitEqually
from apportion.auditing.hidden_values import raw_steps
from apportion.engines import LocalEngine, SparkEngine
from apportion.engines.spark.engine import UsersOnSpark
from apportion.errors import InputError
from apportion.privacy.contributions import TaskCounts
from engine_passes import FITS, differences, forgetful, reference_passes

from strategies import random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")

SLOW = {"ratings, sampled gradient, adaptive", "encoder, gradient of sampled users", "encoder, statistics"}
COUNTS = (TaskCounts(SplitEqually()),)


def new_kinds_of_passes():
    """One pass of every kind: its contributions, what they are made of, and the columns of the users."""
    seen = set()
    for name in (name for name in FITS if name not in SLOW):
        for one in reference_passes(name):
            kind = kind_of(one)
            if kind not in seen:
                seen.add(kind)
                yield name, one


def kind_of(one):
    made_of = {
        (type(each).__name__, tuple(sorted(type(part).__name__ for part in vars(each).values())))
        for each in one.contributions
    }
    return frozenset(made_of), tuple(one.users._columns), tuple(one.users._user_columns)


@pytest.fixture(scope="module")
def data():
    return random_interactions(5, n_users=30, n_tasks=6)


@pytest.fixture(scope="module")
def placed(engine, data):
    return engine._placed(data.as_users)


def counted(engine, frame):
    return raw_steps(engine.add_up(UsersOnSpark(frame, 6), COUNTS)[0])


def test_every_kind_of_pass_gives_the_whole_numbers_of_the_reference(engine):
    wrong, passes = {}, 0
    for name, one in new_kinds_of_passes():
        sums = engine.add_up(forgetful(one.users), one.contributions)
        found = [differences(*both) for both in zip(one.sums, sums, strict=True)]
        passes += 1
        if any(found):
            wrong[f"{name}: {one}"] = found
    assert wrong == {}
    assert passes > 30


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_number_of_partitions_changes_no_number(spark, data, partitions):
    engine = SparkEngine(spark, np.float32, partitions=partitions)
    (here,) = LocalEngine(exact=True).add_up(data.as_users, COUNTS)
    (there,) = engine.add_up(forgetful(data.as_users), COUNTS)
    assert differences(here, there) == []


def test_a_sum_over_nobody_is_zeros(engine, data):
    (found,) = engine.add_up(data.as_users.run(0, 0), COUNTS)
    assert found.shape == (6,)
    assert not raw_steps(found).any()


def test_buckets_that_come_twice_count_once(engine, placed, data):
    wanted = raw_steps(LocalEngine(exact=True).add_up(data.as_users, COUNTS)[0])
    twice = placed.frame.union(placed.frame)
    np.testing.assert_array_equal(counted(engine, twice), wanted)
    np.testing.assert_array_equal(counted(engine, twice.repartition(2, "bucket")), wanted)


def test_a_bucket_that_is_left_out_is_missed(engine, placed):
    with pytest.raises(InputError, match=r"^No task answered for bucket 3 of 16; nothing was released\.$"):
        counted(engine, placed.frame.where("bucket != 3"))


def test_users_in_another_bucket_than_theirs_are_refused(engine, placed):
    moved = placed.frame.selectExpr("cast(pmod(bucket + 1, 16) as int) as bucket", "digest", "body")
    with pytest.raises(InputError, match="holds rows of a user of another bucket"):
        counted(engine, moved)


def test_a_user_whose_rows_are_split_over_two_partitions_is_refused(engine, data):
    """Each part alone would look like a user: two answers for one bucket that do not agree give it away."""
    first = np.arange(data.n_observations) % 2 == 0
    one, two = (engine._placed(data.where(half).as_users).frame for half in (first, ~first))
    seen = r"Two tasks answered for bucket \d+ and do not agree|Bucket \d+ came twice, with different rows"
    with pytest.raises(InputError, match=seen):  # servers place the partitions of a union differently
        counted(engine, one.union(two))
    with pytest.raises(InputError, match=r"Bucket \d+ came twice, with different rows"):
        counted(engine, one.union(two).repartition(1, "bucket"))


def test_rows_that_change_between_two_passes_are_refused(engine, data):
    users = engine._placed(data.as_users)
    engine.add_up(users, COUNTS)
    changed = replace(users, frame=engine._placed(data.without(4).as_users).frame)
    with pytest.raises(InputError, match="has other rows than in the first pass"):
        engine.add_up(changed, COUNTS)


def test_an_engine_needs_a_partition(spark):
    with pytest.raises(InputError, match="at least 1 partition, got 0"):
        SparkEngine(spark, partitions=0)
