"""Estimators from plain tables: every method can be described, and a wrong table gets one sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest

from apportion.allocation import TailSample
from apportion.errors import InputError
from apportion.published.skew import AlternatingMinimisation, GradientDescent
from apportion.published.skew.methods import POLICIES
from apportion.recommend import (
    ClickRecommender,
    ClickSettings,
    PrivateClickRecommender,
    PrivateRatingRecommender,
    RatingRecommender,
)
from apportion.recommend.methods import build, methods

from strategies import random_interactions


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
@pytest.mark.parametrize("method", methods())
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
@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_every_policy_can_be_named_and_fitted(policy, kind):
    spec = {"method": "statistics", "dimension": 2, "rounds": 1, "allocation": {"policy": policy}}
    model = build(spec, kind, epsilon=1.0, delta=1e-6).fit(random_interactions(0)).model_
    assert model.statement.epsilon <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ({}, "ratings", "one of the methods ours.* got None"),
        ({"method": "magic"}, "ratings", "one of the methods ours.* got 'magic'"),
        ({"method": "ours"}, "songs", "'ratings' or 'clicks', got 'songs'"),
        ({"method": "ours", "speed": 3}, "clicks", "got 'speed'"),
        ({"method": "gradient", "update": {"momentum": 1}}, "clicks", "got 'momentum'"),
        (
            {"method": "gradient", "allocation": {"policy": "luck"}},
            "clicks",
            "one of the allocation policies .* got 'luck'",
        ),
        ({"method": "gradient", "allocation": "adaptive"}, "clicks", "Expected a table for the allocation"),
        ({"method": "statistics", "allocation": {"policy": "adaptive", "releases": 2}}, "clicks", "got 'releases'"),
        ({"method": "statistics", "allocation": {"policy": "exact"}}, "clicks", "got 'exact'"),  # needs a public graph
        ({"method": "statistics", "allocation": {"policy": "joint", "rounds": 0}}, "clicks", "at least 1 round, got 0"),
    ],
)
def test_a_wrong_table_gets_one_sentence(spec, kind, message):
    with pytest.raises(InputError, match=message):
        build(spec, kind, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"method": "ours", "dimension": 8.0}, "dimension of the method 'ours' to be a whole number, got 8.0."),
        ({"method": "ours", "rounds": "4"}, "rounds of the method 'ours' to be a whole number, got '4'."),
        ({"method": "ours", "settings": {"clip": "0.7"}}, "clip of the settings to be a number, got '0.7'."),
        ({"method": "ours", "settings": {"steps": 1.5}}, "steps of the settings to be a whole number, got 1.5."),
        ({"method": "ours", "window": 2024}, "window of the method 'ours' to be text, got 2024."),
        (
            {"method": "non-private", "epochs": True},
            "epochs of the method 'non-private' to be a whole number, got True.",
        ),
        ({"method": "gradient", "growth": [1.0]}, "growth of the method 'gradient' to be a number, got [1.0]."),
        ({"method": "gradient", "growth": True}, "growth of the method 'gradient' to be a number, got True."),
        ({"method": "gradient", "growth": None}, "growth of the method 'gradient' to be a number, got None."),
        ({"method": "gradient", "balanced": 1}, "balanced of the method 'gradient' to be true or false, got 1."),
        (
            {"method": "gradient", "update": {"even": "yes"}},
            "even of the update of 'gradient' to be true or false, got",
        ),
        (
            {"method": "gradient", "update": {"steps": 2.5}},
            "steps of the update of 'gradient' to be a whole number, got",
        ),
        (
            {"method": "gradient", "allocation": {"policy": "tail sample", "limit": 2.5}},
            "limit of the policy 'tail sample' to be a whole number, got 2.5.",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_before_any_fit(spec, message):
    with pytest.raises(InputError, match=re.escape(f"Expected {message}")):
        build(spec, "ratings", epsilon=1.0, delta=1e-6)


def test_whole_numbers_are_numbers_and_what_may_be_left_open_may_be_none():
    assert build({"method": "gradient", "growth": 2}, "clicks", epsilon=1, delta=1e-6).growth == 2
    assert build({"method": "ours", "dimension": None}, "clicks", epsilon=1, delta=1e-6).dimension is None
    assert build({"method": "ours", "dimension": np.int64(3)}, "clicks", epsilon=1, delta=1e-6).dimension == 3


@pytest.mark.parametrize("given", [{"rounds": 2}, ClickSettings()])
def test_settings_of_another_kind_are_refused_in_one_sentence(given):
    with pytest.raises(InputError, match="Expected settings as RatingSettings, got "):
        PrivateRatingRecommender(1.0, settings=given).fit(random_interactions(0))
