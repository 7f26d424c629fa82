"""Gradients per user in little memory: some users at a time, long histories in pieces, nothing for those left out."""

from __future__ import annotations

import numpy as np
import pytest
from test_gradient import N_ITEMS, make, opaque

from apportion.allocation import SplitEqually
from apportion.allocation.weightings import OnSample
from apportion.auditing.hidden_values import raw_value
from apportion.engines import LocalEngine, Processors, add_up_one
from apportion.privacy import SeededNoise
from apportion.privacy.contributions import ClippedParts, Output, clipped
from apportion.privacy.sampling import Sample
from apportion.published.public_features import user_gradients as routes
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.skew import updates

from encoder_cases import estimator, feature_driven_ratings, features_of, two_layers
from strategies import random_interactions


@pytest.mark.parametrize("sampling", [1.0, 0.7])
@pytest.mark.parametrize("encoder", [two_layers, opaque], ids=["two layers", "through Opacus"])
def test_the_sum_is_the_same_however_few_users_are_worked_on_at_once(encoder, sampling, monkeypatch):
    data = random_interactions(3, n_users=60, n_tasks=N_ITEMS)
    found = []
    for at_once in (1 << 23, 300):  # the encoder has some ninety parameters, a history times features more
        monkeypatch.setattr(clipped, "_NUMBERS_AT_ONCE", at_once)
        monkeypatch.setattr(routes, "_NUMBERS_AT_ONCE", at_once)
        monkeypatch.setattr(routes, "_ITEMS_OF_A_SAMPLE", 64 if at_once > 300 else 3)
        made = make(encoder, sampling=sampling, own_step=1.0)(
            features=features_of(N_ITEMS), noise=SeededNoise(0), engine=LocalEngine()
        )
        found.append(made.fit(data).model_.fold_in.features)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_rows_of_users_who_do_not_take_part_are_never_made_and_others_some_at_a_time(monkeypatch):
    monkeypatch.setattr(clipped, "_NUMBERS_AT_ONCE", 1_000_000)
    seen = []

    def part(users, weights):
        taking_part = np.bincount(users.owner, weights != 0, minlength=users.n_users) > 0
        seen.append(int(taking_part.sum()))
        return (np.ones((seen[-1], 100_000)),)

    users = random_interactions(0, n_users=300).as_users
    sample = Sample(bytes(32), 0.1)
    expected = int(sample.members(users.keys).sum())
    ones = ClippedParts(part, (Output(100_000, 1000.0, False, "ones"),), OnSample(SplitEqually(), sample))
    found = add_up_one(LocalEngine(), users, ones)
    assert sum(seen) == expected
    assert 15 < expected < 60
    np.testing.assert_allclose(raw_value(found), expected, rtol=1e-4)
    assert max(seen) == 10
    assert len(seen) == -(-expected // 10)  # as few pieces as there can be, however many users are left out


def test_a_head_moves_every_users_weight_and_the_tail_keeps_to_the_encoder():
    data, rows = feature_driven_ratings(300, 60)
    update = EncoderGradient(two_layers(3), steps=2, own_step=0.5, head=0.25)
    fitted = estimator(update, features=rows, epsilon=50.0, noise=SeededNoise(0), engine=LocalEngine()).fit(data)
    apart = np.abs(fitted.model_.vectors - EncoderGradient(fitted.encoder_, rows=rows).encoded()[:, 1:]).max(axis=1)
    assert (apart > 1e-6).sum() == 15
    assert fitted.model_.popularity[apart > 1e-6].min() >= np.sort(fitted.model_.popularity)[45] - 1e-6


class CountingKernels(Processors):
    """Counts whose regressions are solved."""

    def solve_users(self, users, *given, **settings):
        self.solved = getattr(self, "solved", 0) + users.n_users
        return super().solve_users(users, *given, **settings)


@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_users_solve_their_regressions_once_a_round_however_they_are_cut(sampling, monkeypatch):
    monkeypatch.setattr(clipped, "_NUMBERS_AT_ONCE", 300)
    data = random_interactions(3, n_users=60, n_tasks=N_ITEMS)
    engine = LocalEngine(np.float64, chunk=17)
    engine.kernels = CountingKernels(np.float64, rows_at_once=17)
    made = make(two_layers, sampling=sampling, own_step=1.0, steps=5, head=0.5)
    made(features=features_of(N_ITEMS), noise=SeededNoise(0), engine=engine, rounds=2).fit(data)
    assert engine.kernels.solved == 2 * data.n_users


def test_residuals_are_formed_of_the_users_in_a_sample_alone(monkeypatch):
    seen, honest = [], updates.dot_rows
    monkeypatch.setattr(updates, "dot_rows", lambda one, two: seen.append(len(two)) or honest(one, two))
    data = random_interactions(3, n_users=60, n_tasks=N_ITEMS)
    given = {"features": features_of(N_ITEMS), "noise": SeededNoise(0), "engine": LocalEngine(np.float64)}
    make(two_layers, sampling=0.1, steps=1)(**given, rounds=1).fit(data)
    assert 0 < max(seen) < 0.4 * data.n_observations
