"""Recommenders whose list of items is private: what leaves, what is said, and what is not protected without it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion.auditing.fits import audit_recommender
from apportion.auditing.own_items import audit_own_items, users_with_own_items, without_trace
from apportion.data import Interactions, ItemFeatures
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.evaluation import OnLongerList
from apportion.privacy import Budget, SeededNoise, Session
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.report import public_page
from apportion.report.card import card_page, privacy_card

BUDGET = Budget(20.0, 1e-6, 2.5e-7)
SMALL = {"dimension": 2, "rounds": 1, "noise": SeededNoise(0), "engine": LocalEngine(np.float64)}


@pytest.fixture(scope="module")
def data():
    """300 users of 30 common items, and ten with an item of their own each: text, where all others are integers."""
    made, _ = long_tailed_ratings(300, 30, 6000, rank=2, rng=np.random.default_rng(0), stars="whole")
    loners = np.arange(10)
    return Interactions.from_arrays(
        np.concatenate([made.users, loners]),
        [*map(str, made.tasks), *(f"{5 * k} by {k}" for k in loners)],
        np.concatenate([made.values, np.full(10, 3.0)]),
    )


def makers(**settings):
    arguments = {"epsilon": 20.0, **SMALL, **settings}
    return [lambda: PrivateRatingRecommender(**arguments), lambda: PrivateClickRecommender(**arguments)]


@pytest.mark.parametrize("make", makers(), ids=["ratings", "clicks"])
def test_without_a_list_the_items_are_private_and_only_common_ones_are_in_the_model(make, data):
    model = make().fit(data).model_
    assert 2 <= model.n_tasks <= 30
    assert all(isinstance(each, int) for each in model.task_ids), "one user's text makes nobody else's ids text"
    assert model.statement.keys_delta == BUDGET.keys_delta
    assert model.statement.unprotected == ()
    listed = [release for release in model.statement.releases if release.threshold is not None]
    assert [release.shape for release in listed] == [(model.n_tasks,)]
    assert not any("list of" in sentence for sentence in model.statement.public)
    assert model.statement.spent_epsilon == pytest.approx(20.0, rel=1e-6)


@pytest.mark.parametrize("make", makers(), ids=["ratings", "clicks"])
def test_a_user_with_items_of_its_own_changes_no_byte_of_what_is_written(make, data):
    found = audit_own_items(make, data, BUDGET, 2, 0)
    assert found.passed, found.words
    assert "nothing that is written changed" in found.words


@pytest.mark.parametrize("make", makers(items="from-data"), ids=["ratings", "clicks"])
def test_a_list_from_the_data_tells_who_took_part_and_the_statement_says_so(make, data):
    budget = Budget(20.0, 1e-6)
    found = audit_own_items(make, data, budget, 1, 0)
    assert found.passed
    assert "tells of 10 users" in found.words
    model = make().fit(data).model_
    sentence = "Not protected: who holds an item that nobody else holds."
    assert sentence in model.statement.to_text().splitlines()[2]
    headline = public_page(_releasable(model)).split("<h1>")[1].split("</h1>")[0]
    assert sentence in headline
    assert sentence in card_page(privacy_card(model.statement)).split("<h1>")[1].split("</h1>")[0]


def _releasable(model):
    from dataclasses import replace

    model.statement = replace(model.statement, releasable=True)
    return model


def test_what_is_written_without_saying_so_is_a_violation(data):
    """A list that was taken from the data and called public: nobody is told, and the audit finds it."""
    budget = Budget(20.0, 1e-6)

    class Declares(PrivateRatingRecommender):
        def fit(self, some, **named):
            return super().fit(some.with_public_tasks(), **named)

    listed = data.with_public_tasks()
    assert audit_own_items(lambda: PrivateRatingRecommender(20.0, **SMALL), listed, budget, 1, 0).passed
    assert not audit_own_items(lambda: Declares(20.0, **SMALL), data, budget, 1, 0).passed


def test_the_whole_audit_passes_where_items_are_private(data):
    report = audit_recommender("ratings", makers()[0], data, BUDGET, users=1, canaries=200)
    assert not report.violated, [check.words for check in report.checks]
    assert {check.name for check in report.checks} == {
        "replay without a user",
        "items of one user alone",
        "canary items",
        "canary users",
    }


def test_a_public_list_is_taken_as_given_and_other_items_are_refused(data):
    everything = sorted(map(str, data.task_ids))
    model = PrivateRatingRecommender(5.0, items=everything, **SMALL).fit(data).model_
    assert list(model.task_ids) == everything
    assert model.statement.unprotected == ()
    with pytest.raises(InputError, match="that are listed"):
        PrivateRatingRecommender(5.0, items=everything[:5], **SMALL).fit(data)
    with pytest.raises(InputError, match="'private', 'from-data' or a list"):
        PrivateRatingRecommender(5.0, items="secret", **SMALL).fit(data)


def test_items_that_have_features_are_public_and_the_others_private(data):
    features = ItemFeatures.from_frame(pa.table({"item": ["0", "1", "77"], "kind": ["a", "b", "a"]}), item="item")
    model = PrivateRatingRecommender(20.0, features=features, **SMALL).fit(data).model_
    assert {"0", "1", "77"} <= set(map(str, model.task_ids))
    assert "0 by 0" not in set(map(str, model.task_ids))
    assert "the list of the 3 items that have features" in model.statement.public


def test_too_few_users_for_a_list_are_told_to_declare_it(data):
    with pytest.raises(InputError, match=r"No item reached .* if your catalogue is public, give it with items="):
        PrivateRatingRecommender(0.05, **SMALL).fit(data)


def test_a_session_without_a_part_for_keys_is_refused_before_anything_is_spent(data):
    session = Session(Budget(20.0, 1e-6), noise=SeededNoise(0))
    with pytest.raises(InputError, match="keeps none for it"):
        PrivateRatingRecommender(20.0, **SMALL).fit(data, session=session)
    assert session.spent == 0


def test_items_outside_the_list_are_predicted_by_the_users_own_mean(data):
    model = PrivateRatingRecommender(20.0, **SMALL).fit(data).model_
    longer = OnLongerList(model)
    predicted, covered = longer.predict(data, data), longer.covered(data)
    own = data.users == 3
    expected = (data.values[own].sum() + model.offset) / (own.sum() + 1)
    np.testing.assert_allclose(predicted[own & ~covered], expected, rtol=1e-6)
    assert np.corrcoef(predicted[covered], data.values[covered])[0, 1] > 0.3, "in the order of the targets"
    scores = longer.score(data, np.array([0, 1]))
    unlisted = ~np.isin(np.array(list(map(str, data.task_ids))), list(map(str, model.task_ids)))
    assert scores.shape == (2, data.n_tasks)
    assert (scores[:, unlisted].max(axis=1) < scores[:, ~unlisted].min(axis=1)).all()


def test_who_has_items_of_their_own_is_found(data):
    assert len(users_with_own_items(data)) == 10
    assert without_trace(data, int(users_with_own_items(data)[0])).n_tasks == data.n_tasks - 1
