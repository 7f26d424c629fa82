"""What one round of an update does with what it releases: memory, draws, decay, samples, unobserved pairs, steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rounds import ENGINE, N_ITEMS, exact_statistics, nobody, session_for, some_round

from apportion.privacy import Budget, SeededNoise, Session
from apportion.published.public_features import (
    CollectiveFactorisation,
    CommonEncoder,
    EncoderGradient,
    EncoderStatistics,
)
from apportion.published.public_features.encoders import IdEncoder
from apportion.published.public_features.statistics import Surrogate, plain_surrogate, release_statistics
from apportion.published.public_features.training import EncoderTrainer, Training

from encoder_cases import features_of, linear, two_layers
from statistics_helpers import assert_scale

FEW = Training(epochs=2, batch_size=None)
PLAIN = {"noise_aware": False, "ridge": 0.0, "label_bound": 2.0}


def test_a_round_remembers_the_quadratics_before_it_with_less_weight_each():
    update = EncoderStatistics(two_layers(2), FEW, memory=0.5, **PLAIN).for_items(features_of(N_ITEMS))
    for _ in range(2):
        update(some_round(), *session_of(update))
    matrices, sums, _ = exact_statistics(some_round())
    np.testing.assert_allclose(update.past[0].curvature, 1.5 * matrices, atol=1e-3)
    np.testing.assert_allclose(update.past[0].slope, 1.5 * sums, atol=1e-3)
    forgetful = EncoderStatistics(two_layers(2), FEW, memory=0.0, **PLAIN).for_items(features_of(N_ITEMS))
    forgetful(some_round(), *session_of(forgetful))
    assert forgetful.past == []


def session_of(update, **arguments):
    session, shares = session_for(update, **arguments)
    return session, ENGINE, shares


def test_what_is_remembered_moves_the_items():
    rows = features_of(N_ITEMS)
    found = {}
    for memory in (0.0, 1.0):
        update = EncoderStatistics(two_layers(2), FEW, memory=memory, **PLAIN).for_items(rows)
        update(some_round(3), *session_of(update))
        found[memory] = update(some_round(), *session_of(update))
    assert np.abs(found[0.0] - found[1.0]).max() > 0.05


def test_every_draw_of_a_round_trains_for_its_part_of_the_steps():
    about, rows = some_round(), features_of(N_ITEMS)
    training = Training(epochs=6, batch_size=None, rate=0.05)
    update = EncoderStatistics(two_layers(2), training, resamples=3, own=False, memory=0.0, **PLAIN).for_items(rows)
    found = update(about, *session_of(update, epsilon=5.0))
    session, shares = session_for(update, epsilon=5.0)
    trainer = EncoderTrainer(two_layers(2), rows, replace(training, seed=1))
    lone = EncoderTrainer(two_layers(2), rows, replace(training, seed=1))
    for draw in (1, 2, 3):
        pair = shares[f"step {draw}: matrices"], shares[f"step {draw}: vectors"]
        surrogate = plain_surrogate(release_statistics(about, session, ENGINE, pair, 2.0, draw), 0.0)
        trainer.descend(surrogate, 2)
    np.testing.assert_allclose(found, trainer.encoded(), atol=1e-6)
    lone.descend(surrogate, 6)
    assert np.abs(found - lone.encoded()).max() > 0.01  # the last draw alone leads elsewhere


def test_weight_decay_holds_dense_parameters_small():
    rows = features_of(N_ITEMS)
    surrogate = Surrogate(np.tile(np.eye(2), (N_ITEMS, 1, 1)), np.full((N_ITEMS, 2), 5.0))
    sizes = []
    for decay in (0.0, 5.0):
        encoder = linear(2, sparse=False)
        EncoderTrainer(encoder, rows, Training(batch_size=None, rate=0.05, decay=decay)).descend(surrogate, 200)
        sizes.append(sum(float(parameter.detach().square().sum()) for parameter in encoder.parameters()))
    assert sizes[1] < 0.5 * sizes[0]


@pytest.mark.slow
def test_noise_of_statistics_of_a_sample_has_the_stated_scale():
    about = nobody(some_round())
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(3))
    _, sampled = session.plan_sampled(2, 0.25)
    released = release_statistics(about, session, ENGINE, (sampled, sampled), 0.7)
    assert_scale(released.matrices[:, [0, 2]], stddev=released.matrix_stddev, detect=1.2)
    assert_scale(released.vectors, stddev=released.vector_stddev, detect=1.2)


@pytest.mark.parametrize("kind", ["statistics", "factorisation"])
def test_unobserved_pairs_of_clicks_pull_every_item_towards_zero(kind):
    about, rows = some_round(unobserved=0.4), features_of(N_ITEMS)
    matrices, sums, users = exact_statistics(about)
    curvature = matrices + 0.4 * about.expected.typical[:, None, None] * users
    if kind == "statistics":
        update = EncoderStatistics(two_layers(2), FEW, **PLAIN).for_items(rows)
        update(about, *session_of(update, clicks=True))
        np.testing.assert_allclose(update.past[0].curvature, curvature, atol=1e-3)
        return
    update = CollectiveFactorisation(feature_weight=0.0, ridge=0.0, label_bound=2.0).for_items(rows)
    found = update(about, *session_of(update, clicks=True))
    np.testing.assert_allclose(found, np.linalg.solve(curvature, sums[:, :, None])[:, :, 0], atol=1e-3)


def test_unobserved_pairs_of_clicks_pull_gradient_steps_towards_zero():
    encoder = IdEncoder(N_ITEMS, 2, sparse=False)
    update = EncoderGradient(encoder, steps=1, clip=5.0, rate=0.01).for_items(features_of(N_ITEMS))
    before = update.encoded()
    about = some_round(unobserved=5.0, items=before)
    matrices, sums, users = exact_statistics(about)
    observed = np.einsum("mij,mj->mi", matrices, before) - sums
    slope = observed + 5.0 * about.expected.typical[:, None] * (before @ users)
    moved = update(about, *session_of(update, clicks=True)) - before
    np.testing.assert_array_equal(np.sign(moved), -np.sign(slope))
    assert (np.sign(slope) != np.sign(observed)).any()  # without the unobserved pairs some would move the other way


def test_items_own_steps_are_their_released_gradients_over_what_is_known_of_their_size():
    about, rows = some_round(), features_of(N_ITEMS)
    update = EncoderGradient(CommonEncoder(2), steps=1, own_step=0.7, own_clip=50.0).for_items(rows)
    found = update(about, *session_of(update)) - update.encoded()
    _, sums, _ = exact_statistics(about)  # the encoder starts at 0, so residuals are labels
    np.testing.assert_allclose(found, 0.7 * sums / about.expected.total[:, None], rtol=1e-3, atol=1e-3)
    assert np.abs(found).max() > 0.05


def test_features_draw_the_items_of_a_factorisation_towards_what_they_say():
    about, rows = some_round(), features_of(N_ITEMS)
    left = {}
    for weight in (0.0, 100.0):
        update = CollectiveFactorisation(feature_weight=weight, sweeps=20, ridge=1.0).for_items(rows)
        found = update(about, *session_of(update, epsilon=2.0))
        gram = found.T @ found + np.eye(2)
        explained = found @ np.linalg.solve(gram, found.T @ rows.to_scipy().toarray())
        left[weight] = np.square(rows.to_scipy().toarray() - explained).sum()
    assert left[100.0] < 0.8 * left[0.0]
