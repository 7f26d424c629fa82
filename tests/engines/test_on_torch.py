"""What a torch device computes, shown on the device "cpu:0", which takes the same path as a GPU."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from apportion.allocation import SplitEqually
from apportion.data.synthetic import long_tailed_clicks
from apportion.engines import LocalEngine, TorchEngine
from apportion.linalg.places import PROCESSORS, Place
from apportion.postprocessing.low_rank import denoise_rows
from apportion.postprocessing.popularity import posterior_popularity
from apportion.privacy import SeededNoise
from apportion.recommend import ClickSettings, PrivateClickRecommender

from strategies import random_interactions

DEVICE = "cpu:0"


@pytest.fixture
def kernels():
    pytest.importorskip("torch", reason="torch is not installed")
    return TorchEngine(DEVICE, np.float64).kernels


def test_rows_by_task_and_their_weights_are_those_of_the_processors(kernels):
    users, here = random_interactions(5).as_users, LocalEngine(np.float64).kernels
    order, weights = kernels.by_task(users), SplitEqually().of(users)
    for name in ("indptr", "indices", "order"):
        assert np.array_equal(getattr(order, name).numpy(), getattr(users.by_task, name))
    assert kernels.by_task(users) is order
    there = weights._in_order(order, kernels.arranged).numpy()
    assert np.array_equal(there, SplitEqually().of(users)._values[users.by_task.order])
    assert np.array_equal(there, weights._in_order(here.by_task(users), here.arranged))


def test_weights_and_labels_may_be_one_number_for_all_rows(kernels):
    users, rng = random_interactions(8).as_users, np.random.default_rng(0)
    features, base = rng.standard_normal((users.n_tasks, 4)), np.eye(4)
    solved = [
        each.solve_users(users, features, np.broadcast_to(1.0, users.n_rows), base)
        for each in (kernels, LocalEngine(np.float64).kernels)
    ]
    np.testing.assert_allclose(solved[0].numpy(), solved[1], rtol=1e-9)
    totals = kernels.total_of_users(users, features)
    np.testing.assert_allclose(totals.numpy(), LocalEngine(np.float64).kernels.total_of_users(users, features))


def test_positions_of_rows_do_not_travel_with_kernels(kernels):
    users = random_interactions(5).as_users
    kernels.by_task(users)
    copied = pickle.loads(pickle.dumps(kernels))
    assert copied._orders == []
    assert copied._placed == []


def test_released_values_may_be_worked_on_anywhere(kernels):
    rng = np.random.default_rng(2)
    noisy, spread = rng.standard_normal((200, 6)), rng.uniform(0.5, 2, 200)
    counts = rng.standard_normal(200) + 10 * rng.random(200) ** 4
    assert kernels.place == Place(DEVICE)
    for gently in (False, True):
        found = [denoise_rows(noisy, 0.7, spread, 4, place, gently=gently) for place in (PROCESSORS, kernels.place)]
        np.testing.assert_allclose(found[1].mean, found[0].mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found[1].resolved, found[0].resolved, rtol=1e-9, atol=1e-12)
    popular = [posterior_popularity(counts, 1.0, 100.0, place=place) for place in (PROCESSORS, kernels.place)]
    np.testing.assert_allclose(popular[1].mean, popular[0].mean, rtol=1e-9)


@pytest.mark.parametrize("exact", [False, True])
def test_a_fit_on_a_device_is_that_of_the_processors(kernels, exact):
    data, _ = long_tailed_clicks(3000, 200, 30_000, rank=3, rng=np.random.default_rng(1))
    made = [
        PrivateClickRecommender(
            epsilon=5.0, settings=ClickSettings(rounds=2, dimension=4), noise=SeededNoise(2), engine=engine
        ).fit(data).model_
        for engine in (LocalEngine(np.float64, exact=exact), TorchEngine(DEVICE, np.float64, exact=exact))
    ]  # fmt: skip
    assert made[0].settings["trust"] == made[1].settings["trust"]
    np.testing.assert_allclose(made[1].fold_in.features, made[0].fold_in.features, rtol=1e-4, atol=1e-5)
