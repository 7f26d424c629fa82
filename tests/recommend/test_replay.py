"""Record and replay: whole estimators on neighbouring data, release by release."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing import RecordingSession, compare
from apportion.privacy import Budget, SeededNoise

from private_estimators import PRIVATE_ESTIMATORS, at_the_bound
from strategies import interactions, random_interactions

ESTIMATORS = pytest.mark.parametrize("make", PRIVATE_ESTIMATORS.values(), ids=PRIVATE_ESTIMATORS)


def session_arguments(epsilon, seed):
    return {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed)}


@ESTIMATORS
@settings(max_examples=25)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 5.0, 100.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(make, data, user, epsilon):
    def fit(some, session):
        make().fit(some, session=session)

    comparisons = compare(fit, data, data.without(user), session_arguments(epsilon, seed=user))
    assert len(comparisons) >= 3
    for c in comparisons:
        assert c.ratio <= 1 + 1e-9, c


@ESTIMATORS
def test_adding_a_user_is_bounded_too(make):
    data = random_interactions(11)
    for user in range(4):
        for c in compare(
            lambda some, session: make().fit(some, session=session),
            data.without(user),
            data,
            session_arguments(5.0, seed=3),
        ):
            assert c.ratio <= 1 + 1e-9, c


@ESTIMATORS
def test_a_user_at_the_bound_moves_every_release_by_nine_tenths_of_it(make):
    data, extreme_users = at_the_bound()
    best = {}
    for seed, user in itertools.product(range(4), extreme_users):
        for c in compare(
            lambda some, session: make().fit(some, session=session),
            data,
            data.without(user),
            session_arguments(50.0, seed),
        ):
            best[c.name] = max(c.ratio, best.get(c.name, 0.0))
    idle = {name: ratio for name, ratio in best.items() if ratio < 0.9}
    assert not idle, f"the bound is loose or idle for {idle}"


@ESTIMATORS
def test_the_whole_budget_is_spent_and_no_more(make):
    session = RecordingSession(**session_arguments(2.0, seed=1))
    make().fit(random_interactions(5), session=session)
    assert 1 - 1e-9 <= session.spent <= 1.0
    assert np.isfinite(session.statement().spent_epsilon)
