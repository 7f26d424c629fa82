"""Regressions on users' rows in scikit-learn's own tools: pipelines, searches and scorers take them as they are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from apportion.privacy import SeededNoise
from apportion.regression import LabelPrivateRegression, UserERM
from apportion.statistics import UserMean


@pytest.fixture(scope="module")
def rows():
    """Users with four rows each, whose first feature says almost all."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1200, 2))
    return x, x[:, 0] + 0.3 * rng.standard_normal(1200), np.arange(1200) // 4


@pytest.mark.parametrize(("scoring", "least"), [("accuracy", 0.8), ("roc_auc", 0.9), ("neg_log_loss", -0.6)])
def test_settings_of_a_classifier_can_be_searched_by_any_score(rows, scoring, least):
    x, y, users = rows
    erm = UserERM("logistic", 50.0, feature_norm=2.0, noise=SeededNoise(1))
    search = GridSearchCV(erm, {"ridge": [0.0, 0.01]}, cv=GroupKFold(2), scoring=scoring, error_score="raise")
    assert search.fit(x, y > 0, groups=users, users=users).best_score_ > least


def test_settings_of_a_regression_can_be_searched(rows):
    x, y, users = rows
    regression = LabelPrivateRegression(50.0, label_range=(-4, 4), noise=SeededNoise(1))
    search = GridSearchCV(regression, {"fit_intercept": [True, False]}, cv=GroupKFold(2), scoring="r2")
    assert search.fit(x, y, groups=users, users=users).best_score_ > 0.8


def test_an_estimator_ends_a_pipeline(rows):
    x, y, users = rows
    pipeline = make_pipeline(StandardScaler(), UserERM("logistic", 50.0, feature_norm=2.0, noise=SeededNoise(1)))
    pipeline.fit(10 * x, y > 0, usererm__users=users)
    assert np.mean(pipeline.predict(10 * x) == (y > 0)) > 0.8
    assert pipeline.predict_proba(x).shape == (1200, 2)


def test_only_losses_of_classes_have_classes():
    assert is_classifier(UserERM("smoothed-hinge"))
    assert is_regressor(UserERM("squared"))
    assert is_regressor(LabelPrivateRegression(label_range=(0, 1)))
    mean = UserMean(value_range=(0, 1))
    assert [is_classifier(mean), is_regressor(mean)] == [False, False]
    assert UserERM().classes_.tolist() == [0.0, 1.0]
    assert not hasattr(UserERM("squared"), "classes_")
