"""Votes on settings: which rows are held out, what a user adds, and that nothing else sees the held-out rows."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.auditing.hidden_values import raw_value
from apportion.data import Interactions
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy.contributions import ClippedParts, HeldOut, Output, Votes, WithoutHeldOut
from contribution_cases import LossesOfMeans, totals_alone

from strategies import random_interactions

HALF = HeldOut(0.5, seed=3)


def test_which_rows_are_held_out_does_not_depend_on_other_users():
    data = random_interactions(4, n_users=40)
    for user in range(5):
        alone = data.select_users(np.array([user]))
        of_user = HALF.of(data.as_users)[data.as_users.owner == user]
        np.testing.assert_array_equal(of_user, HALF.of(alone.as_users))


def test_every_user_keeps_a_row_and_the_fraction_is_about_as_asked():
    users = random_interactions(5, n_users=400, n_tasks=60).as_users
    kept, shown = HALF.kept(users), HALF.shown(users)
    assert (kept.sizes[users.present] >= 1).all()
    assert (shown.sizes[users.sizes == 1] == 0).all()
    np.testing.assert_array_equal(kept.sizes + shown.sizes, users.sizes)
    few = HeldOut(0.5, seed=3, most=1).shown(users)
    assert few.sizes.max() == 1
    np.testing.assert_array_equal(few.sizes == 1, shown.sizes > 0)
    many = Interactions.from_arrays(np.repeat(np.arange(50), 200), np.tile(np.arange(200), 50)).as_users
    share = HALF.of(many).mean()  # standard deviation 0.005 for independent rows
    assert abs(share - 0.5) < 0.03


def test_only_a_fraction_of_the_users_votes_and_the_others_hold_out_nothing():
    users = Interactions.from_arrays(np.repeat(np.arange(2000), 10), np.tile(np.arange(10), 2000)).as_users
    everybody, some = HALF.of(users), HeldOut(0.5, seed=3, voters=0.25).of(users)
    asks = np.bincount(users.owner, some) > 0
    np.testing.assert_array_equal(some, everybody & asks[users.owner])
    assert 400 < asks.sum() < 600  # 500 expected, standard deviation 19
    votes = [Votes(LossesOfMeans(), HeldOut(0.5, seed=3, voters=share), 2.0, "test") for share in (0.25, 1.0)]
    valued = users.with_columns(values=np.arange(20_000) % 7.0)
    few = raw_value(add_up_one(LocalEngine(np.float64), valued, votes[0]))
    alone = raw_value(add_up_one(LocalEngine(np.float64), valued.with_users(asks), votes[1]))
    np.testing.assert_allclose(few, alone, atol=1e-6)


def test_a_contribution_without_held_out_rows_never_sees_their_values():
    data = random_interactions(6, n_users=30)
    users = data.as_users
    changed = users.with_columns(values=np.where(HALF.of(users), 1.0, users.column("values")))
    kept = WithoutHeldOut(ClippedParts(totals_alone, (Output(2, 50.0, False, "test"),)), HALF)
    first, second = (raw_value(add_up_one(LocalEngine(np.float64), some, kept)) for some in (users, changed))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(users.column("values"), changed.column("values"))


def test_votes_add_up_differences_from_the_first_setting():
    data = Interactions.from_arrays(["a", "a", "b"], [0, 1, 0], [2.0, 3.0, 5.0], task_ids=[0, 1])
    users = data.as_users
    shown = HeldOut(0.999, seed=3).of(users)
    held, known = users.column("values")[:2][shown[:2]][0], users.column("values")[:2][~shown[:2]][0]
    votes = Votes(LossesOfMeans(), HeldOut(0.999, seed=3), 100.0, "test")
    found = raw_value(add_up_one(LocalEngine(np.float64), users, votes))  # the other user has one row and adds zero
    expected = [(held - f * known) ** 2 - held**2 for f in (0.5, 1.0)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_loss_that_is_not_finite_adds_zero_for_that_user_alone():
    class Odd(LossesOfMeans):
        def __call__(self, kept, shown, kernels):
            losses = super().__call__(kept, shown, kernels)
            losses[0, 1] = np.nan
            return losses

    users = random_interactions(7, n_users=20).as_users
    votes = [Votes(losses, HALF, 2.0, "test") for losses in (Odd(), LossesOfMeans())]
    odd, all_users = (raw_value(add_up_one(LocalEngine(np.float64), users, each)) for each in votes)
    rest = raw_value(add_up_one(LocalEngine(np.float64), users.run(1, 20), votes[1]))
    np.testing.assert_allclose(odd, rest, atol=1e-6)
    assert np.isfinite(all_users).all()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_a_fraction_that_leaves_one_side_empty_is_refused(fraction):
    with pytest.raises(InputError, match="fraction of rows"):
        HeldOut(fraction)


@pytest.mark.parametrize("voters", [0.0, 1.5])
def test_a_fraction_of_users_outside_its_range_is_refused(voters):
    with pytest.raises(InputError, match="fraction of users"):
        HeldOut(0.5, voters=voters)
