"""Models: folding in, recommending, comparing, saving."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data import Interactions, Vocabulary
from apportion.errors import InputError
from apportion.recommend import ClickRecommender, RatingModel, RatingRecommender, load, save
from apportion.recommend.model import FoldIn

from strategies import random_interactions


@pytest.fixture(scope="module")
def clicks():
    """Two circles of users who share nothing: cooks read about food, gardeners about plants."""
    rng = np.random.default_rng(0)
    rows = [(f"cook{u}", f"food{t}") for u in range(30) for t in rng.choice(10, 6, replace=False)]
    rows += [(f"gardener{u}", f"plant{t}") for u in range(30) for t in rng.choice(10, 6, replace=False)]
    users, tasks = zip(*rows, strict=True)
    return Interactions.from_arrays(users, tasks)


@pytest.fixture(scope="module")
def model(clicks):
    return ClickRecommender(dimension=4, ridge=0.5).fit(clicks).model_


def test_cooks_are_recommended_food_they_have_not_seen(model, clicks):
    best = model.recommend(clicks, k=3)
    names = clicks.task_ids.ids_of(best.tasks[:30].ravel())
    assert all(str(name).startswith("food") for name in names)
    history = {(int(u), int(t)) for u, t in zip(clicks.users, clicks.tasks, strict=True)}
    assert not history & {(int(u), int(t)) for u, row in zip(best.users, best.tasks, strict=True) for t in row}


def test_a_new_user_is_folded_in_from_their_history_alone(model, clicks):
    newcomer = Interactions.from_arrays(
        ["new", "new"], ["plant1", "plant2"], task_ids=clicks.task_ids.ids, single_user=True
    )
    best = model.recommend(newcomer, k=5)
    assert all(str(name).startswith("plant") for name in clicks.task_ids.ids_of(best.tasks[0]))


def test_similar_tasks_are_of_the_same_circle_and_sorted(model):
    neighbours = model.similar("plant3", 6)
    assert all(str(n.task).startswith("plant") for n in neighbours)
    assert [n.similarity for n in neighbours] == sorted((n.similarity for n in neighbours), reverse=True)
    assert "plant3" not in {n.task for n in neighbours}


def test_a_user_who_has_seen_nearly_everything_gets_what_is_left(model, clicks):
    ids = list(clicks.task_ids)
    everything = Interactions.from_arrays(["u"] * 19, ids[:19], task_ids=clicks.task_ids.ids, single_user=True)
    best = model.recommend(everything, k=3)
    assert best.tasks[0].tolist() == [19, -1, -1]


def test_text_ids_survive_saving(model, tmp_path):
    save(model, tmp_path / "m")
    assert list(load(tmp_path / "m").task_ids) == list(model.task_ids)
    assert load(tmp_path / "m").statement is None


def test_saving_replaces_models_and_nothing_else(model, tmp_path):
    save(model, tmp_path / "m")
    save(model, tmp_path / "m")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]
    (tmp_path / "precious").mkdir()
    with pytest.raises(InputError, match="not a saved model"):
        save(model, tmp_path / "precious")
    with pytest.raises(InputError, match="no saved model"):
        load(tmp_path / "nowhere")


def test_a_private_model_without_its_statement_is_refused(tmp_path):
    from apportion.recommend import PrivateRatingRecommender

    save(PrivateRatingRecommender(epsilon=1.0, dimension=2).fit(random_interactions(1)).model_, tmp_path / "m")
    (tmp_path / "m" / "statement.json").unlink()
    with pytest.raises(InputError, match="statement of the model"):
        load(tmp_path / "m")


@pytest.mark.parametrize(("k", "what"), [(0, "got 0"), (21, "got 21")])
def test_k_must_fit(model, clicks, k, what):
    with pytest.raises(InputError, match=what):
        model.recommend(clicks, k=k)
    with pytest.raises(InputError, match=what):
        model.similar("food1", k)


def test_unknown_tasks_and_foreign_histories_are_refused(model):
    with pytest.raises(InputError, match="nonsense"):
        model.similar("nonsense", 3)
    with pytest.raises(InputError, match=r"list of .* items is not the model"):
        model.recommend(Interactions.from_arrays(["a", "b"], ["food1", "other"]))


def test_ratings_without_privacy_recover_a_planted_structure():
    from apportion.data.synthetic import long_tailed_ratings

    data, truth = long_tailed_ratings(1500, 150, 60_000, rank=2, rng=np.random.default_rng(0))
    train, _, test = data.split_by_value(np.random.default_rng(1))
    model = RatingRecommender(dimension=4).fit(train).model_
    error = np.sqrt(np.mean((model.predict(train, test) - test.values) ** 2))
    floor = np.sqrt(np.mean((truth.expected(test.users, test.tasks) - test.values) ** 2))
    spread = test.values.std()
    assert error < floor + 0.35 * (spread - floor)


def test_predictions_stay_on_the_scale():
    data = random_interactions(3)
    predicted = RatingRecommender(dimension=2, ridge=0.01).fit(data).model_.predict(data, data)
    assert predicted.min() >= 1
    assert predicted.max() <= 5


def test_als_is_the_closed_form_when_the_other_side_is_fixed():
    data = random_interactions(5)
    model = ClickRecommender(dimension=3, epochs=2, unobserved=0.2, ridge=0.7).fit(data).model_
    v = model.fold_in.features.astype(np.float64)
    user = 4
    mine = v[data.tasks[data.users == user]]
    expected = np.linalg.solve(0.2 * v.T @ v + 0.7 * np.eye(3) + mine.T @ mine, mine.sum(axis=0))
    np.testing.assert_allclose(model.user_vectors(data)[user], expected, rtol=1e-4, atol=1e-6)


def test_a_folder_with_anything_of_somebody_elses_is_never_replaced(model, tmp_path):
    save(model, tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not a saved model"):
        save(model, tmp_path / "m")
    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.json").write_text("{}")
    with pytest.raises(InputError, match="not a saved model"):
        save(model, other)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_damaged_model_is_called_damaged(model, tmp_path, name):
    save(model, tmp_path / "m")
    (tmp_path / "m" / name).write_text("{oops")
    with pytest.raises(InputError, match="damaged"):
        load(tmp_path / "m")


def test_an_item_of_which_little_is_known_is_similar_to_nothing():
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.05, 0.0], [0.0, 1.0]], np.float32)
    known = np.array([0.95, 0.9, 0.05, 0.9], np.float32)
    features = np.concatenate([np.ones((4, 1), np.float32), vectors], axis=1)
    model = RatingModel(
        fold_in=FoldIn(features, np.ones(4, np.float32), np.eye(3, dtype=np.float32), np.zeros(3, np.float32)),
        vectors=vectors,
        popularity=np.array([9.0, 8.0, 0.1, 7.0]),
        reliability=known,
        task_ids=Vocabulary(np.array(["a", "b", "rare", "d"])),
        statement=None,
    )
    near = {each.task: each.similarity for each in model.similar("a", 3)}
    assert near["b"] > 0.9
    assert abs(near["rare"]) < 0.1  # the cosine of the vectors is 1
