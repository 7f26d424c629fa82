"""Buckets: a user's bucket follows from its id alone, and bytes hold everything that was there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary
from apportion.engines.spark.buckets import Bucket, bucket_of, buckets_in_memory
from apportion.engines.spark.numbers import PackedNumbers
from apportion.errors import InputError

from strategies import random_interactions


def test_the_bucket_of_a_user_does_not_depend_on_others():
    keys = np.arange(200, dtype=np.uint64).reshape(-1, 2)
    every = bucket_of(keys, 7)
    assert every.tolist() == [int(bucket_of(keys[k : k + 1], 7)[0]) for k in range(100)]
    assert set(every.tolist()) == set(range(7))


def test_every_user_is_in_one_bucket_with_all_rows():
    users = random_interactions(1, n_users=25, n_tasks=6).as_users
    buckets = [Bucket.from_bytes(body) for body in buckets_in_memory(users, 4).values()]
    found = [(bucket.routes.tolist(), bucket.users.sizes.tolist()) for bucket in buckets]
    sizes = {tuple(key): size for keys, many in found for key, size in zip(keys, many, strict=True)}
    assert sizes == {tuple(key): size for key, size in zip(users.keys.tolist(), users.sizes, strict=True)}
    for number, bucket in enumerate(buckets):
        bucket.check(number, 4)


@pytest.mark.parametrize("items", [None, Vocabulary([5, 3]), Vocabulary(["é", "b\0"])], ids=["list", "numbers", "text"])
def test_bytes_hold_everything(items):
    routes = np.array([[1, 0], [2, 0]], np.uint64)
    columns = {"tasks": np.array([0, 1, 1], np.int32), "features": np.arange(6.0).reshape(3, 2)}
    made = Users([0, 2, 3], columns, user_columns={"part": np.array([1, 0])}, n_tasks=2, keys=routes)
    body = Bucket(made, routes, items).to_bytes()
    found = Bucket.from_bytes(body)
    assert found.to_bytes() == body
    assert found.items == items
    np.testing.assert_array_equal(found.users.column("features"), columns["features"])
    np.testing.assert_array_equal(found.users.of_user("part"), [1, 0])
    np.testing.assert_array_equal(found.users.keys, routes)


def test_users_without_ids_have_none_afterwards():
    made = Users([0, 1, 2], {"values": np.ones(2)})
    (body,) = buckets_in_memory(made, 1).values()
    with pytest.raises(InputError, match="users with ids"):
        Bucket.from_bytes(body).users.keys  # noqa: B018


def test_a_user_twice_in_a_bucket_is_refused():
    routes = np.array([[1, 0], [1, 0]], np.uint64)
    twice = Bucket(Users([0, 1, 2], {"values": np.ones(2)}, keys=routes), routes)
    with pytest.raises(InputError, match="the rows of a user in two places"):
        twice.check(int(bucket_of(routes, 3)[0]), 3)


@pytest.mark.parametrize("marks", [[1, 0], [2, 0]], ids=["divided into equal halves", "sent twice"])
def test_equal_halves_of_a_bucket_are_refused(marks):
    kinds = {"bucket": pa.int32(), "low": pa.int64(), "high": pa.int64(), "n0": pa.float64()}
    half = pa.record_batch(
        [pa.array([3, 3], kinds["bucket"]), *(pa.array([7, 7], kind) for kind in [*kinds.values()][1:])], [*kinds]
    )
    mark = pa.record_batch(
        [pa.array([3], kinds["bucket"]), *(pa.nulls(1, kind) for kind in [*kinds.values()][1:])], [*kinds]
    )
    pack = PackedNumbers((("values", 1),), frozenset({"values"}), by_task=False)
    assert len(list(pack(iter([half, half, mark])))) == 1
    parts = [[half, *number * [mark]] for number in marks]
    with pytest.raises(InputError, match="Bucket 3 was divided or repeated"):
        [list(pack(iter(part))) for part in parts]
