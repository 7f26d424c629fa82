"""Record and replay: whole estimators on neighbouring data, release by release."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing import RecordingSession
from apportion.privacy import Budget, SeededNoise

from private_estimators import (
    PRIVATE_ESTIMATORS,
    at_the_bound,
    audit_estimator,
    clicks_of_default_size,
    ratings_by_choice,
)
from strategies import interactions, random_interactions

ABOUT_SOME = re.compile(r"split over \d+ tasks that can stand out|on the \d+ most popular items")
ESTIMATORS = pytest.mark.parametrize("make", PRIVATE_ESTIMATORS.values(), ids=PRIVATE_ESTIMATORS)


@ESTIMATORS
@settings(max_examples=25)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 5.0, 100.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(make, data, user, epsilon):
    findings = audit_estimator(make, data, user, epsilon=epsilon, seed=user)
    assert len(findings) >= 3
    for finding in findings:
        assert finding.ratio <= 1 + 1e-9, finding
        assert finding.gap <= 1e-7, finding


@ESTIMATORS
def test_a_user_at_the_bound_moves_every_release_by_nine_tenths_of_it(make):
    data, extreme_users = at_the_bound()
    best = {}
    for seed, user in itertools.product(range(4), extreme_users):
        for finding in audit_estimator(make, data, user, epsilon=50.0, seed=seed):
            best[finding.name] = max(finding.ratio, best.get(finding.name, 0.0))
    assert max(best.values()) <= 1 + 1e-9
    idle = {name: ratio for name, ratio in best.items() if ratio < 0.9}
    assert not idle, f"the bound is loose or idle for {idle}"


@pytest.mark.parametrize("make", [clicks_of_default_size, ratings_by_choice])
def test_rounds_about_popular_items_alone_move_by_at_most_their_sensitivity(make):
    """With more noise there are no such rounds, and with less noise rounds of clicks are about all items."""
    data, extreme_users = at_the_bound()
    best, about_some = {}, set()
    for seed, user in itertools.product(range(4), extreme_users):
        recording = RecordingSession(Budget(2.0, 1e-5), noise=SeededNoise(seed))
        make().fit(data, session=recording)
        about_some |= {each.name for each in recording.statement().releases if ABOUT_SOME.search(each.derivation)}
        for finding in audit_estimator(make, data, user, epsilon=2.0, seed=seed):
            best[finding.name] = max(finding.ratio, best.get(finding.name, 0.0))
            assert finding.gap <= 1e-7, finding
    assert max(best.values()) <= 1 + 1e-9
    assert len(about_some) >= 3
    assert min(best[name] for name in about_some) > 0.9


@ESTIMATORS
def test_the_whole_budget_is_spent_and_no_more(make):
    session = RecordingSession(Budget(2.0, 1e-5), noise=SeededNoise(1))
    make().fit(random_interactions(5), session=session)
    assert 1 - 1e-9 <= session.spent <= 1.0
    assert session.statement().spent_epsilon <= 2.0
