"""Plain joint DP-SGD: the guarantee, that it learns, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.evaluation import GlobalMean, rmse
from apportion.privacy import Budget, SeededNoise, Session
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.joint import JointGradient

from encoder_cases import assert_audited, estimator, feature_driven_ratings, features_of, two_layers
from strategies import interactions, random_interactions


def made(**given):
    update = EncoderGradient(two_layers(3, sparse=False), steps=1, clip=0.05)
    return estimator(update, JointGradient, **{"rounds": 4, **given})


@settings(max_examples=6)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 50.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(data, user, epsilon):
    assert_audited(made, data, user, epsilon=epsilon, seed=user, least=5)


def test_where_privacy_is_cheap_it_learns():
    data, rows = feature_driven_ratings(600, 60)
    train, test = data.split_by_value(np.random.default_rng(0), (0.8, 0.2))
    update = EncoderGradient(two_layers(4, sparse=False), steps=1, clip=2.0, rate=0.03)
    fitted = estimator(
        update, JointGradient, features=rows, epsilon=300.0, dimension=3, rounds=40, growth=1.0, user_norm=1.5,
        noise=SeededNoise(0), engine=LocalEngine(np.float64),
    ).fit(train)  # fmt: skip
    plain = rmse(GlobalMean().fit(train).predict(train, test), test).overall
    assert rmse(fitted.model_.predict(train, test), test).overall < 0.9 * plain


def test_it_takes_one_step_at_a_time():
    update = EncoderGradient(two_layers(3, sparse=False), steps=2)
    with pytest.raises(InputError, match="EncoderGradient of 1 step"):
        estimator(update, JointGradient, features=features_of(9)).fit(random_interactions(0))


def test_a_users_steps_lead_to_the_solution_of_its_own_regression():
    data, rows = random_interactions(2), features_of(9)
    chosen = made(features=rows)
    engine = LocalEngine(np.float64)
    fit = chosen._making(chosen, data, Session(Budget(1.0, 1e-5), noise=SeededNoise(0)), engine, rows)
    items = np.random.default_rng(0).standard_normal((9, 3))
    labels = data.values.astype(float) - 3
    own = fit._moved(None, items, labels)
    assert not own.any()
    first = fit._moved(own, items, labels)
    assert (np.abs(first).max(axis=1) > 1e-3).all()
    for _ in range(3000):
        own = fit._moved(own, items, labels)
    exact = fit._fold_in(items).solve(engine.kernels, data.as_users, labels)
    np.testing.assert_allclose(
        own, np.delete(exact, 1, axis=1), atol=1e-3
    )  # without the item's bias, whose factor is 1


def test_users_move_from_step_to_step_of_a_fit():
    data, rows = random_interactions(2), features_of(9)
    chosen = made(features=rows)
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    fit = chosen._making(chosen, data, session, LocalEngine(np.float64), rows)
    fit.run(np.random.default_rng(0), None)
    assert (np.abs(fit._own).max(axis=1) > 1e-3).all()
