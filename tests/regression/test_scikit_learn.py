"""Regressions on users' rows in scikit-learn's own tools: pipelines, searches and scorers take them as they are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from apportion.errors import InputError
from apportion.parties import ProtectedMultiTask
from apportion.privacy import SeededNoise
from apportion.regression import LabelPrivateRegression, MultiTaskERM, MultiTaskRidge, UserERM
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


def test_a_search_passes_tasks_and_users_on_where_metadata_is_routed(rows):
    x, y, users = rows
    ridge = MultiTaskRidge(200.0, feature_norm=3.0, noise=SeededNoise(1))
    columns = {"users": users, "groups": users, "tasks": np.arange(len(y)) % 2}
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(ridge, {"counts_share": [0.05, 0.1]}, cv=GroupKFold(2), error_score="raise")
        assert search.fit(x, y, **columns).best_score_ > 0.8
        scores = cross_val_score(ridge, x, y, cv=GroupKFold(2), params=columns, error_score="raise")
        assert scores.tolist() == [search.cv_results_[f"split{k}_test_score"][0] for k in (0, 1)]


def test_classes_of_tasks_are_scored_by_how_many_are_right(rows):
    x, y, users = rows
    erm = MultiTaskERM("logistic", 200.0, feature_norm=3.0, gradient_bound=3.0, noise=SeededNoise(1))
    columns = {"users": users, "groups": users, "tasks": np.arange(len(y)) % 4}  # each of a user's rows is of another
    with config_context(enable_metadata_routing=True):
        assert cross_val_score(erm, x, y > 0, cv=GroupKFold(2), params=columns, error_score="raise").min() > 0.8


def test_users_of_one_model_are_routed_too(rows):
    x, y, users = rows
    erm = UserERM("logistic", 50.0, feature_norm=2.0, noise=SeededNoise(1))
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(erm, {"ridge": [0.0]}, cv=GroupKFold(2), scoring="accuracy", error_score="raise")
        assert search.fit(x, y > 0, groups=users, users=users).best_score_ > 0.8


def test_folds_of_rows_of_parties_are_scored(rows):
    x, y, _ = rows
    parties = np.arange(len(y)) % 12
    protected = ProtectedMultiTask(20.0, noise=SeededNoise(1))
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(protected, x, y, cv=KFold(3), params={"parties": parties}, error_score="raise")
    assert scores.min() > 0.8
    fitted = protected.fit([x[parties == k] for k in range(12)], [y[parties == k] for k in range(12)])
    lists = fitted.score([x[parties == k] for k in range(12)], [y[parties == k] for k in range(12)])
    assert lists == pytest.approx(fitted.score(x, y, parties))


@pytest.mark.parametrize(
    ("estimator", "column"), [(MultiTaskRidge(50.0, feature_norm=2.0), "tasks"), (ProtectedMultiTask(9.0), "parties")]
)
@pytest.mark.parametrize("scoring", [None, "r2"])
def test_without_routing_a_score_says_what_is_missing(rows, estimator, column, scoring):
    x, y, users = rows
    estimator.set_params(noise=SeededNoise(1))
    given = {"tasks": users % 2, "users": users} if column == "tasks" else {"parties": users % 12}
    search = GridSearchCV(estimator, {"public": [()]}, cv=KFold(2), scoring=scoring, error_score="raise")
    with pytest.raises(InputError, match=f"Expected {column}, the .*enable_metadata_routing=True"):
        search.fit(x, y, **given)
