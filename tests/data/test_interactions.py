"""Interactions from arrays: order, segments, neighbours, immutability, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.data import Interactions, Vocabulary
from apportion.errors import InputError


@st.composite
def observations(draw):
    """Distinct (user, task) pairs of at least two users, in any order, with values and timestamps."""
    pairs = draw(st.sets(st.tuples(st.integers(0, 6), st.integers(-3, 5)), min_size=2, max_size=40))
    pairs |= {(7, 0), (8, 0)}
    rows = draw(st.permutations(sorted(pairs)))
    users, tasks = (np.array(column) for column in zip(*rows, strict=True))
    values = np.arange(len(rows)) / 4
    return users, tasks, values, np.arange(len(rows)) * 10


def as_rows(data: Interactions) -> set[tuple[object, ...]]:
    """The observations as a set of (user id, task id, value, timestamp)."""
    times = data.timestamps if data.timestamps is not None else np.zeros(data.n_observations)
    ids = data.user_ids.ids_of(data.users).tolist(), data.task_ids.ids_of(data.tasks).tolist()
    return set(zip(*ids, data.values.tolist(), times.tolist(), strict=True))


@given(observations())
def test_rows_come_back_whatever_order_they_came_in(columns):
    data = Interactions.from_arrays(*columns)
    assert as_rows(data) == set(zip(*(column.tolist() for column in columns), strict=True))


@given(observations())
def test_rows_are_sorted_by_user_and_then_task(columns):
    data = Interactions.from_arrays(*columns)
    keys = list(zip(data.users.tolist(), data.tasks.tolist(), strict=True))
    assert keys == sorted(keys)
    assert data.users.dtype == data.tasks.dtype == np.int32
    assert data.values.dtype == np.float32
    assert data.timestamps is not None
    assert data.timestamps.dtype == np.int64


@given(observations())
def test_the_order_of_the_rows_does_not_matter(columns):
    backwards = Interactions.from_arrays(*(column[::-1] for column in columns))
    assert backwards == Interactions.from_arrays(*columns)


@given(observations())
def test_text_ids_give_the_same_data_under_other_names(columns):
    users, tasks, values, times = columns
    named = Interactions.from_arrays([f"u{user}" for user in users], tasks, values, times)
    plain = Interactions.from_arrays(users, tasks, values, times)
    assert as_rows(named) == {(f"u{row[0]}", *row[1:]) for row in as_rows(plain)}


@given(observations())
def test_segments_by_user_hold_each_users_rows(columns):
    data = Interactions.from_arrays(*columns)
    segments = data.by_user
    assert segments.n_segments == data.n_users
    assert segments.order is None
    for user in range(data.n_users):
        rows = slice(segments.indptr[user], segments.indptr[user + 1])
        assert (data.users[rows] == user).all()
        assert segments.indices[rows].tolist() == data.tasks[data.users == user].tolist()
        assert segments.values[rows].tolist() == data.values[data.users == user].tolist()


@given(observations())
def test_segments_by_task_hold_each_tasks_rows_and_lead_back(columns):
    data = Interactions.from_arrays(*columns)
    segments = data.by_task
    assert segments.order is not None
    assert data.users[segments.order].tolist() == segments.indices.tolist()
    assert data.values[segments.order].tolist() == segments.values.tolist()
    assert segments.counts.tolist() == [int((data.tasks == task).sum()) for task in range(data.n_tasks)]
    for task in range(data.n_tasks):
        rows = slice(segments.indptr[task], segments.indptr[task + 1])
        assert segments.indices[rows].tolist() == data.users[data.tasks == task].tolist()


def test_segments_by_task_are_right_beyond_sixteen_bits_of_tasks():
    rng = np.random.default_rng(0)
    tasks = rng.choice(200_000, size=5_000, replace=False)
    ids = {"user_ids": Vocabulary.of_range(2), "task_ids": Vocabulary.of_range(200_000)}
    data = Interactions.from_codes(rng.integers(0, 2, 5_000), tasks, **ids)
    order = data.by_task.order
    assert order is not None
    assert (data.tasks[order] == np.sort(tasks)).all()


@given(observations(), st.integers(0, 8))
def test_the_neighbour_without_a_user_keeps_vocabularies_and_every_other_row(columns, position):
    data = Interactions.from_arrays(*columns)
    user = position % data.n_users
    rest = data.without(user)
    assert rest.user_ids == data.user_ids
    assert rest.task_ids == data.task_ids
    assert (rest.n_users, rest.n_tasks) == (data.n_users, data.n_tasks)
    assert as_rows(rest) == {row for row in as_rows(data) if row[0] != data.user_ids.id_of(user)}
    assert rest.by_user.counts[user] == 0


@given(observations(), st.data())
def test_selecting_users_by_codes_or_by_mask_is_the_same(columns, draw):
    data = Interactions.from_arrays(*columns)
    mask = np.array(draw.draw(st.lists(st.booleans(), min_size=data.n_users, max_size=data.n_users)))
    by_mask = data.select_users(mask)
    assert by_mask == data.select_users(np.flatnonzero(mask))
    assert set(by_mask.users.tolist()) == set(np.flatnonzero(mask).tolist())


def test_other_values_go_to_the_same_pairs():
    data = Interactions.from_arrays([2, 1, 1], [5, 6, 5], [1.0, 2.0, 3.0])
    assert data.with_values([7.0, 8.0, 9.0]).values.tolist() == [7.0, 8.0, 9.0]
    assert data.with_values(1.0).values.tolist() == [1.0, 1.0, 1.0]
    assert data.values.tolist() == [3.0, 2.0, 1.0]


def test_without_values_every_observation_counts_one():
    data = Interactions.from_arrays([1, 2], [1, 1])
    assert data.values.tolist() == [1.0, 1.0]
    assert data.timestamps is None


def test_a_public_list_gives_tasks_that_nobody_touched_and_keeps_its_order():
    data = Interactions.from_arrays([1, 2], ["b", "a"], task_ids=["c", "b", "a"])
    assert data.n_tasks == 3
    assert data.tasks.tolist() == [1, 2]
    assert data.by_task.counts.tolist() == [0, 1, 1]


def test_arrays_cannot_be_written_to_and_those_given_stay_free():
    values = np.array([1.0, 2.0], np.float32)
    data = Interactions.from_arrays([1, 2], [1, 1], values, [5, 6])
    values[0] = 9.0
    assert data.values[0] == 1.0
    arrays = [data.users, data.tasks, data.values, data.timestamps, data.by_user.indptr]
    arrays += [data.by_task.indptr, data.by_task.indices, data.by_task.values, data.by_task.order]
    for array in arrays:
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        data.users = data.tasks  # type: ignore[misc]


@given(observations())
@settings(max_examples=20)
def test_data_survive_pickling_and_stay_protected(columns):
    data = Interactions.from_arrays(*columns)
    restored = pickle.loads(pickle.dumps(data))
    assert restored == data
    assert not restored.values.flags.writeable


def test_data_differ_if_anything_differs():
    data = Interactions.from_arrays([1, 2], [1, 2], [1.0, 2.0], [5, 6])
    assert data == Interactions.from_arrays([1, 2], [1, 2], [1.0, 2.0], [5, 6])
    assert data != Interactions.from_arrays([1, 2], [1, 2], [1.0, 2.5], [5, 6])
    assert data != Interactions.from_arrays([1, 2], [1, 2], [1.0, 2.0])
    assert data != Interactions.from_arrays([1, 3], [1, 2], [1.0, 2.0], [5, 6])
    assert data != "data"


def test_the_printed_form_shows_sizes_only():
    data = Interactions.from_arrays(["ann", "bob"], ["x", "y"], [1.25, 2.5])
    assert repr(data) == str(data) == "Interactions(n_users=2, n_tasks=2, n_observations=2)"


OBJECTS = np.array([1, None], object)
REFUSED = {
    "no rows": (([], []), "Column 'users' is empty; expected at least two rows"),
    "one user": (([4, 4], [1, 2]), r"Column 'users' holds the same user 4 in every row \(rows 1 to 2\)"),
    "fewer tasks": (([1, 2], [1]), r"Expected tasks to have 2 rows, one per user, got shape \(1,\)"),
    "fewer values": (([1, 2], [1, 2], [1.0]), "Expected values to have 2 rows, one per user, got 1"),
    "more times": (([1, 2], [1, 2], [1, 1], [1, 2, 3]), "Expected timestamps to have 2 rows, .* got 3"),
    "a matrix": (([[1, 2]], [1]), r"Expected users as a one-dimensional array, got shape \(1, 2\)"),
    "NaN": (([1, 2], [1, 2], [1, np.nan]), r"Column 'values' holds nan in row 2 \(counting data rows from 1\)"),
    "infinity": (([1, 2], [1, 2], [-np.inf, 1]), "Column 'values' holds -inf in row 1"),
    "overflow": (([1, 2], [1, 2], [1, 1e39]), r"Column 'values' holds 1e\+39 in row 2"),
    "text value": (([1, 2], [1, 2], ["4", "good"]), "Column 'values' holds '4' in row 1 .* expected a number"),
    "missing value": (([1, 2], [1, 2], OBJECTS), "Column 'values' is empty in row 2"),
    "missing user": ((OBJECTS, [1, 2]), "Column 'users' is empty in row 2 .* expected an integer"),
    "fraction as id": (([1, 2.5], [1, 2]), r"Column 'users' holds 2\.5 in row 2"),
    "NaN as id": (([1, 2], [np.nan, 2]), "Column 'tasks' holds nan in row 1"),
    "truth as id": (([True, False], [1, 2]), "Column 'users' holds True in row 1 .* expected integers or text"),
    "huge id": ((np.array([1, 2**63], np.uint64), [1, 2]), "Column 'users' holds 9223372036854775808 in row 2"),
    "no time": (([1, 2], [1, 2], None, [1.0, np.nan]), "Column 'timestamps' holds nan in row 2"),
    "repeated": (([1, 2, 1], [7, 7, 7]), "User 1 has item 7 in row 1 and again in row 3 .* each pair once"),
}


@pytest.mark.parametrize(("columns", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(columns, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        Interactions.from_arrays(*columns)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_of_several_repeated_pairs_the_first_to_repeat_is_named():
    with pytest.raises(InputError, match="User 9 has item 1 in row 2 and again in row 3"):
        Interactions.from_arrays([1, 9, 9, 1, 1], [1, 1, 1, 1, 1])


def test_a_task_outside_the_public_list_is_named_where_it_first_occurs():
    with pytest.raises(InputError, match=r"Column 'tasks' holds 8 in row 2 .* one of the 2 items of the public"):
        Interactions.from_arrays([1, 2, 3], [5, 8, 8], task_ids=[5, 6])
    with pytest.raises(InputError, match=r"Column 'tasks' holds 5 in row 1 .* text, as in the public list"):
        Interactions.from_arrays([1, 2], [5, 8], task_ids=["5", "8"])
    with pytest.raises(InputError, match="Expected distinct items, got 5 more than once"):
        Interactions.from_arrays([1, 2], [5, 5], task_ids=[5, 6, 5])


def test_codes_out_of_range_are_named():
    two = Vocabulary.of_range(2, name="user")
    with pytest.raises(InputError, match="Expected the code of one user from 0 to 1, got -1"):
        Interactions.from_codes([0, -1], [0, 1], user_ids=two, task_ids=two)
    with pytest.raises(InputError, match="got 2"):
        Interactions.from_arrays([1, 2], [1, 2]).without(2)
    with pytest.raises(InputError, match="Expected a boolean mask over 2 observations"):
        Interactions.from_arrays([1, 2], [1, 2]).where([True])


def test_the_constructor_refuses_rows_out_of_order():
    two, codes = Vocabulary.of_range(2), np.array([1, 0], np.int32)
    with pytest.raises(InputError, match="row 2 out of order"):
        Interactions(codes, codes, np.ones(2, np.float32), None, two, two)


def test_dates_become_seconds():
    data = Interactions.from_arrays([1, 2], [1, 2], None, np.array(["1970-01-02", "1970-01-01"], "M8[D]"))
    assert data.timestamps is not None
    assert data.timestamps.tolist() == [86400, 0]


def test_data_and_generators_import_with_numpy_alone():
    program = (
        "import sys\n"
        "for name in ('pyarrow', 'scipy', 'pandas', 'polars', 'torch'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from apportion.data import Interactions, synthetic\n"
        "data, _ = synthetic.long_tailed_ratings(5, 5, 10, rank=1, rng=np.random.default_rng(0))\n"
        "data.split_by_value(np.random.default_rng(0)); data.by_task\n"
        "Interactions.from_arrays(['a', 'b'], [1, 2])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
