"""The audit of a model and of the recommender that it came from."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from apportion.auditing import fits
from apportion.auditing.statements import check_statement
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise
from apportion.privacy.contributions import RatingParts
from apportion.published.skew import AlternatingMinimisation
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.regression import MultiTaskRidge
from planted.recommenders import unclipped_rating_parts

BUDGET = Budget(6.0, 1e-5)


@pytest.fixture(scope="module")
def data():
    return long_tailed_ratings(250, 30, 2500, rank=2, rng=np.random.default_rng(0), stars="whole")[0]


def ratings(**arguments):
    return PrivateRatingRecommender(
        6.0, 1e-5, dimension=2, rounds=2, engine=LocalEngine(np.float64), noise=SeededNoise(0), **arguments
    )


@pytest.fixture(scope="module")
def statement(data):
    return ratings().fit(data).statement_


def test_a_statement_as_written_passes(statement):
    assert all(check.passed for check in check_statement(statement))


TAMPERED = {
    "noise of each release": lambda r: replace(r, stddev=r.stddev / 2),
    "epsilon of all releases": lambda r: replace(r, mu=2 * r.mu, stddev=r.stddev / 2),
    "shares of the budget": lambda r: replace(r, share=2 * r.share + 1),
}


@pytest.mark.parametrize(("name", "tamper"), TAMPERED.items(), ids=TAMPERED)
def test_a_statement_that_was_tampered_with_fails(statement, name, tamper):
    altered = replace(statement, releases=tuple(map(tamper, statement.releases)))
    failed = [check.name for check in check_statement(altered) if not check.passed]
    assert name in failed


def test_a_right_recommender_passes_replay_and_canaries(data):
    found = fits.audit_recommender("ours", ratings, data, BUDGET, users=2, canaries=300)
    assert not found.violated
    assert [check.name for check in found.checks] == ["replay without a user", "canary users"]
    assert 0 <= found.lower_bound <= 6.0  # above with probability 1e-3


def test_a_recommender_without_clipping_is_found_out(data):
    with mock.patch.object(RatingParts, "partial", unclipped_rating_parts(RatingParts.partial)):
        found = fits.audit_recommender("wrong", ratings, data, BUDGET, users=3, canaries=0)
    assert found.violated
    assert "times its sensitivity" in found.checks[0].words
    assert found.lower_bound is None


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_model_leads_back_to_its_recommender(data, kind):
    cls = PrivateRatingRecommender if kind == "ratings" else PrivateClickRecommender
    model = cls(3.0, 1e-6, n_users=250, dimension=3, rounds=2, noise=SeededNoise(0)).fit(data).model_
    again = fits.recommender_of(model)().fit(data).model_
    assert again.settings == model.settings
    assert again.statement.epsilon == 3.0
    assert "the number of users, declared as 250" in again.statement.public


def test_a_model_of_another_method_is_refused(data):
    model = AlternatingMinimisation(2.0, 1e-5, dimension=2, rounds=1, noise=SeededNoise(0)).fit(data).model_
    with pytest.raises(InputError, match="another method"):
        fits.recommender_of(model)


def test_a_statement_of_a_regression_is_checked_too(data):
    estimator = MultiTaskRidge(2.0, 1e-5, label_bound=2.0, noise=SeededNoise(0))
    users, tasks = data.users, data.tasks
    features = np.random.default_rng(0).normal(size=(len(users), 2))
    found = fits.audit_statement(
        "ridge", estimator.fit(features, data.values, users=users, tasks=tasks).statement_
    )  # fmt: skip
    assert not found.violated
