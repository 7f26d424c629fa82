"""Items held out of training: who is held out, and figures that a loop over users finds as well."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data import ItemFeatures
from apportion.data.synthetic_features import clicks_with_features, ratings_with_features
from apportion.errors import InputError
from apportion.evaluation import compare_on_new_items, hold_out_items
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender


@pytest.fixture(scope="module")
def clicks():
    return clicks_with_features(400, 100, 12_000, rng=np.random.default_rng(3))[:2]


@pytest.fixture(scope="module")
def ratings():
    return ratings_with_features(400, 100, 12_000, rng=np.random.default_rng(3))[:2]


def fitted(make, data, features, share=0.2):
    parts = hold_out_items(data, features, np.random.default_rng(0), share)
    estimator = make(20.0, features=features, dimension=3, rounds=3, noise=SeededNoise(0))
    return estimator.fit(parts.train).model_, parts


def rows(data):
    ids = data.task_ids.ids[data.tasks].tolist()
    return set(zip(data.users.tolist(), ids, data.values.tolist(), strict=True))


def test_every_row_is_in_one_part_and_held_out_items_are_unknown_to_training(clicks):
    data, features = clicks
    parts = hold_out_items(data, features, np.random.default_rng(0), 0.2)
    assert rows(parts.train) | rows(parts.held_out) == rows(data)
    assert parts.train.n_observations + parts.held_out.n_observations == data.n_observations
    known, held_out = set(parts.train.task_ids.ids.tolist()), parts.held_out.task_ids.ids.tolist()
    assert known.isdisjoint(held_out)
    assert known | set(held_out) == set(data.task_ids.ids.tolist())
    assert 10 <= len(held_out) <= 30
    assert parts.items.item_ids.ids.tolist() == held_out
    assert parts.items.space is features.space
    whole = features.rows.to_scipy().toarray()
    np.testing.assert_array_equal(parts.items.rows.to_scipy().toarray(), whole[held_out])


def test_items_without_features_stay_in_training(clicks):
    data, features = clicks
    some = ItemFeatures(
        type(features.item_ids)(features.item_ids.ids[:50], name="item"),
        features.rows.take(np.arange(50)),
        features.space,
    )
    parts = hold_out_items(data, some, np.random.default_rng(0), 0.9)
    assert max(parts.held_out.task_ids.ids) < 50
    assert set(range(50, 100)) <= set(parts.train.task_ids.ids.tolist())


def test_recall_among_new_items_is_that_of_a_loop(clicks):
    data, features = clicks
    model, parts = fitted(PrivateClickRecommender, data, features)
    found = compare_on_new_items(model, parts, k=5)
    wide = model.with_new_items(parts.items)
    shown = type(data).from_codes(parts.train.users, parts.train.tasks, user_ids=data.user_ids, task_ids=wide.task_ids)
    n_known, recalls = parts.train.n_tasks, {"from features": [], "true popularity": [], "predicted popularity": []}
    counts = np.bincount(parts.held_out.tasks, minlength=parts.held_out.n_tasks)
    for user in range(data.n_users):
        clicked = set(parts.held_out.tasks[parts.held_out.users == user].tolist())
        if not clicked:
            continue
        orders = {
            "from features": wide.score(shown, np.array([user]))[0, n_known:],
            "true popularity": counts,
            "predicted popularity": wide.popularity[n_known:],
        }
        for name, scores in orders.items():
            top = np.argsort(-np.asarray(scores, np.float64), kind="stable")[:5].tolist()
            recalls[name].append(len(clicked & set(top)) / min(5, len(clicked)))
    for name, each in recalls.items():
        assert found[name]["recall@5"].overall == pytest.approx(np.mean(each), abs=1e-9)
        assert found[name]["recall@5"].n == len(each)


def test_features_beat_chance_and_predicted_popularity_on_new_items():
    data, features, _ = clicks_with_features(1200, 300, 30_000, rng=np.random.default_rng(0))
    parts = hold_out_items(data, features, np.random.default_rng(0), 0.2)
    model = PrivateClickRecommender(5.0, features=features, noise=SeededNoise(0)).fit(parts.train).model_
    found = compare_on_new_items(model, parts, k=10)
    figures = {name: each["recall@10"].overall for name, each in found.evaluations.items()}
    assert list(figures) == ["from features", "predicted popularity", "random order", "true popularity"]
    assert figures["from features"] > 1.2 * max(figures["random order"], figures["predicted popularity"])


def test_ratings_of_new_items_are_those_of_a_loop_and_beat_the_users_mean(ratings):
    data, features = ratings
    model, parts = fitted(PrivateRatingRecommender, data, features)
    found = compare_on_new_items(model, parts)
    assert found["from features"]["rmse"].overall < found["user's own mean"]["rmse"].overall
    overall, squares = parts.train.values.mean(dtype=np.float64), []
    for user, value in zip(parts.held_out.users, parts.held_out.values, strict=True):
        own = parts.train.values[parts.train.users == user]
        squares.append((float(value) - (own.sum() + 5 * overall) / (len(own) + 5)) ** 2)
    assert found["user's own mean"]["rmse"].overall == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-6)
    wide = model.with_new_items(parts.items)
    shown = type(data).from_codes(
        parts.train.users, parts.train.tasks, parts.train.values, user_ids=data.user_ids, task_ids=wide.task_ids
    )
    scores = np.clip(wide.score(shown, np.arange(data.n_users))[:, parts.train.n_tasks :], 1, 5)
    errors = scores[parts.held_out.users, parts.held_out.tasks] - parts.held_out.values
    assert found["from features"]["rmse"].overall == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)


def test_shares_and_models_that_make_no_sense_are_refused(clicks):
    data, features = clicks
    rng = np.random.default_rng(0)
    for share in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            hold_out_items(data, features, rng, share)
    with pytest.raises(InputError, match="0 of 12000 rows would be held out"):
        hold_out_items(data, features, rng, 1e-9)
    with pytest.raises(InputError, match="0 left"):
        hold_out_items(data, features, rng, 1 - 1e-9)
    parts = hold_out_items(data, features, np.random.default_rng(0))
    plain = PrivateClickRecommender(5.0, dimension=2, rounds=1, noise=SeededNoise(0)).fit(parts.train).model_
    with pytest.raises(InputError, match="without features"):
        compare_on_new_items(plain, parts)
