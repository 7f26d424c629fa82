"""One task, and the complete graph: excess risk falls and grows as the known bounds say (section 3 of the paper).

Average excess risk is of the order of d/(λ n² β) for one task and m d/(λ n² β) for m tasks that every user takes part
in, for strongly convex losses. Data with features on the unit sphere and a ridge of λ = 2 make that nearly exact.
Powers are measured between two sizes, a factor of 4 apart, over seeds that give at least 500 squared normal numbers on
either side: the ratio has a relative standard deviation below 0.09, a power below 0.065, and 0.3 is 4.6 of those
(false-alarm rate below 1e-5 for fresh seeds; these are fixed).
"""

from __future__ import annotations

import numpy as np
import pytest

from apportion.allocation import EqualSplit
from apportion.data import Interactions
from apportion.privacy import SeededNoise
from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations

LAMBDA, DIMENSION = 2.0, 8


def complete_graph(n_users, n_tasks, seed=0, dimension=DIMENSION):
    rng = np.random.default_rng(seed)
    users, tasks = (grid.ravel() for grid in np.meshgrid(np.arange(n_users), np.arange(n_tasks), indexing="ij"))
    x = rng.standard_normal((len(users), dimension))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    truth = rng.standard_normal((n_tasks, dimension))
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    data = Interactions.from_arrays(users, tasks, task_ids=np.arange(n_tasks))
    return Observations(data, x, np.einsum("nd,nd->n", x, truth[tasks]))


def average_excess(make, n_users, n_tasks, n_seeds, dimension=DIMENSION):
    """Mean over seeds of (L(θ) − L(θ*)) / (m n), for squared error with a ridge."""
    rows = complete_graph(n_users, n_tasks, dimension=dimension)
    total = 0.0
    for seed in range(n_seeds):
        found = make(n_users, SeededNoise(seed)).fit_observations(rows).coef_
        for task in range(n_tasks):
            own = rows.data.tasks == task
            x, y = rows.features[own], rows.labels[own]
            hessian = x.T @ x + LAMBDA * n_users * np.eye(dimension)
            apart = found[task] - np.linalg.solve(hessian, x.T @ y)
            total += apart @ hessian @ apart
    return total / (n_seeds * n_tasks * n_users)


def ridge(n_users, noise):
    return MultiTaskRidge(5.0, 1e-5, ridge=LAMBDA, solve="psd", allocation=EqualSplit(), n_users=n_users, noise=noise)


def descent(n_users, noise):
    return MultiTaskERM(
        "squared", 5.0, 1e-5, ridge=LAMBDA, rule="strongly convex", steps=40, average=False, floor=False,
        allocation=EqualSplit(), n_users=n_users, noise=noise,
    )  # fmt: skip


def power(make, small, large, axis):
    sizes = {"n": 0, "m": 1, "d": 3}[axis]
    ratio = average_excess(make, *large) / average_excess(make, *small)
    return np.log(ratio) / np.log(large[sizes] / small[sizes])


@pytest.mark.parametrize("make", [ridge, descent])
def test_a_single_task_s_average_risk_falls_with_the_square_of_the_users(make):
    assert power(make, (400, 1, 64), (1600, 1, 64), "n") == pytest.approx(-2.0, abs=0.3)


@pytest.mark.parametrize("make", [ridge, descent])
def test_a_single_task_s_average_risk_grows_with_the_dimension(make):
    assert power(make, (800, 1, 128, 4), (800, 1, 64, 16), "d") == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("make", [ridge, descent])
def test_on_the_complete_graph_average_risk_grows_with_the_number_of_tasks(make):
    assert power(make, (800, 4, 16), (800, 16, 8), "m") == pytest.approx(1.0, abs=0.3)
