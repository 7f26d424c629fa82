"""Splits: nothing is lost, nothing is in two parts, everybody keeps a history and a target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import Interactions
from apportion.errors import InputError

N_USERS, N_TASKS = 30, 25


def random_data(seed: int) -> Interactions:
    """Users with very different numbers of observations; every fifth has fewer than five."""
    rng = np.random.default_rng(seed)
    counts = np.where(np.arange(N_USERS) % 5 == 0, rng.integers(1, 5, N_USERS), rng.integers(5, 25, N_USERS))
    pairs = [(user, task) for user in range(N_USERS) for task in rng.permutation(N_TASKS)[: counts[user]]]
    users, tasks = np.array(pairs).T
    return Interactions.from_arrays(users, tasks, rng.random(len(users)), np.arange(len(users)))


data_sets = st.integers(0, 2**32 - 1).map(random_data)
seeds = st.integers(0, 2**32 - 1)


def rows(*parts: Interactions) -> list[tuple[float, ...]]:
    """All observations of some parts, sorted."""
    columns = [(part.users, part.tasks, part.values, part.timestamps) for part in parts]
    return sorted(row for part in columns for row in zip(*(column.tolist() for column in part), strict=True))


@given(data_sets, seeds)
def test_a_split_by_value_is_a_partition(data, seed):
    parts = data.split_by_value(np.random.default_rng(seed))
    assert rows(*parts) == rows(data)


@given(data_sets, seeds)
def test_parts_have_the_sizes_asked_for_and_the_same_vocabularies(data, seed):
    fractions = (0.5, 0.3, 0.2)
    parts = data.split_by_value(np.random.default_rng(seed), fractions)
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(part.n_observations - fraction * data.n_observations) <= 1
        assert part.user_ids == data.user_ids
        assert part.task_ids == data.task_ids


def test_every_observation_is_as_likely_to_land_in_each_part():
    data, n_runs = random_data(3), 2_000
    landed = np.zeros(data.n_observations)
    for seed in range(n_runs):
        test = data.split_by_value(np.random.default_rng(seed), (0.9, 0.1))[1]
        landed[np.isin(data.timestamps, test.timestamps)] += 1
    spread = np.sqrt(n_runs * 0.1 * 0.9)
    # 6 standard deviations: a false alarm in one of some 400 cells has probability below 1e-6
    assert np.abs(landed - n_runs * 0.1).max() < 6 * spread


@given(data_sets, seeds, st.floats(0.05, 0.95))
def test_held_out_users_are_apart_and_lose_nothing(data, seed, history):
    split = data.split_by_users(np.random.default_rng(seed), 5, 7, history)
    held = [split.validation, split.test]
    assert rows(split.train, *(part for h in held for part in (h.history, h.target))) == rows(data)
    groups = [set(split.train.users)] + [set(h.history.users) for h in held]
    assert [len(group) for group in groups[1:]] == [5, 7]
    assert len(set.union(*groups)) == sum(map(len, groups)) == data.n_users


@given(data_sets, seeds, st.floats(0.05, 0.95))
def test_every_held_out_user_has_a_history_and_a_target_of_the_right_size(data, seed, history):
    split = data.split_by_users(np.random.default_rng(seed), 5, 7, history)
    for held in (split.validation, split.test):
        shown, hidden = held.history.by_user.counts, held.target.by_user.counts
        total = data.by_user.counts
        users = np.flatnonzero(shown)
        assert (users == np.flatnonzero(hidden)).all()
        assert (total[users] >= 5).all()
        assert ((shown + hidden)[users] == total[users]).all()
        expected = np.clip(np.rint(history * total[users]), 1, total[users] - 1)
        assert (shown[users] == expected).all()


@given(data_sets, seeds)
def test_the_same_generator_gives_the_same_split(data, seed):
    one, other = (data.split_by_users(np.random.default_rng(seed), 3, 3) for _ in range(2))
    assert one == other
    one_by_value, other_by_value = (data.split_by_value(np.random.default_rng(seed)) for _ in range(2))
    assert one_by_value == other_by_value


def test_no_held_out_users_are_no_trouble():
    split = random_data(1).split_by_users(np.random.default_rng(0), 0, 3)
    assert split.validation.target.n_observations == 0


def test_impossible_splits_are_refused():
    data, rng = random_data(0), np.random.default_rng(0)
    with pytest.raises(
        InputError,
        match=r"Cannot hold out 20 \+ 20 users for validation and test: only 24 of 30 users have the 5 obs",
    ):
        data.split_by_users(rng, 20, 20)
    with pytest.raises(InputError, match=r"Expected 0 < history < 1, got 1\.0"):
        data.split_by_users(rng, 1, 1, history=1.0)
    with pytest.raises(InputError, match="not negative, got -1"):
        data.split_by_users(rng, -1, 1)
    with pytest.raises(InputError, match=r"add up to 1, got \(0\.8, 0\.3\)"):
        data.split_by_value(rng, (0.8, 0.3))
    with pytest.raises(InputError, match=r"too few observations to divide: a fraction of 0\.1 of 3 is none"):
        Interactions.from_arrays([1, 2, 3], [1, 1, 1]).split_by_value(rng)


def test_a_split_by_time_trains_on_the_past():
    rng = np.random.default_rng(0)
    data = Interactions.from_arrays(np.arange(200) % 20, np.arange(200), timestamps=rng.permutation(200))
    train, validation, test = data.split_by_time()
    assert [part.n_observations for part in (train, validation, test)] == [160, 20, 20]
    assert train.timestamps.max() < validation.timestamps.min() <= validation.timestamps.max() < test.timestamps.min()
    with pytest.raises(InputError, match="timestamps"):
        Interactions.from_arrays([1, 2], [1, 2]).split_by_time((0.5, 0.5))


def test_held_out_users_show_their_past_if_asked():
    rng = np.random.default_rng(0)
    data = Interactions.from_arrays(np.arange(200) % 20, np.arange(200), timestamps=rng.permutation(200))
    test = data.split_by_users(rng, 3, 5, by_time=True).test
    for user in np.unique(test.history.users):
        latest_shown = test.history.timestamps[test.history.users == user].max()
        assert latest_shown < test.target.timestamps[test.target.users == user].min()
