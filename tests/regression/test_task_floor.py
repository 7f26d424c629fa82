"""Models of many tasks: a floor under them, and several rows of a user for one task."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.privacy import SeededNoise
from apportion.regression import MultiTaskERM, Observations


def rows_of(strength, n_users=400, n_tasks=30, seed=0):
    """Users with 5 tasks each, labels of two classes, three in four of them yes."""
    rng = np.random.default_rng(seed)
    users, tasks = np.repeat(np.arange(n_users), 5), rng.permuted(np.tile(np.arange(n_tasks), (n_users, 1)), axis=1)
    tasks = tasks[:, :5].ravel()
    x = np.column_stack([rng.uniform(-0.7, 0.7, len(users)), np.full(len(users), 0.7)])
    yes = rng.random(len(users)) < 1 / (1 + np.exp(-(strength * x[:, 0] + 1.1)))
    return x, yes.astype(float), tasks, users


def loss_ratio(strength, epsilon, seed=0, **settings):
    """Log loss over that of the best constant."""
    x, y, tasks, users = rows_of(strength)
    settings = {"domain_radius": 5.0, "noise": SeededNoise(seed), **settings}
    model = MultiTaskERM("logistic", epsilon, **settings).fit(x, y, tasks=tasks, users=users, task_ids=np.arange(30))
    share = y.mean()
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    return np.logaddexp(0, -(2 * y - 1) * model.decision_function(x, tasks=tasks)).mean() / constant, model


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_a_model_that_is_mostly_noise_gives_way_to_a_constant(epsilon):
    ratios, models = zip(*(loss_ratio(0.0, epsilon, seed) for seed in range(4)), strict=True)
    assert np.mean(ratios) < 1.03
    without = np.mean([loss_ratio(0.0, epsilon, seed, floor=False)[0] for seed in range(4)])
    assert without > np.mean(ratios)
    assert min(model.model_part_ for model in models) == 0.0


def test_a_good_model_stays():
    ratio, model = loss_ratio(12.0, 1e4, steps=300, domain_radius=12.0)
    assert model.model_part_ == 1.0
    assert model.intercept_ == 0.0
    assert ratio < 0.8


def test_the_constant_for_numbers_is_near_their_mean():
    rng = np.random.default_rng(0)
    users, tasks = np.repeat(np.arange(500), 4), np.tile(np.arange(4), 500)
    x, y = rng.uniform(-0.5, 0.5, (2000, 2)), 0.6 + 0.1 * rng.normal(size=2000)
    model = MultiTaskERM("squared", 4.0, noise=SeededNoise(1)).fit(x, y, tasks=tasks, users=users, task_ids=range(4))
    assert model.model_part_ < 1
    assert model.intercept_ / (1 - model.model_part_) == pytest.approx(0.6, abs=0.1)


def test_several_rows_of_a_pair_count_as_their_mean_and_others_are_left_alone():
    features = np.array([[1.0], [3.0], [5.0], [7.0]])
    found = Observations.from_arrays(features, [0.0, 2.0, 1.0, 4.0], ["b", "a", "b", "a"], [1, 1, 1, 2])
    np.testing.assert_array_equal(found.features[:, 0], [3.0, 3.0, 7.0])
    np.testing.assert_array_equal(found.labels, [2.0, 0.5, 4.0])
    assert found.data.n_observations == 3
