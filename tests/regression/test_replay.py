"""Record and replay: whole regressions on neighbouring data, release by release."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.allocation import Adaptive, EqualSplit

from private_estimators import PRIVATE_REGRESSIONS, at_the_bound, audit_regression, erm, ridge
from strategies import interactions

REGRESSIONS = pytest.mark.parametrize("make_for", PRIVATE_REGRESSIONS.values(), ids=PRIVATE_REGRESSIONS)


@REGRESSIONS
@settings(max_examples=12)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 5.0, 100.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(make_for, data, user, epsilon):
    findings = audit_regression(make_for(data.n_tasks), data, user, epsilon=epsilon, seed=user)
    assert findings
    for finding in findings:
        assert finding.ratio <= 1 + 1e-9, finding
        assert finding.gap <= 1e-7, finding


@pytest.mark.parametrize("allocation", [EqualSplit(), Adaptive(0.5)], ids=["equal split", "adaptive"])
@pytest.mark.parametrize("make", [ridge, erm])
def test_a_user_at_the_bound_moves_every_release_by_nine_tenths_of_it(make, allocation):
    data, _ = at_the_bound()
    findings = audit_regression(make(allocation=allocation), data, 0, epsilon=50.0, seed=0)
    idle = [finding for finding in findings if finding.ratio < 0.9]
    assert not idle, f"the bound is loose or idle for {idle}"
    assert max(finding.ratio for finding in findings) <= 1 + 1e-9
