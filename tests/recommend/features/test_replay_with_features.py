"""Record and replay of fits with public features: features add at most a vote on them and move no bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing import audit
from apportion.privacy import Budget, Purpose, SeededNoise
from apportion.recommend import ClickSettings

from feature_data import RECOMMENDERS, clicks, features_of
from private_estimators import published
from strategies import interactions, random_interactions

FEATURES = features_of(9)


def with_prior(features, **arguments):
    """Clicks whose task vectors have a prior mean from features."""
    return clicks(features, settings=ClickSettings(feature_prior=True), n_users=1000, **arguments)


FITS = {**RECOMMENDERS, "clicks with a prior": with_prior}


def everything(model):
    """All that leaves with a model, the map for new items among it."""
    known = model.feature_map
    arrays = {name: getattr(known, name) for name in ("intercept", "coefficients", "log_popularity")}
    return published(model) | arrays | {"weight": known.observation_weight, "space": known.space.to_json()}


@pytest.mark.parametrize("make", FITS.values(), ids=FITS)
@settings(max_examples=10)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 5.0, 100.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(make, data, user, epsilon):
    def fit(some, session):
        return everything(make(FEATURES).fit(some, session=session).model_)

    findings = audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(user)})
    assert len(findings) >= 3
    for finding in findings:
        assert finding.ratio <= 1 + 1e-9, finding
        assert finding.gap <= 1e-7, finding


@pytest.mark.parametrize("make", FITS.values(), ids=FITS)
def test_features_cost_at_most_a_vote_and_are_named_in_the_statement(make):
    data = random_interactions(2)
    ours, alone = (make(known, noise=SeededNoise(0)).fit(data).statement_ for known in (FEATURES, None))
    votes = [r.share for r in ours.releases if r.purpose is Purpose.FEATURE_VOTES]
    assert [r.name for r in ours.releases if r.purpose is not Purpose.FEATURE_VOTES] == [r.name for r in alone.releases]
    assert len(votes) <= 1
    assert sum(votes) <= 0.0101
    assert "the features of items: words, year" in ours.public
    assert not any("features" in line for line in alone.public)


@pytest.mark.parametrize("make", RECOMMENDERS.values(), ids=RECOMMENDERS)
def test_features_are_no_setting_given_by_hand(make):
    plain = type(make(None))(features=FEATURES).fit(random_interactions(2)).statement_
    assert "library defaults" in plain.tuning
    assert "by hand" in make(FEATURES).fit(random_interactions(2)).statement_.tuning
