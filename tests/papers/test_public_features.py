"""The studies of the public-features paper in short: scaling, cost law, comparison rows, quality over time."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch

from apportion.published.public_features.training import Training
from papers.public_features import cost, movielens, scaling, timing
from papers.public_features.stand_ins import feature_driven_clicks, feature_driven_ratings, item_features

torch.set_num_threads(1)
GRID = [(16, rate) for rate in (0.125, 0.5, 2.0)]


@pytest.fixture(scope="module")
def bench():
    data, rows = feature_driven_ratings(300, 50, 12)
    return movielens.Bench.split("ratings", data, rows)


def test_the_best_risk_of_the_scaling_problem_is_the_closed_form_where_nothing_constrains_it():
    problem = scaling.Problem.drawn(8, 40, 800, 3, np.random.default_rng(0))
    items = np.linalg.solve(problem.matrices, problem.vectors[:, :, None])[:, :, 0]
    expected = -0.5 * (problem.vectors * items).sum()
    assert scaling.best_risk(problem, "none") == pytest.approx(expected, rel=1e-3)
    assert scaling.best_risk(problem, "ball") > scaling.best_risk(problem, "none")


def test_projections_obey_their_constraint_and_leave_what_obeys_it():
    problem = scaling.Problem.drawn(8, 40, 800, 3, np.random.default_rng(0))
    far = 10 * np.random.default_rng(1).standard_normal((40, 3))
    assert np.linalg.norm(problem.projected(far, "ball")) == pytest.approx(problem.radius)
    items = problem.features @ problem.projected(far, "items")
    assert np.linalg.norm(items, axis=1).max() <= problem.reach * (1 + 1e-9)
    for case in scaling.CASES:
        np.testing.assert_allclose(problem.projected(1e-3 * far, case), 1e-3 * far, atol=1e-12)


def test_under_a_ball_noisy_gradient_descent_gets_worse_with_features_and_ssp_does_not():
    sizes = [(10, 80), (10, 1280)]
    curves = {
        method: scaling.curve(sizes, "ball", method, level=1.0, seeds=range(4), grid=GRID) for method in scaling.METHODS
    }
    assert curves["noisy gradient descent"][1] > 2 * curves["noisy gradient descent"][0]
    for method in ("SSP-i", "SSP-c"):
        assert curves[method][1] < 1.2 * curves[method][0]


def test_visits_of_items_are_those_of_simulated_batches():
    shares = cost.power_law(50, 1.0)
    rng = np.random.default_rng(0)
    seen = np.zeros(50)
    for _ in range(200):
        seen += np.bincount(np.unique(rng.choice(50, 20, p=shares)), minlength=50)
    simulated = seen.mean() / 200 * (1000 / 20)
    assert cost.visits(shares, 1000, 20) == pytest.approx(simulated, rel=0.03)
    assert cost.visits(shares, 1000, 1) == pytest.approx(1000 / 50)


def test_the_cost_ratio_falls_with_epochs_and_grows_with_the_batch_size():
    shares = cost.power_law(1000, 1.0)

    def ratio(batch_size, epochs):
        return cost.cost_ratio(shares, 10**6, batch_size, epochs, 32.0**2, 32)

    assert ratio(100, 100) < ratio(100, 1)
    assert ratio(100, 100) < ratio(10_000, 100)
    assert ratio(100, 1000) < 0.02
    assert len(cost.table_of_ratios()) == 8


def test_cost_of_training_grows_with_epochs():
    assert [Training(epochs, 100).steps(300) for epochs in (4, 64)] == [12, 192]
    taken = [cost.training_seconds(300, epochs, 100, 8) for epochs in (4, 64)]
    assert taken[1] > 3 * taken[0]  # 16 times the steps, beside what a run costs anyway


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_every_row_of_the_comparison_fits(kind):
    made = feature_driven_ratings if kind == "ratings" else feature_driven_clicks
    data, rows = made(200, 60, 12)
    small = movielens.Bench.split(kind, data, rows, held_out=30)
    names = [*movielens.main_rows(), movielens.PURE_GRADIENT, movielens.FACTORISED]
    found = movielens.run(small, names, [5.0], [0])
    for name, by in found.items():
        assert len(by["5"][0]) == movielens.N_FIGURES[kind], name
        assert 0 <= by["5"][0][0] < 3, name


def test_figures_that_are_stored_are_not_fitted_again(bench, tmp_path):
    store = tmp_path / "figures.jsonl"
    first = movielens.run(bench, [movielens.ID_ONLY], [5.0], [0, 1], store)
    lines = [json.loads(line) for line in store.read_text().splitlines()]
    assert len(lines) == 2
    store.write_text("\n".join(json.dumps({**line, "figures": [1.0] * 6}) for line in lines) + "\n")
    again = movielens.run(bench, [movielens.ID_ONLY], [5.0], [0, 1], store)
    assert movielens.means(again)[movielens.ID_ONLY]["5"] == 1.0
    assert movielens.means(first)[movielens.ID_ONLY]["5"] != 1.0


def test_the_last_point_of_an_evolution_is_the_fitted_model(bench):
    def made():
        return movielens.estimator("ratings", movielens.FEATURES, bench.rows, 5.0, 0)

    points = timing.evolution(bench, made())
    assert len(points) == 5
    assert all(late.seconds > early.seconds for early, late in itertools.pairwise(points))
    assert points[-1].error == pytest.approx(bench.judged(movielens.FEATURES, 5.0, 0)[0], abs=1e-4)
    assert timing.time_to(points, 0.0) is None
    assert timing.time_to(points, points[0].error) == points[0].seconds


def test_generated_features_have_one_year_and_one_or_two_genres():
    rows = item_features(100, np.random.default_rng(0))
    counts = rows.to_scipy().toarray()
    np.testing.assert_array_equal(counts[:, 8:].sum(axis=1), 1)
    np.testing.assert_array_equal(counts[:, :8].sum(axis=1), 2)
