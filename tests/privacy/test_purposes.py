"""Every release says what it is for by a key; names are made from it."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.privacy import BoundedSum, Budget, Purpose, ReleaseName, Rows, SeededNoise, Session, Stage
from apportion.privacy.purposes import release_name
from apportion.recommend import PrivateClickRecommender

from private_estimators import PRIVATE_ESTIMATORS, PRIVATE_REGRESSIONS, with_features
from strategies import random_interactions


def test_keys_and_labels_are_unique_and_every_purpose_has_words():
    assert len({purpose.key for purpose in Purpose}) == len(Purpose)
    assert len({purpose.label for purpose in Purpose}) == len(Purpose)
    for purpose in Purpose:
        assert purpose.words.endswith(".")
        assert Purpose.of_key(purpose.key) is purpose


def test_a_key_that_this_version_does_not_know_is_refused_in_one_sentence():
    with pytest.raises(InputError, match="a purpose that this version knows, got 'horoscope'"):
        Purpose.of_key("horoscope")


def test_names_say_the_stage_and_the_purpose():
    assert release_name(Purpose.POPULARITY).text == "popularity"
    assert Purpose.ITEM_SUMS.at(round=3).text == "round 3: item sums"
    assert Purpose.GRADIENT.at(round=2, step=5).text == "round 2, step 5: gradient"
    assert ReleaseName(Purpose.MEAN, Stage(step=1), "mean cost").text == "step 1: mean cost"
    mine = release_name("anything else")
    assert (mine.text, mine.purpose, mine.stage) == ("anything else", Purpose.OTHER, Stage())


def test_a_session_refuses_a_second_release_for_one_purpose_at_one_stage():
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    plan = session.plan(a=0.2, b=0.2, c=0.2)
    total = BoundedSum.user_total(np.zeros(2), Rows(np.zeros((1, 2)), 1.0))
    session.release(Purpose.GRADIENT.at(step=1), total, plan.one("a"))
    session.release(Purpose.GRADIENT.at(step=2), total, plan.one("b"))
    with pytest.raises(Exception, match="'step 2: gradient' was already made"):
        session.release(Purpose.GRADIENT.at(step=2), total, plan.one("c"))
    assert [release.stage.step for release in session.statement().releases] == [1, 2]


def purposes_of(session):
    return {release.purpose for release in session.statement().releases}


@pytest.mark.parametrize("name", PRIVATE_ESTIMATORS)
def test_every_release_of_every_recommender_has_a_purpose(name):
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    PRIVATE_ESTIMATORS[name]().fit(random_interactions(3), session=session)
    assert purposes_of(session)
    assert Purpose.OTHER not in purposes_of(session)


@pytest.mark.parametrize("name", PRIVATE_REGRESSIONS)
def test_every_release_of_every_regression_has_a_purpose(name):
    data = random_interactions(3)
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    estimator = PRIVATE_REGRESSIONS[name](data.n_tasks)()
    logistic = estimator.get_params().get("loss") == "logistic"
    estimator.fit_observations(with_features(data, logistic=logistic), session=session)
    assert purposes_of(session)
    assert Purpose.OTHER not in purposes_of(session)


def test_the_number_of_users_is_named_as_such_and_a_declared_one_is_in_the_statement():
    data = random_interactions(3)
    released = PrivateClickRecommender(2.0, 1e-5, dimension=2, rounds=1, noise=SeededNoise(0)).fit(data).statement_
    assert released.releases[0].purpose is Purpose.NUMBER_OF_USERS
    assert released.declared_users is None
    declared = PrivateClickRecommender(2.0, 1e-5, dimension=2, rounds=1, n_users=50, noise=SeededNoise(0)).fit(data)
    assert declared.statement_.declared_users == 50
    assert Purpose.NUMBER_OF_USERS not in {release.purpose for release in declared.statement_.releases}
