"""Weights over tasks: one unit of sensitivity a user, whatever anybody else does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.allocation import (
    SplitByValue,
    SplitEqually,
    TaskFactors,
    adaptive,
    closed_form,
    tail_sample,
    uniform_sample,
)
from apportion.allocation.policies import ReleasedCounts
from apportion.allocation.weightings import OnSample, OnTasks, TimesFactors
from apportion.data import Interactions
from apportion.errors import InputError
from apportion.privacy.neighbours import ADD_REMOVE, REPLACE_VALUES_PUBLIC_GRAPH
from apportion.privacy.sampling import Sample

from strategies import interactions, random_interactions

POPULARITY = np.array([5.0, 1.0, 0.5, 8.0, 2.0, 2.0, 30.0, 0.1, 1.0])
EVEN = np.arange(9) % 2 == 0
SAMPLE = Sample(bytes(range(32)), 0.5)


def signed(users):
    """A number of every row, of both signs, some of them large."""
    return 3 * np.sin(users.column("tasks") + 7.0 * users.keys[users.owner, 0].astype(float))


WEIGHTINGS = {
    "equal split": SplitEqually(),
    "by value": SplitByValue((1.0, 5.0)),
    "adaptive 1/4": adaptive(POPULARITY, 0.25),
    "adaptive -1/4": adaptive(POPULARITY, -0.25),
    "closed form": closed_form(POPULARITY, 0.5, 12),
    "uniform sample": uniform_sample(2, seed=7),
    "tail sample": tail_sample(POPULARITY, 2),
    "on even tasks": OnTasks(adaptive(POPULARITY, 0.25), EVEN, "even tasks"),
    "of a sample": OnSample(adaptive(POPULARITY, 0.25), SAMPLE),
    "times numbers": TimesFactors(SplitEqually(), signed, 0.5),
    "times numbers, of a sample": OnSample(TimesFactors(SplitEqually(), signed, 0.5), SAMPLE),
}


def weights_of(data, weighting):
    return weighting.of(data.as_users)._values


def per_user_squares(data, weights):
    return np.bincount(data.users, np.square(weights, dtype=np.float64), minlength=data.n_users)


@pytest.mark.parametrize("weighting", WEIGHTINGS.values(), ids=WEIGHTINGS)
@given(data=interactions(), user=st.integers(0, 11))
def test_squares_sum_to_at_most_one_and_removing_a_user_moves_nobody_elses_weights(weighting, data, user):
    weights, rest = weights_of(data, weighting), weights_of(data.without(user), weighting)
    assert per_user_squares(data, weights).max() <= 1.0
    np.testing.assert_array_equal(weights[data.users != user], rest)


@pytest.mark.parametrize("weighting", WEIGHTINGS.values(), ids=WEIGHTINGS)
@given(data=interactions(), number=st.integers(1, 14))
def test_weights_of_a_run_are_those_of_its_users_among_all(weighting, data, number):
    whole = weights_of(data, weighting)
    cut = [weighting.form(run)._values for run in data.as_users.cut(number)]
    np.testing.assert_array_equal(np.concatenate(cut), whole)


def test_rows_count_by_the_place_of_their_values_in_the_scale():
    data = Interactions.from_arrays([0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 1, 2], [1.0, 3.0, 9.0, 5.0, 5.0, 0.0])
    np.testing.assert_allclose(
        weights_of(data, SplitByValue((1.0, 5.0))), [0, 0.2**0.5, 0.8**0.5, 0.5**0.5, 0.5**0.5, 0], atol=1e-6
    )


@pytest.mark.parametrize("name", ["equal split", "adaptive 1/4"])
def test_normalised_weights_use_the_whole_unit(name):
    data = random_interactions(1)
    assert per_user_squares(data, weights_of(data, WEIGHTINGS[name])).min() > 1 - 1e-5


def test_a_larger_exponent_moves_weight_to_rare_tasks():
    data = random_interactions(2)
    rarest = POPULARITY[data.tasks] == POPULARITY[data.tasks].min()
    shares = [weights_of(data, adaptive(POPULARITY, e))[rarest].sum() for e in (0.0, 0.25, 0.5)]
    assert shares[0] < shares[1] < shares[2]


def test_the_closed_form_is_equation_16():
    data = random_interactions(3, n_users=400)
    counts = np.bincount(data.tasks, minlength=data.n_tasks).astype(float)
    omega = counts**-0.5 / np.sqrt(data.n_tasks / 400)
    expected = omega[data.tasks]
    heavy = np.bincount(data.users, expected**2, minlength=400)
    expected = expected / np.sqrt(np.maximum(heavy, 1))[data.users]
    np.testing.assert_allclose(weights_of(data, closed_form(counts, 0.5, 400)), expected, rtol=1e-5)


def test_samples_keep_at_most_the_limit_and_the_tail_sample_keeps_the_rarest():
    data = random_interactions(4, density=0.9)
    for name in ("uniform sample", "tail sample"):
        kept = np.bincount(data.users, weights_of(data, WEIGHTINGS[name]) > 0, minlength=data.n_users)
        np.testing.assert_array_equal(kept, np.minimum(data.by_user.counts, 2))
    weights = weights_of(data, WEIGHTINGS["tail sample"])
    for user in range(data.n_users):
        mine = data.users == user
        kept = POPULARITY[data.tasks[mine & (weights > 0)]]
        dropped = POPULARITY[data.tasks[mine & (weights == 0)]]
        assert not len(dropped) or kept.max() <= dropped.min()


def test_uniform_samples_are_uniform_over_seeds():
    data = random_interactions(5, density=0.9)
    heavy = int(np.argmax(data.by_user.counts))
    mine = data.users == heavy
    kept = sum((weights_of(data, uniform_sample(2, seed))[mine] > 0).astype(int) for seed in range(2000))
    expected = 2000 * 2 / mine.sum()
    assert np.abs(kept - expected).max() < 6.5 * np.sqrt(expected)  # false alarm below 1e-9 a task


def test_on_some_tasks_a_users_squares_add_up_to_what_they_did_before():
    data = random_interactions(7, density=0.9)
    before, weights = (weights_of(data, WEIGHTINGS[name]) for name in ("adaptive 1/4", "on even tasks"))
    assert not weights[~EVEN[data.tasks]].any()
    has_one = np.bincount(data.users, EVEN[data.tasks], minlength=data.n_users) > 0
    squares = per_user_squares(data, weights), per_user_squares(data, before)
    np.testing.assert_allclose(squares[0], np.where(has_one, squares[1], 0.0), rtol=1e-5)


def test_in_a_sample_weights_are_as_before_and_outside_it_0():
    data = random_interactions(8, n_users=60)
    before, weights = (weights_of(data, WEIGHTINGS[name]) for name in ("adaptive 1/4", "of a sample"))
    members = SAMPLE.members(data.as_users.keys)
    assert 10 < members.sum() < 50
    np.testing.assert_array_equal(weights, np.where(members[data.users], before, 0))


def test_weights_times_numbers_are_clipped_for_each_user():
    data = random_interactions(9)
    products = weights_of(data, SplitEqually()) * signed(data.as_users) / 0.5
    lengths = np.sqrt(per_user_squares(data, products))
    assert lengths.min() < 1 < lengths.max()
    expected = products / np.maximum(lengths, 1)[data.users]
    np.testing.assert_allclose(weights_of(data, WEIGHTINGS["times numbers"]), expected, rtol=2e-6)


def test_the_relation_and_the_sign_are_handed_on():
    graph = SplitEqually(REPLACE_VALUES_PUBLIC_GRAPH)
    users = random_interactions(1).as_users
    for plain in (graph, OnTasks(graph, EVEN, "even tasks"), OnSample(graph, SAMPLE)):
        assert plain.neighbours == plain.of(users).neighbours == REPLACE_VALUES_PUBLIC_GRAPH
        assert plain.moved(1.0) == 2.0
        assert not plain.signed
    times = TimesFactors(graph, signed, 1.0)
    assert times.signed
    assert OnSample(times, SAMPLE).signed
    assert OnTasks(times, EVEN, "even tasks").signed
    assert times.moved_gram(1.0) == 2.0 > graph.moved_gram(1.0)
    assert TaskFactors(POPULARITY, "x").neighbours == ADD_REMOVE


def test_popularity_converts_exactly_when_users_are_equally_active():
    """Users of 16 tasks each add 1/4 to every task of theirs."""
    released = ReleasedCounts(np.full(64, 10.0), 0.5, 160.0)
    assert released.users_per_task == pytest.approx(np.full(64, 40.0))
    assert released.users_stddev == pytest.approx(2.0)


def test_popularity_must_be_positive_and_limits_sensible():
    with pytest.raises(InputError, match="floor released counts"):
        adaptive(POPULARITY - 1, 0.5)
    with pytest.raises(InputError, match="at least 1 task per user, got 0"):
        uniform_sample(0, seed=1)
    with pytest.raises(InputError, match="at least 1 task per user, got 0"):
        tail_sample(POPULARITY, 0)
    with pytest.raises(InputError, match="number of users, got 0"):
        closed_form(POPULARITY, 0.5, 0)
