"""Rows grouped by their users: one grouping for every estimator, one of two words for its argument."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion import LabelPrivateRegression, MultiTaskRidge, ProtectedMultiTask, UserERM, UserMean, UserQuantile
from apportion.data.grouping import group_rows
from apportion.errors import InputError
from apportion.privacy import SeededNoise

USERS = np.array(["bob", "ann", "bob", "cem", "ann"])
VALUES = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
ROWS = np.arange(10.0).reshape(5, 2) % 3


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_a_grouping_has_every_user_s_rows_in_the_order_they_came(users):
    grouping = group_rows(users, len(users), single_user=True)
    places = grouping.arranged(np.arange(len(users)))
    for user, first, last in zip(grouping.ids, grouping.indptr[:-1], grouping.indptr[1:], strict=True):
        assert places[first:last].tolist() == [row for row, owner in enumerate(users) if owner == user]


def fits():
    noise = SeededNoise(1)
    return {
        "mean": lambda **k: UserMean(value_range=(0, 5), noise=noise).fit(VALUES, **k),
        "quantile": lambda **k: UserQuantile(value_range=(0, 5), noise=noise).fit(VALUES, **k),
        "label-private": lambda **k: LabelPrivateRegression(label_range=(0, 5), noise=noise).fit(ROWS, VALUES, **k),
        "erm": lambda **k: UserERM("squared", steps=2, noise=noise).fit(ROWS, VALUES, **k),
        "ridge": lambda **k: MultiTaskRidge(noise=noise).fit(ROWS, VALUES, tasks=[1, 1, 2, 1, 2], **k),
    }


@pytest.mark.parametrize("name", fits())
def test_users_and_groups_are_two_words_for_one_argument(name):
    one, other = fits()[name](users=USERS), fits()[name](groups=USERS)
    assert one.statement_.to_json() == other.statement_.to_json()
    learned = [key for key in vars(one) if key in ("mean_", "quantiles_", "coef_")]
    assert learned
    for key in learned:
        assert np.array_equal(getattr(one, key), getattr(other, key))


@pytest.mark.parametrize("name", fits())
def test_exactly_one_of_the_two_words_is_taken(name):
    with pytest.raises(InputError, match="scikit-learn's name for it\\), got neither"):
        fits()[name]()
    with pytest.raises(InputError, match="scikit-learn's name for it\\), got both"):
        fits()[name](users=USERS, groups=USERS)


@pytest.mark.parametrize("name", fits())
def test_the_name_of_a_column_in_place_of_the_column_is_refused_in_words(name):
    with pytest.raises(InputError, match=r"Expected users as a column .* such as frame\['patient'\]"):
        fits()[name](users="patient")


def test_parties_may_be_called_groups_too():
    rng = np.random.default_rng(0)
    x, y, parties = rng.standard_normal((40, 3)), rng.standard_normal(40), np.arange(40) % 8
    one = ProtectedMultiTask(noise=SeededNoise(1)).fit(x, y, parties)
    other = ProtectedMultiTask(noise=SeededNoise(1)).fit(x, y, groups=parties)
    assert np.array_equal(one.coef_, other.coef_)
    with pytest.raises(InputError, match=r"Expected either parties or groups .* got both"):
        ProtectedMultiTask().fit(x, y, parties, groups=parties)
