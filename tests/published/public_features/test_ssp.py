"""Encoders trained on protected statistics: the guarantee, the algebra, and that features help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds import nobody

from apportion import linalg
from apportion.allocation import Expected
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.evaluation import rmse
from apportion.privacy import Budget, SeededNoise, Session
from apportion.published.public_features.encoders import FeatureBatch
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.statistics import (
    Released,
    Surrogate,
    noise_aware_surrogate,
    plain_surrogate,
    release_statistics,
    shrink,
)
from apportion.published.public_features.training import CommonEncoder, EncoderTrainer, Training
from held_values import plainly, round_of

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
from statistics_helpers import assert_scale
from strategies import interactions, random_interactions

FEW = Training(epochs=2, batch_size=None)


def make(kind="ratings", **arguments):
    """An estimator factory with these settings of the update."""

    def made(**given):
        encoder = two_layers(3 if kind == "ratings" else 2)
        return estimator(EncoderStatistics(encoder, FEW, **arguments), kind=kind, **given)

    return made


CASES = {
    "SSP-c": make(),
    "SSP-c, the paper's quadratic, no vectors of its own": make(noise_aware=False, own=False),
    "SSP-i": make(resamples=3, own=False),
    "clicks": make("clicks"),
    "the head alone": make(head=0.4),
    "the head alone, clicks": make("clicks", head=0.4),
}


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
@settings(max_examples=8)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 50.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(made, data, user, epsilon):
    assert_audited(made, data, user, epsilon=epsilon, seed=user, least=5)


@settings(max_examples=3)
@given(data=interactions(), user=st.integers(0, 11))
def test_statistics_of_a_sample_of_users_do_not_move_by_more_than_their_sensitivity_either(data, user):
    assert_audited(make(resamples=2, sampling=0.7), data, user, epsilon=50.0, seed=user, least=10)


@pytest.mark.parametrize("name", ["SSP-c", "SSP-i", "clicks"])
def test_a_user_at_the_bound_moves_every_release_by_most_of_it(name):
    data, extreme = at_the_bound()
    best = best_ratios(CASES[name], data, extreme, [0])
    assert max(best.values()) <= 1 + 1e-9
    idle = {release: ratio for release, ratio in best.items() if ratio < 0.5}
    assert not idle, f"the bound is loose or idle for {idle}"


@pytest.mark.parametrize("made", CASES.values(), ids=CASES)
def test_the_whole_budget_is_spent_and_the_statement_names_the_features(made):
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(1))
    data = random_interactions(5)
    made(features=features_of(data.n_tasks)).fit(data, session=session)
    assert 1 - 1e-9 <= session.spent <= 1.0
    statement = session.statement()
    assert statement.spent_epsilon <= 2.0
    assert any("features" in sentence for sentence in statement.public)


def some_round(seed=0, n_users=40):
    data = random_interactions(seed, n_users=n_users)
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((data.n_users, 2))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
    labels = np.clip((data.values - 3).astype(float), -2, 2)
    flat = Expected(np.full(data.n_tasks, 5.0), np.full(data.n_tasks, 0.3))
    items = rng.standard_normal((data.n_tasks, 2)) * 0.2
    return round_of(data, vectors, labels, flat, items)


def almost_exact(about, label_bound=2.0):
    session = Session(Budget(1e12, 1e-5), noise=SeededNoise(0))
    pair = session.plan(parts=[0.5, 0.5]).several("parts")
    return release_statistics(about, session, LocalEngine(np.float64), pair, label_bound)


def test_the_gradient_of_the_statistics_is_the_gradient_of_the_users_losses():
    about, rows = some_round(), features_of(9)
    surrogate = plain_surrogate(almost_exact(about), 0.0)
    encoder = two_layers(2, sparse=False).double()
    seen = plainly(about)
    weights = torch.as_tensor(seen.weights)
    users, tasks = (torch.tensor(held, dtype=torch.int64) for held in (seen.users, seen.tasks))
    batch = FeatureBatch.of(rows)
    batch = replace(batch, values=batch.values.double(), bag_weights=batch.bag_weights.double())
    vectors = encoder(batch)
    errors = (torch.as_tensor(seen.vectors)[users] * vectors[tasks]).sum(1) - torch.as_tensor(seen.labels)
    direct = torch.autograd.grad(0.5 * (weights * errors**2).sum(), encoder.parameters(), retain_graph=True)
    bent = torch.einsum("mij,mj->mi", torch.as_tensor(surrogate.curvature), vectors)
    loss = ((0.5 * bent - torch.as_tensor(surrogate.slope)) * vectors).sum()
    for expected, found in zip(direct, torch.autograd.grad(loss, encoder.parameters()), strict=True):
        scale = float(expected.abs().max())
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=2e-4 * scale)  # ε = 1e12 is not infinite


def test_noise_of_both_releases_has_the_stated_scale():
    about = nobody(some_round())
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(3))
    pair = session.plan(parts=[0.5, 0.5]).several("parts")
    released = release_statistics(about, session, LocalEngine(np.float64), pair, 0.7)
    diagonal = released.matrices[:, linalg.diagonal_positions(2)]
    assert_scale(diagonal, stddev=1 / pair[0].mu, detect=1.2)
    assert_scale(released.vectors, stddev=0.7 / pair[1].mu, detect=1.2)
    assert released.matrix_stddev == pytest.approx(1 / pair[0].mu)
    assert released.vector_stddev == pytest.approx(0.7 / pair[1].mu)


def test_the_penalty_is_added_after_the_release():
    about = some_round()
    first = plain_surrogate(almost_exact(about), 0.0)
    second = plain_surrogate(almost_exact(about), 5.0)
    np.testing.assert_array_equal(first.slope, second.slope)
    stddev = almost_exact(about).matrix_stddev
    np.testing.assert_allclose(second.curvature - first.curvature, np.broadcast_to(5 * stddev * np.eye(2), (9, 2, 2)))


def random_surrogate(seed=0, n_items=6, width=3):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((n_items, width, width))
    return Surrogate(roots @ roots.transpose(0, 2, 1), rng.standard_normal((n_items, width)))


def test_the_profiled_quadratic_is_the_least_over_items_own_vectors():
    surrogate, precision = random_surrogate(), np.array([0.5, 2.0, 10.0])
    profiled = surrogate.profiled(precision)

    def least(means):
        items, _ = surrogate.corrected(means, precision)
        return surrogate.value(items) + 0.5 * (precision * np.square(items - means)).sum()

    rng = np.random.default_rng(1)
    one, two = rng.standard_normal((2, 6, 3))
    assert profiled.value(one) - profiled.value(two) == pytest.approx(least(one) - least(two))


def test_items_with_a_vague_prior_solve_their_own_regression_and_with_a_sharp_one_follow_the_encoder():
    surrogate, means = random_surrogate(2), np.ones((6, 3))
    free, _ = surrogate.corrected(means, np.full(3, 1e-9))
    np.testing.assert_allclose(
        free, np.linalg.solve(surrogate.curvature, surrogate.slope[:, :, None])[:, :, 0], rtol=1e-4
    )
    held, variance = surrogate.corrected(means, np.full(3, 1e9))
    np.testing.assert_allclose(held, means, atol=1e-6)
    np.testing.assert_allclose(variance, 1e-9, rtol=1e-3)


def test_where_noise_is_small_the_noise_aware_minimum_is_the_plain_one_and_where_it_is_large_it_counts_less():
    about = some_round(n_users=200)
    released = almost_exact(about)
    aware = noise_aware_surrogate(released, about.expected, 0.8, 0.1)
    solved = np.linalg.lstsq(aware.curvature[0], aware.slope[0], rcond=None)[0]
    plain = plain_surrogate(released, 0.0)
    np.testing.assert_allclose(solved, np.linalg.solve(plain.curvature[0], plain.slope[0]), rtol=1e-3)
    noisy = noise_aware_surrogate(replace(released, vector_stddev=50.0), about.expected, 0.8, 0.1)
    assert np.trace(noisy.curvature[0]) < 0.01 * np.trace(aware.curvature[0])


def test_the_noise_aware_quadratic_is_that_of_the_shrunk_matrices_written_out():
    rng = np.random.default_rng(3)
    noisy = rng.standard_normal((30, 6)) + np.array([3.0, 0, 3, 0, 0, 3])
    released = Released(noisy, 1.0, rng.standard_normal((30, 3)), 0.4)
    expected = Expected(rng.uniform(1, 5, 30), rng.uniform(0.1, 0.4, 30))
    shrunk, left = shrink(released, expected.total)
    assert (np.linalg.eigvalsh(linalg.unpack(released.matrices)).min(axis=1) < 0).any()  # the cone matters
    found = noise_aware_surrogate(released, expected, 0.8, 0.1)
    for i, matrix in enumerate(linalg.unpack(shrunk)):
        noise = (0.4**2 + left[i] * 2 * 0.1) * np.eye(3) + 0.8 * expected.typical[i] * matrix
        np.testing.assert_allclose(found.curvature[i], matrix @ np.linalg.solve(noise, matrix), atol=1e-9)
        np.testing.assert_allclose(found.slope[i], matrix @ np.linalg.solve(noise, released.vectors[i]), atol=1e-9)


def test_batches_of_all_items_descend_as_a_batch_as_large_as_the_items_does():
    rows, surrogate = features_of(40), random_surrogate(n_items=40, width=2)
    values = []
    for size in (None, 40):
        trainer = EncoderTrainer(linear(2), rows, Training(epochs=20, batch_size=size, rate=0.05))
        trainer.descend(surrogate, 20)
        values.append(trainer.encoded())
    np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-5)


def test_matrices_that_are_all_noise_shrink_to_the_common_shape():
    rng = np.random.default_rng(0)
    shape, exposure = np.array([2.0, 0.5, 1.0]), np.full(4000, 3.0)
    noise = 5.0 * rng.standard_normal((4000, 3)) * np.array([1, np.sqrt(0.5), 1])
    noisy = exposure[:, None] * shape / 3 + noise
    shrunk, left = shrink(Released(noisy, 5.0, np.zeros((4000, 2)), 1.0), exposure)
    # at width 2 James and Stein take 1 of 3 coordinates' noise away, and the cone more
    assert np.square(shrunk - shape).mean() < 0.6 * np.square(noisy - shape).mean()
    assert left.mean() < 0.7 * 25.0


def test_the_gradient_of_a_table_stays_sparse_and_untouched_features_do_not_move():
    rows = features_of(50)
    kept = np.flatnonzero(rows.to_scipy().toarray()[:, 0] == 0)  # items without feature 0
    encoder = linear(3)
    before = encoder.table.weight.detach().clone()
    surrogate = random_surrogate(n_items=len(kept))
    trainer = EncoderTrainer(encoder, rows.take(kept), Training(epochs=2, batch_size=8))
    trainer.descend(surrogate, 5)
    assert encoder.table.weight.grad.is_sparse
    assert torch.equal(encoder.table.weight[0], before[0])
    assert not torch.equal(encoder.table.weight[1], before[1])


def test_training_comes_near_the_least_squares_solution_of_a_linear_encoder():
    rows, surrogate = features_of(40), random_surrogate(n_items=40, width=2)
    encoder = linear(2)
    trainer = EncoderTrainer(encoder, rows, Training(epochs=400, batch_size=None, rate=0.05))
    trainer.descend(surrogate, 400)
    design = np.concatenate([rows.to_scipy().toarray(), np.ones((40, 1))], axis=1)
    normal = np.einsum("mf,mij,mg->figj", design, surrogate.curvature, design).reshape(20, 20)
    right = (design.T @ surrogate.slope).ravel()
    best = surrogate.value(design @ np.linalg.lstsq(normal, right, rcond=None)[0].reshape(10, 2))
    found = surrogate.value(trainer.encoded())
    assert best <= found + 1e-6
    assert found - best < 0.01 * abs(best)


def test_resampling_divides_the_budget_of_a_round():
    update = EncoderStatistics(linear(3), resamples=4)
    shares = update.shares(clicks=False)
    assert len(shares) == 8
    assert sum(shares.values()) == pytest.approx(1.0)
    assert sum(EncoderStatistics(linear(3), resamples=4).shares(clicks=True).values()) == pytest.approx(1.0)


def test_features_beat_no_features_where_they_say_what_items_are():
    data, rows = feature_driven_ratings()
    train, test = data.split_by_value(np.random.default_rng(0), (0.8, 0.2))
    errors = {}
    for name, encoder in (("none", CommonEncoder(4)), ("features", two_layers(4))):
        fits = [
            EncoderMinimisation(
                3.0, 1e-5, features=rows, update=EncoderStatistics(encoder), dimension=3, noise=SeededNoise(seed)
            ).fit(train)
            for seed in range(3)
        ]
        errors[name] = np.mean([rmse(fit.model_.predict(train, test), test).overall for fit in fits])
    assert errors["features"] < errors["none"] - 0.01


def test_items_outside_the_head_follow_the_encoder():
    data, rows = feature_driven_ratings(300, 60)
    update = EncoderStatistics(two_layers(3), FEW, head=0.25)
    fitted = estimator(update, features=rows, epsilon=50.0, noise=SeededNoise(0), engine=LocalEngine()).fit(data)
    encoded = EncoderStatistics(fitted.encoder_, rows=rows).encoded()
    apart = np.abs(fitted.model_.vectors - encoded[:, 1:]).max(axis=1)
    assert (apart > 1e-4).sum() == 15
    assert fitted.model_.popularity[apart > 1e-4].min() >= np.sort(fitted.model_.popularity)[45] - 1e-6


def test_the_same_seed_gives_the_same_model_and_the_given_encoder_is_left_alone():
    data = random_interactions(4)
    encoder = two_layers(3)
    before = encoder.dense.weight.detach().clone()
    fits = [
        estimator(EncoderStatistics(encoder, FEW), features=features_of(9), noise=SeededNoise(0)).fit(data)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(fits[0].model_.fold_in.features, fits[1].model_.fold_in.features)
    assert torch.equal(encoder.dense.weight, before)
    assert not torch.equal(fits[0].encoder_.dense.weight, before)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (EncoderStatistics(linear(3), resamples=0), "at least 1 release of the statistics per round, got 0"),
        (EncoderStatistics(linear(3), gram_share=0.0), "gram_share strictly between 0 and 1, got 0"),
        (EncoderStatistics(linear(3), sampling=0.0), r"sampling probability in \(0, 1\], got 0"),
        (EncoderStatistics(linear(3), memory=1.5), r"memory in \[0, 1\] and departure > 0, got 1.5 and 0.05"),
        (EncoderStatistics(linear(7)), "an encoder with 3 outputs for these settings, got 7"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(update, message):
    with pytest.raises(InputError, match=message):
        estimator(update, features=features_of(9)).fit(random_interactions(0))


def test_features_of_another_number_of_tasks_are_refused():
    with pytest.raises(InputError, match="features of 9 tasks, one row each, got 8"):
        estimator(EncoderStatistics(linear(3)), features=features_of(8)).fit(random_interactions(0))
