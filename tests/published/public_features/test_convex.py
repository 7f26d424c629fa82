"""SSP-convex: the released approximation, the guarantee, and models that predict by the loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds import ENGINE, session_for, some_round

from apportion import linalg
from apportion.allocation import Expected
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.losses import Logistic, PseudoHuber
from apportion.privacy import SeededNoise
from apportion.published.public_features import ConvexModel
from apportion.published.public_features.convex import ConvexMinimisation, ConvexRound, EncoderConvex, Scores
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.statistics import Released
from apportion.published.public_features.training import Training
from apportion.published.public_features.user_side import BiasedVectors
from apportion.recommend import RatingModel, load, save
from held_values import plainly

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
LOSSES = {"logistic": Logistic(), "pseudo-Huber": PseudoHuber(0.5)}


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
    best = best_ratios(make(Logistic()), signed(data), extreme, [0])
    assert max(best.values()) <= 1 + 1e-9
    assert best["round 1: item curvatures"] > 0.5
    assert best["round 1: item slopes"] > 0.4  # a slope of 1 needs a score far on the wrong side


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


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_model_that_is_loaded_predicts_what_the_fitted_one_does(loss, tmp_path):
    data = signed(random_interactions(0))
    fitted = make(loss)(features=features_of(9), noise=SeededNoise(0)).fit(data)
    save(fitted.model_, tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, ConvexModel)
    assert again.loss == loss
    np.testing.assert_array_equal(again.predict(data, data), fitted.scores(data, data))
    found, before = again.recommend(data, 3), fitted.model_.recommend(data, 3)
    np.testing.assert_array_equal(found.tasks, before.tasks)
    ridge = RatingModel.predict(again, data, data)  # what a regression of another loss would say
    assert np.abs(again.predict(data, data) - ridge).max() > 0.01
    assert again.settings["update"]["training"]["epochs"] == 2


class Own(Logistic):
    """A loss that the library does not know."""


def test_a_loaded_model_with_a_loss_of_ones_own_says_so_and_predicts_when_it_is_given(tmp_path):
    data = signed(random_interactions(0))
    fitted = make(Own())(features=features_of(9), noise=SeededNoise(0)).fit(data)
    save(fitted.model_, tmp_path / "model")
    again = load(tmp_path / "model")
    with pytest.raises(InputError, match=r"fitted with the loss Own, which is not stored .* set model\.loss"):
        again.predict(data, data)
    save(again, tmp_path / "model")
    again = load(tmp_path / "model")
    again.loss = Own()
    np.testing.assert_array_equal(again.predict(data, data), fitted.scores(data, data))


def a_round():
    """A convex round, with users' biases beside their labels."""
    plain = some_round()
    seen = plainly(plain)
    own = np.column_stack([np.linspace(-1, 1, plain.users.n_users), np.zeros(plain.users.n_users), seen.vectors[:, 1]])
    users = plain.users.with_columns(labels=np.sign(seen.labels + 0.1)).with_user_columns(own=own)
    given = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    rows = BiasedVectors(lambda some, _kernels: some.of_user("own"), 2, 0.5, 0.8)
    return ConvexRound(**{**given, "users": users, "rows": rows})


def scored(about):
    """Users' biases and vectors (1/2, taste within 0.8), as arrays, and the scores that they give."""
    seen, own = plainly(about), about.users.of_user("own")
    vectors = np.column_stack([np.full(len(own), 0.5), np.clip(own[:, 2], -0.8, 0.8)])
    return seen, vectors, own[seen.users, 0] + (vectors[seen.users] * about.items[seen.tasks]).sum(axis=1)


def test_scores_are_users_biases_and_their_vectors_times_items():
    about = a_round()
    found = Scores(about.rows, about.items, about.kernels).of(about.users)
    np.testing.assert_allclose(found, scored(about)[2])


def test_slopes_and_curvatures_are_released_where_users_stand():
    about, loss = a_round(), Logistic()
    update = EncoderConvex(two_layers(2), FEW).for_items(features_of(9))
    session, shares = session_for(update)
    released = update._released(about, session, ENGINE, shares)
    seen, vectors, scores = scored(about)
    pulls = seen.weights * -loss.derivative(scores, seen.labels)
    expected = np.zeros((9, 2))
    np.add.at(expected, seen.tasks, pulls[:, None] * vectors[seen.users])
    np.testing.assert_allclose(released.vectors, expected, atol=1e-4)


@pytest.mark.parametrize("noise_aware", [True, False])
def test_where_slopes_are_zero_the_quadratic_has_its_minimum_where_the_items_are(noise_aware):
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((9, 2, 2))
    released = Released(linalg.pack(roots @ roots.transpose(0, 2, 1)), 1e-9, np.zeros((9, 2)), 1e-3)
    items = rng.standard_normal((9, 2))
    update = EncoderConvex(linear(2), noise_aware=noise_aware, ridge=0.0)
    around = update._around(released, Expected(np.full(9, 4.0), np.full(9, 0.3)), items)
    np.testing.assert_allclose(np.linalg.solve(around.curvature, around.slope[:, :, None])[:, :, 0], items, atol=1e-6)


def test_the_plain_quadratic_has_its_ridge_and_is_another_one_than_the_noise_aware():
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((9, 2, 2))
    released = Released(linalg.pack(roots @ roots.transpose(0, 2, 1)), 0.5, rng.standard_normal((9, 2)), 0.5)
    items, expected = rng.standard_normal((9, 2)), Expected(np.full(9, 4.0), np.full(9, 0.3))
    plain, bare, aware = (
        EncoderConvex(linear(2), noise_aware=aware, ridge=ridge)._around(released, expected, items)
        for aware, ridge in ((False, 4.0), (False, 0.0), (True, 4.0))
    )
    np.testing.assert_allclose(plain.curvature - bare.curvature, np.broadcast_to(2.0 * np.eye(2), (9, 2, 2)))
    np.testing.assert_allclose(plain.slope, bare.slope)
    assert np.abs(aware.curvature - bare.curvature).max() > 0.1


def test_values_far_beyond_the_threshold_are_predicted():
    data, rows = feature_driven_ratings(400, 40)
    train, test = data.split_by_value(np.random.default_rng(0), (0.8, 0.2))
    update = EncoderConvex(two_layers(4), Training(epochs=20, batch_size=None), loss=PseudoHuber(0.5))
    fitted = estimator(
        update, ConvexMinimisation, features=rows, epsilon=300.0, dimension=3, rounds=4, user_norm=1.5, user_ridge=1.0,
        noise=SeededNoise(0), engine=LocalEngine(np.float64),
    ).fit(train)  # fmt: skip
    found = fitted.scores(train, test)
    assert np.abs(found - test.values).mean() < 0.8 * np.abs(np.median(train.values) - test.values).mean()


def test_the_update_and_the_estimator_belong_together():
    data = random_interactions(0)
    with pytest.raises(InputError, match="a round of a ConvexMinimisation"):
        estimator(EncoderConvex(linear(3)), features=features_of(9)).fit(data)
    with pytest.raises(InputError, match="one release of the statistics per round, got 2 resamples"):
        estimator(EncoderConvex(linear(3), resamples=2), ConvexMinimisation, features=features_of(9)).fit(data)
    with pytest.raises(InputError, match="an EncoderConvex as update"):
        estimator(EncoderStatistics(linear(3)), ConvexMinimisation, features=features_of(9)).fit(data)
