"""Each party's own protection of its rows: the density, the second clip, and who draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gamma, kstest

from apportion.parties import ProtectedMultiTask, Sending
from apportion.parties.instance import InstanceGuarantee, party_noise
from apportion.privacy import SeededNoise

from party_cases import low_rank_tasks


def _drawn(epsilon, norm, dimension=3, n_parties=4000):
    guarantee = InstanceGuarantee.over(epsilon, 1)
    disturb = party_noise(guarantee, np.arange(n_parties), SeededNoise(1))
    return disturb(np.zeros((n_parties, dimension)), norm)


def test_lengths_follow_the_density_that_the_guarantee_needs():
    """||b|| ~ Gamma(d, 2K/ε): a density that falls as exp(-ε||b||/(2K)). False-alarm rate 1e-9, and it has power."""
    lengths = np.linalg.norm(_drawn(epsilon=0.8, norm=1.5), axis=1)
    assert kstest(lengths, gamma(a=3, scale=2 * 1.5 / 0.8).cdf).pvalue > 1e-9
    assert kstest(lengths, gamma(a=3, scale=1.15 * 2 * 1.5 / 0.8).cdf).pvalue < 1e-9
    upside_down = gamma(a=3, scale=0.8 / (2 * 1.5))  # as printed in the paper: a smaller ε would mean less noise
    assert kstest(lengths, upside_down.cdf).pvalue < 1e-9


def test_directions_have_no_preference():
    drawn = _drawn(epsilon=1.0, norm=1.0)
    directions = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    assert kstest(directions[:, 0], "uniform", (-1, 2)).pvalue > 1e-9  # in three dimensions a coordinate is uniform


def test_the_density_ratio_of_any_two_models_is_at_most_e_to_the_epsilon():
    """The log density of b is -ε||b||/(2K) up to a constant, and two clipped models are at most 2K apart."""
    rng = np.random.default_rng(2)
    norm, epsilon = 1.3, 0.7
    pairs = rng.standard_normal((2000, 2, 4))
    pairs *= norm / np.maximum(np.linalg.norm(pairs, axis=2, keepdims=True), norm)
    outputs = 5 * rng.standard_normal((2000, 4))
    logs = -epsilon * np.linalg.norm(outputs[:, None] - pairs, axis=2) / (2 * norm)
    assert np.abs(logs[:, 0] - logs[:, 1]).max() <= epsilon


def test_what_is_sent_is_clipped_again_after_the_noise():
    guarantee = InstanceGuarantee.over(0.01, 1)
    models = 10 * np.random.default_rng(3).standard_normal((50, 4))
    for clip_norm in (2.0, None):
        sending = Sending(clip_norm, party_noise(guarantee, np.arange(50), SeededNoise(0)))
        assert sending.bounded(models, np.ones(len(models))).norm == (
            clip_norm or 1.0
        )  # the type refuses anything longer


def test_a_party_draws_the_same_whoever_else_takes_part():
    guarantee = InstanceGuarantee.over(1.0, 2)
    many = party_noise(guarantee, np.arange(5), SeededNoise(7))(np.zeros((5, 3)), 1.0)
    few = party_noise(guarantee, np.array([3]), SeededNoise(7))(np.zeros((1, 3)), 1.0)
    assert np.array_equal(many[3], few[0])


def test_rounds_divide_the_epsilon_and_less_of_it_costs_accuracy():
    features, labels = low_rank_tasks(4)
    model = ProtectedMultiTask(1000.0, rounds=4, instance_epsilon=2.0, noise=SeededNoise(0)).fit(features, labels)
    assert model.instance_guarantee_ == InstanceGuarantee(2.0, 4)
    assert model.instance_guarantee_.per_round == pytest.approx(0.5)
    kept = [
        ProtectedMultiTask(1000.0, instance_epsilon=epsilon, noise=SeededNoise(0)).fit(features, labels)
        for epsilon in (0.1, 1e4)
    ]
    assert kept[0].released_[0].kept < kept[1].released_[0].kept


def test_what_is_sent_has_no_last_bits_of_its_own():
    """Every number a party sends before it is clipped again lies on a grid that no data moves."""
    guarantee = InstanceGuarantee.over(2.0, 1)
    models = np.random.default_rng(0).standard_normal((5, 3)) / 10
    sent = party_noise(guarantee, range(5), SeededNoise(1))(models, 1.0)
    grid = sent / 2.0**-20  # the scale of the noise is 2K/ε = 1
    np.testing.assert_array_equal(grid, np.rint(grid))
