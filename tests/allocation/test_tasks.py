"""Weights over tasks: one unit of sensitivity a user, whatever anybody else does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion import allocation
from apportion.allocation.tasks import observations_from_popularity
from apportion.errors import InputError

from strategies import interactions, random_interactions

POPULARITY = np.array([5.0, 1.0, 0.5, 8.0, 2.0, 2.0, 30.0, 0.1, 1.0])

SCHEMES = {
    "equal split": allocation.equal_split,
    "adaptive 1/4": lambda data: allocation.adaptive(data, POPULARITY, 0.25),
    "adaptive -1/4": lambda data: allocation.adaptive(data, POPULARITY, -0.25),
    "closed form": lambda data: allocation.closed_form(data, POPULARITY, 0.5, 12),
    "uniform sample": lambda data: allocation.uniform_sample(data, 2, seed=7),
    "tail sample": lambda data: allocation.tail_sample(data, POPULARITY, 2),
}


def per_user_squares(data, weights):
    return np.bincount(data.users, np.square(weights._values, dtype=np.float64), minlength=data.n_users)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@given(data=interactions(), user=st.integers(0, 11))
def test_squares_sum_to_at_most_one_and_removing_a_user_moves_nobody_elses_weights(scheme, data, user):
    weights, rest = scheme(data), scheme(data.without(user))
    assert per_user_squares(data, weights).max() <= 1.0
    np.testing.assert_array_equal(weights._values[data.users != user], rest._values)


@pytest.mark.parametrize("name", ["equal split", "adaptive 1/4"])
def test_normalised_weights_use_the_whole_unit(name):
    data = random_interactions(1)
    assert per_user_squares(data, SCHEMES[name](data)).min() > 1 - 1e-5


def test_a_larger_exponent_moves_weight_to_rare_tasks():
    data = random_interactions(2)
    rarest = POPULARITY[data.tasks] == POPULARITY[data.tasks].min()
    shares = [allocation.adaptive(data, POPULARITY, e)._values[rarest].sum() for e in (0.0, 0.25, 0.5)]
    assert shares[0] < shares[1] < shares[2]


def test_the_closed_form_is_equation_16():
    data = random_interactions(3, n_users=400)
    counts = np.bincount(data.tasks, minlength=data.n_tasks).astype(float)
    omega = counts**-0.5 / np.sqrt(data.n_tasks / 400)
    expected = omega[data.tasks]
    heavy = np.bincount(data.users, expected**2, minlength=400)
    expected = expected / np.sqrt(np.maximum(heavy, 1))[data.users]
    np.testing.assert_allclose(allocation.closed_form(data, counts, 0.5, 400)._values, expected, rtol=1e-5)


def test_samples_keep_at_most_the_limit_and_the_tail_sample_keeps_the_rarest():
    data = random_interactions(4, density=0.9)
    for name in ("uniform sample", "tail sample"):
        kept = np.bincount(data.users, SCHEMES[name](data)._values > 0, minlength=data.n_users)
        np.testing.assert_array_equal(kept, np.minimum(data.by_user.counts, 2))
    weights = SCHEMES["tail sample"](data)._values
    for user in range(data.n_users):
        mine = data.users == user
        kept = POPULARITY[data.tasks[mine & (weights > 0)]]
        dropped = POPULARITY[data.tasks[mine & (weights == 0)]]
        assert not len(dropped) or kept.max() <= dropped.min()


def test_uniform_samples_are_uniform_over_seeds():
    data = random_interactions(5, density=0.9)
    heavy = int(np.argmax(data.by_user.counts))
    mine = data.users == heavy
    kept = sum((allocation.uniform_sample(data, 2, seed)._values[mine] > 0).astype(int) for seed in range(2000))
    expected = 2000 * 2 / mine.sum()
    assert np.abs(kept - expected).max() < 6.5 * np.sqrt(expected)  # false alarm below 1e-9 a task


def test_popularity_converts_exactly_when_users_are_equally_active():
    assert observations_from_popularity(np.array([10.0]), 16.0) == pytest.approx([40.0])


def test_popularity_must_be_positive_and_limits_sensible():
    data = random_interactions(6)
    with pytest.raises(InputError, match="floor released counts"):
        allocation.adaptive(data, POPULARITY - 1, 0.5)
    with pytest.raises(InputError, match="at least 1 task a user, got 0"):
        allocation.uniform_sample(data, 0, seed=1)
    with pytest.raises(InputError, match="number of users, got 0"):
        allocation.closed_form(data, POPULARITY, 0.5, 0)
