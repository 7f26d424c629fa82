"""Recommenders with features: better for rare items, and an answer for items that training never met."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone

from apportion.data import Interactions, Vocabulary
from apportion.data.features import ItemFeatures
from apportion.data.synthetic_features import clicks_with_features, ratings_with_features
from apportion.errors import InputError
from apportion.evaluation import recall_at_k, rmse
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender, load, save

from feature_data import RECOMMENDERS, features_of, frame_of
from strategies import random_interactions

MAKERS = pytest.mark.parametrize("make", RECOMMENDERS.values(), ids=RECOMMENDERS)


@pytest.fixture(scope="module")
def rated():
    return ratings_with_features(800, 300, 40_000, rng=np.random.default_rng(3))


@MAKERS
def test_the_constructor_stores_features_and_clone_copies_them(make):
    copy = clone(make(features_of(9)))
    assert copy.features.item_ids == features_of(9).item_ids
    assert np.isfinite(copy.fit(random_interactions(1)).model_.fold_in.features).all()


@MAKERS
def test_a_saved_model_knows_new_items_as_before(make, tmp_path):
    data = random_interactions(4)
    model = make(features_of(9), noise=SeededNoise(0)).fit(data).model_
    save(model, tmp_path / "model")
    back = load(tmp_path / "model")
    new = frame_of(4, first=100)
    ours, theirs = (each.recommend(data, 5, new_items=new) for each in (model, back))
    np.testing.assert_array_equal(theirs.tasks, ours.tasks)
    np.testing.assert_array_equal(theirs.scores, ours.scores)
    assert ours.task_ids.ids.tolist() == [*range(9), 100, 101, 102, 103]
    assert back.feature_map.space == model.feature_map.space


@MAKERS
def test_new_items_are_scored_by_their_features_alone_and_known_ones_as_before(make):
    data = random_interactions(5)
    model = make(features_of(9), noise=SeededNoise(0)).fit(data).model_
    twins = pa.concat_tables([frame_of(1, first=50), frame_of(1, first=50 + 3 * 5 * 7)])  # the same features
    extended = model.with_new_items(twins)
    rows = extended.fold_in.features
    np.testing.assert_array_equal(rows[:9], model.fold_in.features)
    np.testing.assert_array_equal(rows[9], rows[10])
    np.testing.assert_array_equal(extended.reliability[9:], [0, 0])
    assert (extended.popularity[9:] > 0).all()
    users = np.arange(data.n_users)
    by_hand = model.user_vectors(data) @ rows.T + model.offset
    longer = Interactions.from_codes(
        data.users, data.tasks, data.values, user_ids=data.user_ids, task_ids=extended.task_ids
    )
    np.testing.assert_allclose(extended.score(longer, users), by_hand, rtol=1e-4, atol=1e-4)


@MAKERS
def test_what_cannot_be_a_new_item_is_refused(make):
    data = random_interactions(6)
    model = make(features_of(9)).fit(data).model_
    with pytest.raises(InputError, match="got 3, which is already an item of the model"):
        model.recommend(data, 3, new_items=frame_of(1, first=3))
    with pytest.raises(InputError, match="no column 'year'"):
        model.recommend(data, 3, new_items=frame_of(1, first=30).drop_columns(["year"]))
    with pytest.raises(InputError, match="integers for new items"):
        model.recommend(data, 3, new_items=frame_of(1).set_column(0, "item", pa.array(["a"])))
    with pytest.raises(InputError, match="read with space="):
        model.with_new_items(features_of(20))
    alone = make(None).fit(data).model_
    with pytest.raises(InputError, match="fitted without features"):
        alone.recommend(data, 3, new_items=frame_of(1, first=30))


@MAKERS
def test_features_of_none_of_the_tasks_are_refused_before_anything_is_spent(make):
    other = ItemFeatures.from_frame(frame_of(4, first=1000))
    with pytest.raises(InputError, match="No item with features is a task"):
        make(other).fit(random_interactions(7))


def test_features_bring_ratings_closer_for_rare_items_most_of_all(rated):
    data, features, _ = rated
    train, _, test = data.split_by_value(np.random.default_rng(0))
    errors = {}
    for name, known in (("features", features), ("alone", None)):
        model = PrivateRatingRecommender(1.0, 1e-5, features=known, noise=SeededNoise(1)).fit(train).model_
        errors[name] = np.square(model.predict(train, test) - test.values)
    rare = np.isin(test.tasks, np.argsort(train.by_task.counts)[:150])
    gain = errors["alone"] - errors["features"]
    assert gain.mean() > 0.01
    assert gain[rare].mean() > gain[~rare].mean()


def test_an_item_held_out_of_training_is_predicted_better_than_by_the_user_and_the_mean(rated):
    data, features, _ = rated
    held_out = np.arange(data.n_tasks) % 6 == 0
    kept, cold = data.where(~held_out[data.tasks]), data.where(held_out[data.tasks])
    known, new = (data.task_ids.ids[chosen] for chosen in (~held_out, held_out))
    train = Interactions.from_arrays(
        kept.user_ids.ids_of(kept.users), kept.task_ids.ids_of(kept.tasks), kept.values, task_ids=known
    )
    model = PrivateRatingRecommender(5.0, 1e-5, features=features, noise=SeededNoise(0)).fit(train).model_
    codes = features.item_ids.find(new)
    extended = model.with_new_items(ItemFeatures(Vocabulary(new), features.rows.take(codes), features.space))
    history = Interactions.from_codes(
        kept.users, extended.task_ids.find(kept.task_ids.ids_of(kept.tasks)), kept.values,
        user_ids=data.user_ids, task_ids=extended.task_ids,
    )  # fmt: skip
    targets = Interactions.from_codes(
        cold.users, extended.task_ids.find(cold.task_ids.ids_of(cold.tasks)), cold.values,
        user_ids=data.user_ids, task_ids=extended.task_ids,
    )  # fmt: skip
    ours = rmse(extended.predict(history, targets), targets).overall
    counts = np.maximum(np.bincount(kept.users, minlength=data.n_users), 1)
    user_means = np.bincount(kept.users, kept.values, minlength=data.n_users) / counts
    theirs = float(np.sqrt(np.square(user_means[targets.users] - targets.values).mean()))
    assert ours < theirs - 0.02


def test_features_help_clicks_where_little_is_spent():
    data, features, _ = clicks_with_features(1500, 300, 45_000, rng=np.random.default_rng(2))
    split = data.split_by_users(np.random.default_rng(0), n_validation=50, n_test=400)
    found = {True: 0.0, False: 0.0}
    for seed, known in itertools.product(range(8), (features, None)):
        recommender = PrivateClickRecommender(1.0, 1e-5, features=known, noise=SeededNoise(seed), random_state=seed)
        model = recommender.fit(split.train).model_
        found[known is not None] += recall_at_k(model, split.test.history, split.test.target, k=20).overall / 8
    assert found[True] > found[False] + 0.005
