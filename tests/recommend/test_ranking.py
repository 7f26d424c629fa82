"""Candidates and caps: the best items among those that may be recommended, as a plain loop would choose them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.errors import InputError
from apportion.recommend import ClickRecommender, PrivateClickRecommender, PrivateRatingRecommender, load, save
from apportion.recommend import model as model_module
from apportion.recommend.categories import Categories

from strategies import random_interactions

N_ITEMS = 24
GENRES = ["War", "Drama", "Drama|War", "Comedy", "", "Comedy|Drama"]


def frame_of(ids, first=0):
    cells = [GENRES[(first + k) % len(GENRES)] or None for k in range(len(ids))]
    return pa.table({"item": ids, "genres": cells, "year": [1950 + k for k in range(len(ids))]})


def make_model(seed=0):
    """A model with categories, and a history of 30 users."""
    rng = np.random.default_rng(seed)
    pairs = {(u, t) for u in range(30) for t in rng.choice(N_ITEMS, 5, replace=False)}
    users, tasks = zip(*sorted(pairs), strict=True)
    data = Interactions.from_arrays(users, tasks, task_ids=np.arange(N_ITEMS))
    model = ClickRecommender(dimension=3, epochs=2).fit(data).model_
    features = ItemFeatures.from_frame(frame_of(list(range(N_ITEMS))), kinds={"genres": "multivalent"})
    model.categories = Categories.of(features, model.task_ids)
    return model, data


def words_of(item):
    return GENRES[item % len(GENRES)].split("|") if GENRES[item % len(GENRES)] else []


def by_a_loop(model, data, user, k, only, exclude, cap):
    """The same from all scores, one item after another."""
    scores = model.score(data, np.array([user], np.int32))[0]
    seen = set(data.tasks[data.users == user].tolist())
    counts, chosen = {}, []
    for item in sorted(range(N_ITEMS), key=lambda each: (-scores[each], each)):
        barred = item in seen or item in exclude or (only is not None and item not in only)
        if barred or len(chosen) == k or any(counts.get(word, 0) >= cap for word in words_of(item)):
            continue
        chosen.append(item)
        for word in words_of(item):
            counts[word] = counts.get(word, 0) + 1
    return chosen + [-1] * (k - len(chosen))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 3),
    k=st.integers(1, N_ITEMS),
    only=st.none() | st.sets(st.integers(0, N_ITEMS - 1), min_size=1),
    exclude=st.sets(st.integers(0, N_ITEMS - 1)),
    cap=st.integers(1, 4),
)
def test_lists_are_those_of_a_loop_over_all_scores(seed, k, only, exclude, cap):
    model, data = make_model(seed)
    asked = {"only": None if only is None else sorted(only), "exclude": sorted(exclude) or None}
    capped = model.recommend(data, k, caps={"genres": cap}, **asked)
    free = model.recommend(data, k, **asked)
    for user in (0, 7, 29):
        assert capped.tasks[user].tolist() == by_a_loop(model, data, user, k, only, exclude, cap)
        assert free.tasks[user].tolist() == by_a_loop(model, data, user, k, only, exclude, N_ITEMS)
    assert np.array_equal(capped.tasks < 0, np.isneginf(capped.scores))


def test_parts_of_any_size_together_are_the_whole(monkeypatch):
    model, data = make_model()
    data = data.select_users(np.arange(30) % 3 > 0)  # some users have no rows
    whole = model.recommend(data, 4, caps={"genres": 1})
    monkeypatch.setattr(model_module, "USERS_IN_A_PART", 7)
    parts = list(model.recommend_in_parts(data, 4, caps={"genres": 1}))
    assert [len(part.users) for part in parts] == [7, 7, 6]
    for name in ("users", "tasks", "scores"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


def test_items_have_a_word_of_every_group_that_is_asked_for():
    model, _ = make_model()
    found = np.flatnonzero(model.categories.having({"genres": ["War", "Comedy"]}))
    assert found.tolist() == [item for item in range(N_ITEMS) if {"War", "Comedy"} & set(words_of(item))]
    assert model.categories.having({}).all()
    with pytest.raises(InputError, match="no genres 'Opera' among the 3 of this model; some are 'Comedy'"):
        model.categories.having({"genres": ["Opera"]})
    with pytest.raises(InputError, match="no category 'brand' in this model; it has 'genres'"):
        model.categories.having({"brand": ["Opera"]})


@pytest.mark.parametrize("recommender", [PrivateRatingRecommender, PrivateClickRecommender])
def test_a_model_keeps_the_categories_it_was_fitted_with_and_reads_those_of_new_items(recommender, tmp_path):
    data = random_interactions(3)
    features = ItemFeatures.from_frame(frame_of(data.task_ids.ids.tolist()), kinds={"genres": "multivalent"})
    model = recommender(epsilon=5.0, dimension=2, rounds=1, features=features).fit(data).model_
    save(model, tmp_path / "m")
    held = load(tmp_path / "m").categories
    assert held.groups == model.categories.groups == {"genres": ("Comedy", "Drama", "War")}
    np.testing.assert_array_equal(held.having({"genres": ["War"]}), model.categories.having({"genres": ["War"]}))
    new = model.with_new_items(frame_of([10**6, 10**6 + 1], first=2)).categories.having({"genres": ["War"]})
    assert new[-2:].tolist() == [True, False]


def test_a_cap_that_cannot_be_kept_is_refused():
    model, data = make_model()
    with pytest.raises(InputError, match="cap of at least 1 for 'genres', got 0"):
        model.recommend(data, 3, caps={"genres": 0})
    model.categories = None
    with pytest.raises(InputError, match="has no categories of its items, so 'genres' cannot be capped"):
        model.recommend(data, 3, caps={"genres": 1})
