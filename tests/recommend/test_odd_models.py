"""A model whose files were edited or cut, and questions that a model cannot answer: refused in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.errors import InputError
from apportion.evaluation import recall_at_k
from apportion.privacy import Budget
from apportion.recommend import PrivateRatingRecommender, load, save

DATA, _ = long_tailed_ratings(60, 12, 400, rank=1, rng=np.random.default_rng(0), stars="whole")


@pytest.fixture(scope="module")
def model():
    return PrivateRatingRecommender(4.0, items=list(range(12)), dimension=1, rounds=1).fit(DATA).model_


@pytest.mark.parametrize(
    ("name", "held", "said"),
    [
        ("offset", None, "offset holds None"),
        ("offset", float("inf"), "offset holds inf"),
        ("offset", True, "offset holds True"),
        ("value_range", [5, 1], "from 5 to 1"),
        ("value_range", ["a", "b"], "value_range holds 'a'"),
        ("task_ids", [1, 2], r"the list of items: expected shape \(12,\), got \(2,\)"),
        ("task_ids", [1] * 12, "the list of items: Expected distinct items"),
        ("task_ids", 7, "the list of items: Expected item as a one-dimensional"),
    ],
)
def test_an_edited_description_is_damage(model, tmp_path, name, held, said):
    save(model, tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: held}))
    with pytest.raises(InputError, match=f"is damaged: .*{said}"):
        load(tmp_path / "model")


@pytest.mark.parametrize("name", ["fold_in.features", "fold_in.base", "popularity", "reliability"])
@pytest.mark.parametrize("change", ["short", "nan"])
def test_edited_tensors_are_damage(model, tmp_path, name, change):
    save(model, tmp_path / "model")
    file = str(tmp_path / "model" / "model.safetensors")
    tensors = load_file(file)
    tensors[name] = tensors[name][:-1].copy() if change == "short" else np.full_like(tensors[name], np.nan)
    save_file(tensors, file)
    with pytest.raises(InputError, match=r"expected shape|not finite"):
        load(tmp_path / "model")


def test_a_frame_is_no_history(model):
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [3.0, 4.0]})
    for ask in (model.recommend, lambda given: model.predict(given, given)):
        with pytest.raises(InputError, match=r"history as Interactions, .*from_frame.* got pandas"):
            ask(frame)


@pytest.mark.parametrize("k", [0, 13, "3", 2.5, None])
def test_a_number_of_items_that_is_none_is_refused(model, k):
    with pytest.raises(InputError, match="Expected k from 1 to 12"):
        model.recommend(DATA, k=k)


def test_targets_of_other_users_are_not_answered_with_somebody_elses_tastes(model):
    rows = {"item": [1, 2], "rating": [3.0, 4.0]}
    known = {"task_ids": model.task_ids.ids}
    history = Interactions.from_frame(pd.DataFrame({"user": ["ann", "bob"], **rows}), **known)
    targets = Interactions.from_frame(pd.DataFrame({"user": ["bob", "cat"], **rows}), **known)
    with pytest.raises(InputError, match=r"targets' list of 2 users is not the history's"):
        model.predict(history, targets)
    with pytest.raises(InputError, match=r"targets' list of 2 users is not the history's"):
        recall_at_k(model, history, targets, k=2)


@pytest.mark.parametrize("given", [None, "much", 1j, np.array([1.0, 2.0])])
def test_a_budget_that_is_no_number_is_refused(given):
    with pytest.raises(InputError, match="Expected epsilon as a number"):
        Budget(given, 1e-6)
    with pytest.raises(InputError, match="Expected delta as a number"):
        Budget(1.0, given)


def test_a_generator_of_numpy_is_no_noise_source_and_costs_nothing():
    recommender = PrivateRatingRecommender(4.0, items=list(range(12)), noise=np.random.default_rng(0))
    with pytest.raises(InputError, match="or a noise source, got Generator"):
        recommender.fit(DATA)
