"""Baselines, results that travel, and models side by side."""

from __future__ import annotations

import json

import numpy as np
import pytest

from apportion.data import Interactions, synthetic
from apportion.errors import InputError
from apportion.evaluation import (
    BiasModel,
    Comparison,
    Evaluation,
    GlobalMean,
    Popularity,
    compare,
    compare_rankings,
    compare_ratings,
    evaluate_ratings,
    popularity_slices,
)


@pytest.fixture(scope="module")
def ratings():
    data, truth = synthetic.long_tailed_ratings(
        2_000, 300, 60_000, rank=2, rng=np.random.default_rng(0), taste_stddev=0.3
    )
    return *data.split_by_value(np.random.default_rng(1)), truth


@pytest.fixture(scope="module")
def clicks():
    data, truth = synthetic.long_tailed_clicks(2_000, 300, 60_000, rank=4, rng=np.random.default_rng(2))
    return data.split_by_users(np.random.default_rng(3), 100, 300), truth


class TrueRatings:
    """Knows what generated the ratings."""

    def __init__(self, truth):
        self.truth = truth

    def predict(self, history, targets):
        return self.truth.expected(targets.users, targets.tasks)


class TrueClicks:
    """Knows what generated the clicks."""

    def __init__(self, truth):
        self.truth = truth

    def score(self, history, users):
        return self.truth.probabilities(users)


def test_the_biases_of_a_toy_table_by_hand():
    train = Interactions.from_arrays([1, 1, 2], ["a", "b", "a"], [5.0, 3.0, 4.0])
    model = BiasModel(task_damping=1.0, user_damping=2.0).fit(train)
    assert model.mean_ == 4.0
    assert model.task_bias_ == pytest.approx([1 / 3, -1 / 2])  # (1 + 0) / (2 + 1) and -1 / (1 + 1)
    user_1 = ((1 - 1 / 3) + (-1 + 1 / 2)) / (2 + 2)
    user_2 = (0 - 1 / 3) / (1 + 2)
    expected = [4 + 1 / 3 + user_1, 4 - 1 / 2 + user_1, 4 + 1 / 3 + user_2]
    assert model.predict(train, train) == pytest.approx(expected, rel=1e-6)


def test_a_user_without_history_gets_the_tasks_bias_alone():
    train = Interactions.from_arrays([1, 1, 2], ["a", "b", "a"], [5.0, 3.0, 4.0])
    model = BiasModel().fit(train)
    nothing = train.where(np.zeros(3, bool))
    assert model.predict(nothing, train) == pytest.approx(4.0 + model.task_bias_[train.tasks], rel=1e-6)


def test_models_come_out_in_the_order_of_what_they_know(ratings):
    train, _, test, truth = ratings
    models = {
        "global mean": GlobalMean().fit(train),
        "biases": BiasModel().fit(train),
        "truth": TrueRatings(truth),
    }
    table = compare_ratings(models, train, test, slices=popularity_slices(train.by_task.counts))
    values = [table[name]["rmse"].overall for name in models]
    assert values[0] > values[1] + 0.05 > values[2] + 0.05
    assert values[2] == pytest.approx(truth.noise_stddev, rel=0.03)
    assert sum(table["truth"]["rmse"].n_by_slice) == test.n_observations


def test_popularity_is_beaten_by_who_knows_the_users(clicks):
    split, truth = clicks
    models = {"popularity": Popularity().fit(split.train), "truth": TrueClicks(truth)}
    slices = popularity_slices(split.train.by_task.counts)
    table = compare_rankings(models, split.test.history, split.test.target, slices=slices)
    popular, true = (table[name]["recall@20"] for name in models)
    assert true.overall > popular.overall + 0.05
    assert popular.by_slice[0] == 0.0  # the rarest are never among the 20 most popular
    assert popular.n == true.n == 300


def test_results_travel_as_json(ratings):
    train, validation, _, _ = ratings
    models = {"mean": GlobalMean().fit(train), "biases": BiasModel().fit(train)}
    table = compare_ratings(models, train, validation, slices=popularity_slices(train.by_task.counts, 3))
    assert Comparison.from_dict(json.loads(json.dumps(table.to_dict()))) == table
    evaluation = table["mean"]
    assert Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation


def test_a_comparison_is_a_table(ratings):
    train, validation, _, _ = ratings
    slices = popularity_slices(train.by_task.counts, 3)
    models = {"mean": GlobalMean().fit(train), "biases": BiasModel().fit(train)}
    table = compare(models, lambda model: evaluate_ratings(model, train, validation, slices=slices))
    rows = table.rows()
    assert len(rows) == 2 * 2 * 4
    assert rows[0] == {
        "model": "mean",
        "metric": "rmse",
        "slice": "overall",
        "value": table["mean"]["rmse"].overall,
        "n": validation.n_observations,
    }
    assert table.to_arrow().num_rows == 16
    lines = table.to_text().splitlines()
    assert len(lines) == 5
    assert lines[0].split()[:3] == ["model", "metric", "overall"]
    assert f"{table['biases']['mae'].overall:.4f}" in lines[4]


def test_what_is_not_there_is_named(ratings):
    train, validation, _, _ = ratings
    table = compare_ratings({"mean": GlobalMean().fit(train)}, train, validation)
    with pytest.raises(InputError, match="There is no model 'als'; the models are mean"):
        table["als"]
    with pytest.raises(InputError, match="There is no metric 'recall@20'; the metrics are rmse, mae"):
        table["mean"]["recall@20"]
    with pytest.raises(InputError, match="Expected at least one model"):
        compare_ratings({}, train, validation)
    with pytest.raises(InputError, match=r"Expected damping > 0, got 0\.0"):
        BiasModel(user_damping=0.0).fit(train)
    with pytest.raises(InputError, match="Expected at least one training observation, got 0"):
        GlobalMean().fit(train.where(np.zeros(train.n_observations, bool)))
