"""Estimators from plain tables: every method can be described, and a wrong table gets one sentence."""

from __future__ import annotations

import pytest

from apportion.allocation import TailSample
from apportion.errors import InputError
from apportion.recommend import (
    AlternatingMinimisation,
    ClickRecommender,
    GradientDescent,
    PrivateClickRecommender,
    PrivateRatingRecommender,
    RatingRecommender,
)
from apportion.recommend.methods import METHODS, POLICIES, build

from strategies import random_interactions


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_every_kind_can_be_built_and_fitted(method, kind):
    estimator = build({"method": method}, kind, epsilon=2.0, delta=1e-5)
    model = estimator.fit(random_interactions(0)).model_
    assert model.kind == kind
    assert (model.statement is None) == (method == "non-private")
    if model.statement:
        assert model.statement.epsilon == 2.0


def test_kinds_and_parts_are_what_the_table_says():
    def made(kind, **spec):
        return build(spec, kind, epsilon=1.0, delta=1e-6)

    assert isinstance(made("ratings", method="ours"), PrivateRatingRecommender)
    assert made("ratings", method="ours", settings={"dimension": 3}).settings.dimension == 3
    assert isinstance(made("clicks", method="ours", dimension=4), PrivateClickRecommender)
    assert made("ratings", method="non-private", epochs=2).epochs == 2
    assert isinstance(made("ratings", method="non-private"), RatingRecommender)
    assert isinstance(made("clicks", method="non-private"), ClickRecommender)
    spec = {"allocation": {"policy": "tail sample", "limit": 7}, "update": {"steps": 3}, "rounds": 4}
    estimator = made("clicks", method="gradient", **spec)
    assert isinstance(estimator, AlternatingMinimisation)
    assert estimator.kind == "clicks"
    assert estimator.allocation == TailSample(7)
    assert estimator.update == GradientDescent(steps=3)
    assert estimator.rounds == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_be_named(policy):
    build({"method": "statistics", "allocation": {"policy": policy}}, "ratings", epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ({}, "ratings", "a method among ours.* got None"),
        ({"method": "magic"}, "ratings", "a method among ours.* got 'magic'"),
        ({"method": "ours"}, "songs", "'ratings' or 'clicks', got 'songs'"),
        ({"method": "ours", "speed": 3}, "clicks", "got 'speed'"),
        ({"method": "gradient", "update": {"momentum": 1}}, "clicks", "got 'momentum'"),
        ({"method": "gradient", "allocation": {"policy": "luck"}}, "clicks", "policy among .* got 'luck'"),
        ({"method": "gradient", "allocation": "adaptive"}, "clicks", "Expected a table for the allocation"),
        ({"method": "statistics", "allocation": {"policy": "adaptive", "releases": 2}}, "clicks", "got 'releases'"),
    ],
)
def test_a_wrong_table_gets_one_sentence(spec, kind, message):
    with pytest.raises(InputError, match=message):
        build(spec, kind, epsilon=1.0, delta=1e-6)
