"""Users with their rows: any cut gives the same rows, columns go with their users, and nobody else's come along."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import Interactions
from apportion.data.grouping import group_rows
from apportion.data.user_keys import sampling_keys
from apportion.data.users import Users, UsersWithoutRows
from apportion.errors import InputError

from strategies import interactions, random_interactions

SIZES = st.lists(st.integers(0, 5), max_size=12)


def users_of(sizes, **arguments):
    """Users of so many rows each, whose rows and columns are all different."""
    n_rows, n_users = sum(sizes), len(sizes)
    columns = {
        "tasks": np.concatenate([np.arange(size) for size in sizes] or [[]]).astype(np.int32),
        "values": np.arange(n_rows, dtype=np.float32),
        "features": np.arange(2.0 * n_rows).reshape(n_rows, 2),
    }
    of_users = {"part": np.arange(n_users), "vectors": np.arange(3.0 * n_users).reshape(n_users, 3)}
    keys = np.arange(2 * n_users, dtype=np.uint64).reshape(n_users, 2)
    given = {"user_columns": of_users, "n_tasks": 5, "keys": keys, **arguments}
    return Users(np.concatenate([[0], np.cumsum(sizes)]), columns, **given)


ROWS, OF_USERS = ("tasks", "values", "features"), ("part", "vectors")


def assert_same_rows(whole, runs):
    """The runs together are the whole, user by user and row by row."""
    assert np.concatenate([run.sizes for run in runs] or [[]]).tolist() == whole.sizes.tolist()
    for name in ROWS:
        np.testing.assert_array_equal(np.concatenate([run.column(name) for run in runs]), whole.column(name))
    for name in OF_USERS:
        np.testing.assert_array_equal(np.concatenate([run.of_user(name) for run in runs]), whole.of_user(name))
    np.testing.assert_array_equal(np.concatenate([run.keys for run in runs]), whole.keys)
    assert {run.n_tasks for run in runs} == {whole.n_tasks}


@given(SIZES, st.integers(1, 20))
def test_any_number_of_runs_has_the_same_rows(sizes, number):
    whole = users_of(sizes)
    runs = whole.cut(number)
    assert len(runs) == number
    if sizes:  # where there is nobody, every run is nobody
        assert_same_rows(whole, runs)
        assert max(run.n_users for run in runs) - min(run.n_users for run in runs) <= 1


@given(SIZES, st.integers(1, 40), st.none() | st.integers(1, 5))
def test_runs_of_any_length_have_the_same_rows_and_cut_no_user(sizes, rows, at_most):
    whole = users_of(sizes)
    runs = list(whole.runs(rows, at_most))
    if sizes:
        assert_same_rows(whole, runs)
    for run in runs:
        assert run.n_users >= 1
        assert run.n_rows <= rows or run.n_users == 1
        assert at_most is None or run.n_users <= at_most
    for one, two in itertools.pairwise(runs):  # no run is shorter than it need be
        assert one.n_users == at_most or one.n_rows + two.sizes[0] > rows


@given(SIZES, st.data())
def test_a_run_of_a_run_is_a_run(sizes, data):
    whole = users_of(sizes)
    first = data.draw(st.integers(0, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    start = data.draw(st.integers(0, last - first))
    stop = data.draw(st.integers(start, last - first))
    one, two = whole.run(first, last).run(start, stop), whole.run(first + start, first + stop)
    assert_same_rows(one, [two])
    assert one.n_rows == sum(sizes[first + start : first + stop])


@given(interactions(), st.integers(1, 15))
def test_what_a_run_says_of_its_users_is_what_the_whole_says_of_them(data, number):
    whole = data.as_users
    assert whole.column("tasks") is data.tasks
    np.testing.assert_array_equal(whole.owner, data.users)
    np.testing.assert_array_equal(whole.keys, sampling_keys(data.user_ids))
    first = 0
    for run in whole.cut(number):
        part = slice(first, first + run.n_users)
        np.testing.assert_array_equal(run.present, whole.present[part])
        np.testing.assert_array_equal(run.owner + first, whole.owner[np.isin(whole.owner, np.arange(first, part.stop))])
        order = run.by_task
        tasks = np.repeat(np.arange(run.n_tasks), np.diff(order.indptr))
        np.testing.assert_array_equal(run.column("tasks")[order.order], tasks)
        np.testing.assert_array_equal(run.owner[order.order], order.indices)
        for task in range(run.n_tasks):
            assert (np.diff(order.indices[order.indptr[task] : order.indptr[task + 1]]) > 0).all()
        first = part.stop


def test_users_by_task_are_the_interactions_by_task():
    data = random_interactions(3)
    mine, theirs = data.as_users.by_task, data.by_task
    for name in ("indptr", "indices", "order"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))


def test_rows_in_any_order_are_brought_together_by_user():
    groups, values = np.array(["b", "a", "b", "c", "a"]), np.arange(5.0)
    users = group_rows(groups, 5).users({"part": np.array([7, 8, 9])}, values=values)
    assert [run.column("values").tolist() for run in users.runs(1)] == [[1.0, 4.0], [0.0, 2.0], [3.0]]
    assert [run.of_user("part").tolist() for run in users.runs(1)] == [[7], [8], [9]]


# -- columns and keys --


def test_further_columns_go_with_the_others():
    users = users_of([2, 0, 1])
    more = users.with_columns(labels=np.array([5.0, 6.0, 7.0])).with_user_columns(own=np.array([1, 2, 3]))
    assert more.run(1, 3).column("labels").tolist() == [7.0]
    assert more.run(1, 3).of_user("own").tolist() == [2, 3]
    assert_same_rows(users, [more])
    other = users.with_columns(values=np.zeros(3)).with_user_columns(part=np.zeros(3))
    assert not other.column("values").any()
    assert users.column("values").tolist() == [0.0, 1.0, 2.0]
    for missing in (users.column, users.of_user):
        with pytest.raises(KeyError, match="labels"):
            missing("labels")


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="Expected 3 entries of 'labels', one per row, got 2"):
        users_of([2, 1]).with_columns(labels=np.zeros(2))
    with pytest.raises(InputError, match="Expected 2 entries of 'own', one per user, got 3"):
        users_of([2, 1]).with_user_columns(own=np.zeros(3))
    for offsets in ([], [1, 2], [0, 2, 1]):
        with pytest.raises(InputError, match="offsets that start with 0 and do not decrease"):
            Users(offsets, {})


def test_keys_are_made_when_they_are_asked_for_and_once():
    made = []

    def keys():
        made.append("keys")
        return np.arange(6, dtype=np.uint64).reshape(3, 2)

    users = users_of([1, 1, 1], keys=keys)
    assert not made
    assert users.run(1, 3).keys.tolist() == [[2, 3], [4, 5]]
    assert users.keys.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert made == ["keys"]


def test_users_without_ids_have_no_keys():
    users = users_of([1, 1], keys=None)
    for some in (users, users.run(0, 1)):
        with pytest.raises(InputError, match="users with ids"):
            _ = some.keys


def test_a_key_does_not_depend_on_who_else_is_there():
    data = random_interactions(4)
    kept = data.users != 5
    ids = data.user_ids.ids_of(data.users[kept])
    rest = Interactions.from_arrays(ids, data.tasks[kept], data.values[kept]).as_users
    np.testing.assert_array_equal(rest.keys, np.delete(data.as_users.keys, 5, axis=0))


# -- what is remembered --


def counting():
    """A function that makes one row per user, and how often it did."""
    calls = []

    def make(users):
        calls.append(users.n_users)
        return users.of_user("vectors") * 2

    return make, calls


def test_what_was_made_is_remembered_for_the_same_object_and_no_other():
    users, (make, calls), (one, two) = users_of([2, 1, 1]), counting(), (object(), object())
    first = users.remembered(one, make)
    assert users.remembered(one, make) is first
    assert calls == [3]
    users.remembered(two, make)
    assert calls == [3, 3]
    with_more = users.with_columns(more=np.zeros(4))
    np.testing.assert_array_equal(with_more.remembered(one, make), first)
    assert calls == [3, 3, 3]  # other users, though of the same rows


def test_only_the_last_few_are_kept():
    users, (make, calls), values = users_of([2, 1, 1]), counting(), [object() for _ in range(5)]
    for value in values:
        users.remembered(value, make)
    users.remembered(values[-1], make)
    assert len(calls) == 5
    users.remembered(values[0], make)
    assert len(calls) == 6


def test_what_is_asked_for_again_stays():
    users, (make, calls), values = users_of([2, 1, 1]), counting(), [object() for _ in range(7)]
    for value in values[1:]:
        users.remembered(values[0], make)
        users.remembered(value, make)
    users.remembered(values[0], make)
    assert len(calls) == 7


@given(SIZES, st.integers(1, 9), st.integers(1, 9))
def test_a_run_takes_its_part_of_what_all_remember(sizes, number, pieces):
    users, (make, calls), value = users_of(sizes), counting(), object()
    for run in users.cut(number):
        for piece in run.cut(pieces):
            np.testing.assert_array_equal(piece.remembered_rows(value, make), piece.of_user("vectors") * 2)
    assert calls == [len(sizes)]  # once, for all


def test_a_run_remembers_for_itself_what_has_no_row_per_user():
    users, (make, calls), value = users_of([0, 2, 1]), counting(), object()
    users.remembered(value, make)
    run = users.run(1, 2)
    np.testing.assert_array_equal(run.remembered(value, make), run.of_user("vectors") * 2)
    assert calls == [3, 1]


# -- sent elsewhere --


def test_a_run_that_is_sent_takes_its_own_rows_along_and_nothing_else():
    data = random_interactions(5, n_users=60)
    run = data.as_users.with_columns(secret=np.arange(data.n_observations) + 1e6).run(3, 5)
    run.remembered(run, lambda some: np.full(1000, 77.0))
    _ = run.by_task
    message = pickle.dumps(run)
    again = pickle.loads(message)
    for name in ("tasks", "values", "secret"):
        np.testing.assert_array_equal(again.column(name), run.column(name))
    np.testing.assert_array_equal(again.keys, run.keys)
    assert (again.n_users, again.n_tasks, again.indptr.tolist()) == (2, run.n_tasks, run.indptr.tolist())
    everything, own = 1e6 + np.arange(data.n_observations), set(run.column("secret").tolist())
    found = {each for each in everything.tolist() if np.float64(each).tobytes() in message}
    assert found == own
    assert np.float64(77.0).tobytes() * 10 not in message
    np.testing.assert_array_equal(again.by_task.indices, run.by_task.indices)


def test_users_that_are_sent_take_their_keys_along_and_not_what_makes_them():
    data = random_interactions(5, n_users=60).as_users
    assert b"partial" not in pickle.dumps(data)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).keys, data.keys)


@pytest.mark.parametrize("left_out", [0.0, 0.1, 0.9])
def test_users_without_rows_at_some_positions_are_those_with_the_other_rows(left_out):
    users = random_interactions(7, n_users=60).as_users
    mask = np.random.default_rng(1).random(users.n_rows) >= left_out
    expected, found = users.with_rows(mask), users.without_rows(np.flatnonzero(~mask))
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    for name in ("tasks", "values"):
        np.testing.assert_array_equal(found.column(name), expected.column(name))


def test_printing_users_shows_their_columns_and_none_of_their_rows():
    users = users_of([2, 1, 4])
    assert repr(users) == "Users(tasks, values, features; values hidden)" == str(users)


@given(SIZES, st.data(), st.integers(1, 9))
def test_rows_left_out_part_by_part_are_those_left_out_at_once(sizes, drawn, rows):
    users = users_of(sizes)
    kept = np.array(drawn.draw(st.lists(st.booleans(), min_size=users.n_rows, max_size=users.n_rows)), bool)
    fewer = UsersWithoutRows(users, kept, rows).mapped(lambda part: part.with_columns(twice=2 * part.column("values")))
    parts, expected = [fewer.nobody(), *fewer.parts()], users.with_rows(kept)
    assert fewer.n_tasks == users.n_tasks
    assert np.array_equal(np.concatenate([part.sizes for part in parts]), expected.sizes)
    for name in ROWS:
        assert np.array_equal(np.concatenate([part.column(name) for part in parts]), expected.column(name))
    assert np.array_equal(np.concatenate([part.column("twice") for part in parts]), 2 * expected.column("values"))
    assert np.array_equal(np.concatenate([part.keys for part in parts]), expected.keys)
    assert "hidden" in repr(fewer)
