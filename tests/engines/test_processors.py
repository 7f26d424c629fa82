"""What users compute for themselves is the same on every engine, and what plain algebra says."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.engines import LocalEngine, TorchEngine

from strategies import random_interactions


def torch_engine():
    pytest.importorskip("torch", reason="torch is not installed")
    return TorchEngine("cpu", np.float64)


def test_user_solves_agree_between_engines_and_with_plain_algebra():
    data = random_interactions(8)
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((data.n_tasks, 4)), rng.standard_normal(data.n_observations)
    trust, base, side = rng.uniform(0.5, 2, data.n_observations), np.eye(4) + 0.1, rng.standard_normal(4)
    about = data.as_users, features, labels, base, side, trust
    here = LocalEngine(np.float64).kernels.solve_users(*about)
    np.testing.assert_array_equal(torch_engine().kernels.solve_users(*about), here)
    mine = data.users == 3
    x, w = features[data.tasks[mine]], trust[mine]
    expected = np.linalg.solve(base + (x.T * w) @ x, side + x.T @ (w * labels[mine]))
    np.testing.assert_allclose(here[3], expected, rtol=1e-9)


def test_the_total_of_a_user_is_the_sum_over_its_tasks():
    data = random_interactions(8)
    features = np.random.default_rng(0).standard_normal((data.n_tasks, 4))
    here = LocalEngine(np.float64).kernels.total_of_users(data.as_users, features)
    np.testing.assert_array_equal(torch_engine().kernels.total_of_users(data.as_users, features), here)
    for user in range(data.n_users):
        expected = features[data.tasks[data.users == user]].sum(axis=0)
        np.testing.assert_allclose(here[user], expected, rtol=1e-12, atol=1e-12)
