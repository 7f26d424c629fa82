"""Convex losses: derivatives, parabolas above them, and the regressions that users solve under them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.losses import Logistic, PseudoHuber
from apportion.published.public_features.convex_model import loss_settings, stored_loss
from apportion.published.public_features.user_regressions import largest_curvature, majorised, newton
from apportion.recommend.model import FoldIn

LOSSES = {"logistic": Logistic(), "pseudo-Huber": PseudoHuber(0.5)}
BOTH = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


class OnlyBounds:
    """The logistic loss without a parabola of its own."""

    value, derivative, curvature = Logistic.value, Logistic.derivative, Logistic.curvature


@pytest.mark.parametrize("loss", [*LOSSES.values(), OnlyBounds()], ids=[*LOSSES, "by its bound"])
def test_parabolas_touch_the_loss_and_lie_above_it(loss):
    scores, there = (grid.ravel() for grid in np.meshgrid(np.linspace(-9, 9, 61), np.linspace(-9, 9, 61)))
    labels = np.where(np.arange(len(scores)) % 2, 1.0, -1.0)
    bends = majorised(loss, scores, labels)
    apart = there - scores
    above = loss.value(scores, labels) + loss.derivative(scores, labels) * apart + 0.5 * bends * np.square(apart)
    assert (above - loss.value(there, labels)).min() > -1e-9
    assert bends.max() <= largest_curvature(loss) + 1e-12


def own_regression(labels, features, ridge=1.0):
    """One user's own regression on every item, and another user's with other labels beside it."""
    n_items = len(features)
    values = np.concatenate([labels, -np.asarray(labels)]).astype(np.float32)
    users, tasks = np.repeat([0, 1], n_items), np.tile(np.arange(n_items), 2)
    data = Interactions.from_arrays(users, tasks, values, task_ids=np.arange(n_items))
    width = features.shape[1]
    return data, FoldIn(features, np.ones(n_items), ridge * np.eye(width), np.zeros(width))


def test_users_solve_their_own_logistic_regressions():
    rng = np.random.default_rng(0)
    features = np.concatenate([np.ones((200, 1)), rng.standard_normal((200, 2))], axis=1)
    data, fold_in = own_regression(np.where(rng.random(200) < 0.4, 1.0, -1.0), features, 2.0)
    found = newton(fold_in, LocalEngine(np.float64).kernels, data.as_users, data.values.astype(float), Logistic())
    for user in range(2):
        peer = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000)
        peer.fit(features, data.values[data.users == user])
        np.testing.assert_allclose(found[user], peer.coef_[0], atol=1e-5)


@pytest.mark.parametrize("threshold", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("level", [0.5, 4.0, 50.0])
def test_users_whose_labels_lie_far_beyond_the_threshold_find_the_least_loss_too(threshold, level):
    rng = np.random.default_rng(1)
    features = np.concatenate([np.ones((50, 1)), rng.standard_normal((50, 1))], axis=1)
    labels = level + features[:, 1] + 0.3 * rng.standard_normal(50)
    data, fold_in = own_regression(labels, features)
    loss = PseudoHuber(threshold)
    found = newton(fold_in, LocalEngine(np.float64).kernels, data.as_users, data.values.astype(float), loss)
    for user, sign in ((0, 1.0), (1, -1.0)):

        def objective(own, sign=sign):
            return loss.value(features @ own, sign * labels).sum() + 0.5 * np.square(own).sum()

        best = minimize(objective, np.array([sign * level, 0.0]), method="Nelder-Mead", options={"xatol": 1e-7})
        assert objective(found[user]) <= best.fun + 0.01 * abs(best.fun)


@BOTH
def test_no_step_raises_anybodys_loss_and_nobody_changes_what_another_finds(loss):
    rng = np.random.default_rng(2)
    features = np.concatenate([np.ones((30, 1)), 3 * rng.standard_normal((30, 2))], axis=1)
    data, fold_in = own_regression(np.where(rng.random(30) < 0.5, 4.0, -4.0), features, 0.01)
    labels = data.values.astype(float)

    def losses(found):
        values = loss.value(np.einsum("nd,nd->n", found[data.users], features[data.tasks]), labels)
        return np.bincount(data.users, values) + 0.005 * np.square(found).sum(axis=1)

    kernels = LocalEngine(np.float64).kernels
    paths = np.stack([losses(newton(fold_in, kernels, data.as_users, labels, loss, steps)) for steps in range(8)])
    assert (np.diff(paths, axis=0) <= 1e-12).all()
    assert (paths[-1] < paths[0]).all()
    alone = data.where(data.users == 0)
    np.testing.assert_array_equal(
        newton(fold_in, kernels, alone.as_users, alone.values.astype(float), loss)[0],
        newton(fold_in, kernels, data.as_users, labels, loss)[0],
    )


def test_losses_are_stored_by_name_and_settings_and_come_back():
    for loss in (Logistic(), PseudoHuber(2.0)):
        assert stored_loss(loss_settings(loss)) == loss
    assert stored_loss(loss_settings(OnlyBounds())) == "OnlyBounds"
    with pytest.raises(InputError, match="threshold > 0, got 0"):
        PseudoHuber(0.0)
