"""SSP-convex: losses and their derivatives, the released approximation, the guarantee, users' own regressions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import SeededNoise
from apportion.recommend import load, save
from apportion.recommend.features.convex import (
    ConvexMinimisation,
    EncoderConvex,
    LogisticLoss,
    PseudoHuberLoss,
    newton,
)
from apportion.recommend.features.ssp import EncoderStatistics
from apportion.recommend.features.training import Training
from apportion.recommend.model import FoldIn

from encoder_cases import (
    assert_audited,
    best_ratios,
    estimator,
    feature_driven_ratings,
    features_of,
    linear,
    two_layers,
)
from private_estimators import at_the_bound
from strategies import interactions, random_interactions

FEW = Training(epochs=2, batch_size=None)
LOSSES = {"logistic": LogisticLoss(), "pseudo-Huber": PseudoHuberLoss(0.5)}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_derivatives_are_those_of_the_loss_and_stay_within_their_bounds(loss):
    scores, labels = np.linspace(-30, 30, 601), np.where(np.arange(601) % 2, 1.0, -1.0)
    step = 1e-5
    slope = (loss.value(scores + step, labels) - loss.value(scores - step, labels)) / (2 * step)
    np.testing.assert_allclose(loss.slope(scores, labels), slope, atol=1e-6)
    bend = (loss.slope(scores + step, labels) - loss.slope(scores - step, labels)) / (2 * step)
    np.testing.assert_allclose(loss.curvature(scores, labels), bend, atol=1e-6)
    assert np.abs(loss.slope(scores, labels)).max() <= loss.steepest
    assert loss.curvature(scores, labels).min() >= 0
    assert loss.curvature(scores, labels).max() <= loss.most_curved


def make(loss):
    def made(**given):
        update = EncoderConvex(two_layers(3), FEW, loss=loss)
        return estimator(update, ConvexMinimisation, value_range=(-1.0, 1.0), **given)

    return made


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@settings(max_examples=6)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 50.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(loss, data, user, epsilon):
    assert_audited(make(loss), signed(data), user, epsilon=epsilon, seed=user, least=5)


def signed(data):
    """Values above 3 as 1, all others as -1."""
    users, tasks = data.user_ids.ids_of(data.users), data.task_ids.ids_of(data.tasks)
    values = np.where(data.values > 3, 1.0, -1.0).astype(np.float32)
    return Interactions.from_arrays(users, tasks, values, task_ids=data.task_ids.ids)


def test_a_user_at_the_bound_moves_slopes_and_curvatures_by_a_good_part_of_it():
    data, extreme = at_the_bound()
    best = best_ratios(make(LogisticLoss()), signed(data), extreme, [0])
    assert max(best.values()) <= 1 + 1e-9
    assert best["round 1: item curvatures"] > 0.5
    assert best["round 1: item slopes"] > 0.4  # a slope of 1 needs a score far on the wrong side


def test_users_solve_their_own_logistic_regressions():
    rng = np.random.default_rng(0)
    features = np.concatenate([np.ones((200, 1)), rng.standard_normal((200, 2))], axis=1)
    users, tasks = np.repeat([0, 1], 200), np.tile(np.arange(200), 2)
    values = np.where(rng.random(400) < 0.4, 1.0, -1.0).astype(np.float32)
    data = Interactions.from_arrays(users, tasks, values, task_ids=np.arange(200))
    fold_in = FoldIn(features, np.ones(200), 2.0 * np.eye(3), np.zeros(3))
    found = newton(fold_in, LocalEngine(np.float64), data, data.values.astype(float), LogisticLoss(), steps=8)
    for user in range(2):
        peer = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000)
        peer.fit(features, data.values[data.users == user])
        np.testing.assert_allclose(found[user], peer.coef_[0], atol=1e-5)


def test_where_privacy_is_cheap_scores_tell_yes_from_no():
    data, rows = feature_driven_ratings(800, 60)
    train, test = signed(data).split_by_value(np.random.default_rng(0), (0.8, 0.2))
    fitted = estimator(
        EncoderConvex(two_layers(4), Training(epochs=20, batch_size=None)), ConvexMinimisation, features=rows,
        epsilon=300.0, dimension=3, rounds=4, user_norm=1.5, user_ridge=1.0, value_range=(-1.0, 1.0),
        noise=SeededNoise(0), engine=LocalEngine(np.float64),
    ).fit(train)  # fmt: skip
    scores = fitted.scores(train, test)
    right = np.mean((scores > 0) == (test.values > 0))
    assert right > max(np.mean(test.values > 0), np.mean(test.values <= 0)) + 0.08


def test_a_fitted_model_is_stored_with_its_settings_and_comes_back(tmp_path):
    fitted = make(PseudoHuberLoss(0.5))(features=features_of(9), noise=SeededNoise(0)).fit(
        signed(random_interactions(0))
    )
    save(fitted.model_, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.settings["update"]["loss"] == {"part": "PseudoHuberLoss", "threshold": 0.5}
    assert again.settings["update"]["training"]["epochs"] == 2
    np.testing.assert_array_equal(again.fold_in.features, fitted.model_.fold_in.features)


def test_the_update_and_the_estimator_belong_together():
    data = random_interactions(0)
    with pytest.raises(InputError, match="a round of a ConvexMinimisation"):
        estimator(EncoderConvex(linear(3)), features=features_of(9)).fit(data)
    with pytest.raises(InputError, match="an EncoderConvex as update"):
        estimator(EncoderStatistics(linear(3)), ConvexMinimisation, features=features_of(9)).fit(data)
