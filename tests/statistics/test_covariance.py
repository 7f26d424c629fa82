"""Covariances and components of users' rows: right with a large budget, within every sensitivity, intervals hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from apportion.auditing import audit_neighbour
from apportion.auditing.hidden_values import raw_value
from apportion.data.grouping import group_rows
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import ADD_REMOVE, Budget, SeededNoise
from apportion.statistics import UserCovariance, UserPCA
from apportion.statistics.second_moments import Centres, MomentClasses, Moments, ScaledRows

BOX = (-6.0, 6.0)
ENGINE = LocalEngine(np.float64, chunk=5)


def some_rows(n_users=2000, columns=3, seed=0):
    """(rows, users): a part of every row is its user's own."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), rng.geometric(0.4, n_users))
    mixed = rng.normal(0, 0.5, (columns, columns)) + np.eye(columns)
    rows = (
        0.7 * rng.standard_normal((n_users, columns))[users] + 0.7 * rng.standard_normal((len(users), columns))
    ) @ mixed
    return np.clip(rows + 1, *BOX), users


def true_covariance(rows, users):
    """That of one row of one user, both drawn at random."""
    weights = 1 / np.bincount(users)[users] / len(np.unique(users))
    apart = rows - weights @ rows
    return (apart * weights[:, None]).T @ apart


def owners_of(rows, users):
    return group_rows(users, len(users), single_user=True).users(values=rows)


def fitted(rows, users, epsilon=1e4, **arguments):
    return UserCovariance(epsilon, value_range=BOX, **{"noise": SeededNoise(0), **arguments}).fit(rows, users=users)


@settings(max_examples=30, deadline=None)
@given(
    arrays(float, (12, 2), elements=st.floats(-1e6, 1e6)),
    arrays(np.int64, 12, elements=st.integers(0, 4)),
    st.integers(0, 4),
    st.floats(1e-3, 10.0),
)
def test_removing_any_user_moves_every_sum_by_at_most_its_sensitivity(rows, users, user, cap):
    scaled = ScaledRows(np.full(2, -1.0), np.full(2, 2.0))
    centre = np.array([0.3, -0.9])
    rows, users = np.concatenate([rows, [[0.0, 0.0]]]), np.append(users, 5)
    for form in (Centres(scaled), MomentClasses(scaled, centre, np.array([0.1, 1.0])), Moments(scaled, centre, cap)):
        full, rest = (
            add_up_one(ENGINE, owners_of(rows[kept], users[kept]), form.contribution)
            for kept in (users >= 0, users != user)
        )
        assert np.linalg.norm(raw_value(full) - raw_value(rest)) <= full.l2_sensitivity


def test_a_user_far_out_reaches_the_bound_however_many_rows_it_has():
    rows = np.tile([[6.0, -6.0]], (50, 1))
    owners = owners_of(rows, np.zeros(50, int))
    form = Moments(ScaledRows(np.full(2, -6.0), np.full(2, 6.0)), np.zeros(2), 0.1)
    total = add_up_one(ENGINE, owners, form.contribution)
    assert total.l2_sensitivity == pytest.approx(1.5)
    assert np.linalg.norm(raw_value(total)) == pytest.approx(1.5, rel=1e-5)


@pytest.mark.parametrize("make", [UserCovariance, UserPCA])
def test_replay_on_neighbours_stays_within_every_sensitivity(make):
    rows, users = some_rows(150)
    rows[users == 0] = 1e9

    def fit(data, session):
        found = make(value_range=BOX).fit(data[0], users=data[1], session=session)
        return {name: held for name, held in vars(found).items() if name.endswith("_")}

    arguments = {"budget": Budget(8.0, 1e-3), "noise": SeededNoise(1), "neighbours": ADD_REMOVE}
    for user in (0, int(np.argmax(np.bincount(users)))):
        kept = users != user
        ratios = audit_neighbour(fit, (rows, users), (rows[kept], users[kept]), arguments)
        assert ratios.keys() == {"overview", "norms", "second moments"}
        assert max(ratios.values()) <= 1 + 1e-9


def test_with_a_large_budget_it_finds_what_is_there():
    rows, users = some_rows()
    found, true = fitted(rows, users), true_covariance(rows, users)
    np.testing.assert_allclose(found.covariance_, true, atol=0.03 * np.abs(true).max())
    assert found.statement_.releases[-1].purpose.key == "covariance"


def test_intervals_cover_and_no_eigenvalue_is_negative():
    """Six numbers in 60 draws of noise: at least 90 % of 360 hold; 95 % would miss that with chance below 3e-5."""
    rows, users = some_rows()
    true, covered = true_covariance(rows, users), []
    for seed in range(60):
        found = fitted(rows, users, 1.0, noise=SeededNoise(seed))
        low, high = found.interval_[..., 0], found.interval_[..., 1]
        covered.append(((low <= true) & (true <= high))[np.tril_indices(3)].mean())
        assert np.linalg.eigvalsh(found.covariance_).min() > -1e-9
    assert np.mean(covered) >= 0.90


def test_components_are_those_of_the_data_and_rows_are_projected_on_them():
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(3000), 2)
    rows = rng.standard_normal((6000, 1)) * [2.0, -2.0, 0.0] + 0.3 * rng.standard_normal((6000, 3))
    found = UserPCA(2, 4.0, value_range=BOX, noise=SeededNoise(0)).fit(rows, users=users)
    assert abs(found.components_[0] @ [0.5**0.5, -(0.5**0.5), 0.0]) > 0.99
    assert found.explained_variance_ratio_[0] > 0.9
    assert found.transform(rows[:5]).shape == (5, 2)
    np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(2), atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"delta": 0.0}, "Gaussian noise needs one"), ({"level": 1.0}, "between 0 and 1")],
)
def test_what_cannot_be_is_refused(arguments, message):
    rows, users = some_rows(20)
    with pytest.raises(InputError, match=message):
        fitted(rows, users, **arguments)
    with pytest.raises(InputError, match="from 1 to 3 components"):
        UserPCA(4, value_range=BOX).fit(rows, users=users)


def test_a_part_is_scaled_by_squares_added_in_the_order_of_columns():
    """The pairwise sum of `np.linalg.norm` gives other last bits."""
    values = np.random.default_rng(2).uniform(-1, 1, (60, 12))
    users = group_rows(np.arange(60), 60, single_user=True).users(values=values)
    rows, centre = ScaledRows(np.full(12, -1.0), np.full(12, 1.0)), np.zeros(12)
    (made,) = Moments(rows, centre, 0.1)(users, None)
    products = rows.means(users, centre)[1] / 0.1
    squares = np.zeros(60)
    for column in products.T:
        squares += column * column
    np.testing.assert_array_equal(made[:, 13:], products / np.sqrt(squares)[:, None])
