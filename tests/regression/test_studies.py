"""The studies of the paper's synthetic data and of its bounds run on what they say they run on."""

from __future__ import annotations

import numpy as np
import pytest

from papers.skew import synthetic, theory


def test_the_synthetic_data_are_those_of_the_paper():
    study = synthetic.Study(n_users=4000)
    data = synthetic.draw(study, 1.0, seed=0)
    train, test = data.train.data, data.test.data
    pairs = train.n_observations + test.n_observations
    assert pairs / 4000 == pytest.approx(20, abs=0.5)
    assert train.n_observations / pairs == pytest.approx(0.8, abs=0.01)
    np.testing.assert_array_equal(data.counts, np.maximum(train.by_task.counts, 1))
    assert np.linalg.norm(data.train.features, axis=1).max() <= 1 + 1e-12
    first = data.train.features[train.users == 5]
    assert (first == first[0]).all()
    assert train.by_task.counts.max() > 10 * train.by_task.counts.min()


def test_the_factor_of_a_curve_and_its_error_are_those_of_paired_logarithms():
    errors = np.array([[2.0, 4.0], [1.0, 2.0], [1.5, 4.0]])
    curve = synthetic.Curve("x", 1.0, 1.0, errors, ({}, {}, {}), best=1)
    assert curve.factor == pytest.approx(2.0)
    assert curve.factor_error == pytest.approx(0.0)
    other = synthetic.Curve("x", 1.0, 1.0, errors, ({}, {}, {}), best=2)
    assert other.factor == pytest.approx(np.sqrt(4 / 3))


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("m", [16, 64])
def test_weights_of_the_bounds_are_eq_11_and_nobody_is_clipped(gamma, m):
    point = theory.Point(m=m, n=500)
    tasks = theory.draw(point, seed=1)
    omega = theory.omega(tasks.sizes, point.n, gamma)
    allocation = theory.weights(tasks.sizes, point.n, gamma)
    expected = allocation.expected([], point.n, m)
    np.testing.assert_allclose(expected.typical, omega)
    np.testing.assert_allclose(expected.total, omega * tasks.sizes)
    data = tasks.rows.data
    spent = np.bincount(data.users, np.square(omega)[data.tasks], minlength=point.n)
    assert spent.max() <= 1.0
    np.testing.assert_array_equal(data.by_task.counts, tasks.sizes)


def test_a_budget_of_beta_is_a_squared_mu_of_twice_that():
    assert theory.budget(0.3).mu ** 2 == pytest.approx(0.6, rel=1e-6)


def test_excess_risk_is_zero_at_the_optimum_and_the_loss_difference_elsewhere():
    point = theory.Point(m=4, n=60, d=3)
    tasks = theory.draw(point, seed=0)
    hessians = tasks.grams + (theory.RIDGE * tasks.sizes)[:, None, None] * np.eye(3)
    best = np.linalg.solve(hessians, tasks.moments[:, :, None])[:, :, 0]
    other = best + 0.1
    data, x, y = tasks.rows.data, tasks.rows.features, tasks.rows.labels

    def loss(theta):
        own = theta[data.tasks]
        return (np.square((x * own).sum(axis=1) - y) + theory.RIDGE * np.square(own).sum(axis=1)).sum()

    assert tasks.excess(best, theory.RIDGE) == pytest.approx(0.0, abs=1e-9)
    assert tasks.excess(other, theory.RIDGE) == pytest.approx(loss(other) - loss(best))
