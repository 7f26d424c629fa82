"""New items for models with an encoder: their features say where they are, also after the model was stored."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from apportion.auditing import audit
from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.data.synthetic_features import ratings_with_features
from apportion.errors import InputError
from apportion.evaluation import rmse
from apportion.privacy import Budget, SeededNoise
from apportion.published.public_features import (
    CollectiveFactorisation,
    CommonEncoder,
    ConvexMinimisation,
    DenseEncoder,
    EncoderConvex,
    EncoderGradient,
    EncoderMinimisation,
    EncoderStatistics,
    IdEncoder,
    JointGradient,
    LinearEncoder,
    Training,
    TwoLayerEncoder,
)
from apportion.recommend import load, save
from apportion.recommend.features import FeatureMap

from encoder_cases import estimator
from feature_data import features_of, frame_of
from private_estimators import published
from strategies import random_interactions

FEATURES = features_of(9)
GROUPS = FEATURES.space.ranges
WIDTH = GROUPS[-1].last
FEW = Training(epochs=3, batch_size=None)


class Bent(nn.Module):
    """An encoder that is no matrix."""

    def __init__(self, width):
        super().__init__()
        self.inner = LinearEncoder(WIDTH, width, bias=True)
        self.drop = nn.Dropout(0.5)

    def forward(self, batch):
        return self.drop(torch.tanh(self.inner(batch)))


class Asking(nn.Module):
    """An encoder that asks which item it is given, beside its features."""

    def __init__(self, width):
        super().__init__()
        self.ids, self.features = nn.Embedding(9, width), LinearEncoder(WIDTH, width, sparse=False)

    def forward(self, batch):
        return self.ids(batch.items) + self.features(batch)


def dense(width):
    return DenseEncoder(nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, width)))


ENCODERS = {
    "linear": lambda width: LinearEncoder(WIDTH, width, bias=True),
    "linear without a bias": lambda width: LinearEncoder(WIDTH, width),
    "two layers": lambda width: TwoLayerEncoder(GROUPS, width, hidden=4),
    "common": CommonEncoder,
    "own": Bent,
    "own, dense": dense,
}
ESTIMATORS = {
    "statistics": lambda encoder: estimator(EncoderStatistics(encoder(3), FEW), features=FEATURES),
    "statistics alone": lambda encoder: estimator(EncoderStatistics(encoder(3), FEW, own=False), features=FEATURES),
    "clicks": lambda encoder: estimator(EncoderStatistics(encoder(2), FEW), features=FEATURES, kind="clicks"),
    "gradient": lambda encoder: estimator(EncoderGradient(encoder(3), steps=2), features=FEATURES),
    "joint": lambda encoder: estimator(EncoderGradient(encoder(3), steps=1), JointGradient, features=FEATURES),
    "convex": lambda encoder: estimator(EncoderConvex(encoder(3), FEW), ConvexMinimisation, features=FEATURES),
}


def fitted(how, encoder):
    torch.manual_seed(0)
    return ESTIMATORS[how](ENCODERS.get(encoder, encoder)).set_params(noise=SeededNoise(0)).fit(random_interactions(4))


def twins():
    """Items 100 to 107 with the features of the known items 0 to 7."""
    table = frame_of(8)
    return table.set_column(0, "item", [np.arange(100, 108)])


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_new_item_is_where_the_encoder_puts_its_features(encoder):
    fit = fitted("statistics", encoder)
    extended = fit.model_.with_new_items(twins())
    encoded = EncoderStatistics(fit.encoder_, rows=FEATURES.for_tasks(fit.model_.task_ids)).encoded()[:8]
    expected = np.concatenate([np.ones((8, 1)), 0.5 * encoded[:, :1], encoded[:, 1:]], axis=1)
    np.testing.assert_allclose(extended.fold_in.features[9:], expected, atol=1e-5)
    np.testing.assert_allclose(extended.vectors[9:], encoded[:, 1:], atol=1e-5)
    np.testing.assert_array_equal(extended.fold_in.features[:9], fit.model_.fold_in.features)


@pytest.mark.parametrize("how", ESTIMATORS)
@pytest.mark.parametrize("encoder", ["two layers", "own"])
def test_every_way_of_training_knows_new_items_and_a_loaded_model_does_too(how, encoder, tmp_path):
    data = random_interactions(4)
    model = fitted(how, encoder).model_
    found = model.recommend(data, 5, new_items=twins())
    assert found.task_ids.ids.tolist() == [*range(9), *range(100, 108)]
    assert np.isfinite(found.scores[found.tasks >= 0]).all()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model", encoder=None if encoder == "two layers" else Bent(2 if how == "clicks" else 3))
    back = again.recommend(data, 5, new_items=twins())
    np.testing.assert_array_equal(back.tasks, found.tasks)
    np.testing.assert_array_equal(back.scores, found.scores)


@pytest.mark.parametrize("encoder", ["two layers", "own"])
def test_the_map_to_new_items_is_a_function_of_what_was_released(encoder):
    def fit(some, session):
        torch.manual_seed(0)
        made = ESTIMATORS["statistics"](ENCODERS[encoder]).fit(some, session=session)
        rows = made.model_.with_new_items(twins()).fold_in.features
        return published(made.model_) | {"rows": rows, "popularity": made.model_.feature_map.log_popularity}

    for finding in audit(fit, random_interactions(4), 3, {"budget": Budget(5.0, 1e-5), "noise": SeededNoise(1)}):
        assert finding.ratio <= 1 + 1e-9, finding


def test_items_without_vectors_of_their_own_are_where_their_twins_are():
    model = fitted("statistics alone", "two layers").model_
    extended = model.with_new_items(twins())
    np.testing.assert_allclose(extended.fold_in.features[9:], model.fold_in.features[:8], atol=1e-5)


@pytest.mark.parametrize("encoder", ["linear", "two layers", "common"])
def test_models_of_the_librarys_encoders_are_stored_whole(encoder, tmp_path):
    model = fitted("statistics", encoder).model_
    assert isinstance(model.feature_map, FeatureMap)
    save(model, tmp_path / "model")
    kept = load(tmp_path / "model").with_new_items(twins()).fold_in.features
    np.testing.assert_array_equal(kept, model.with_new_items(twins()).fold_in.features)


def without_torch(program):
    """Run a line with a frame of new items where torch cannot be imported; returns what it complains of."""
    lines = [
        "import sys; sys.modules['torch'] = None",
        "import pyarrow as pa",
        "from apportion.recommend import load",
        "new = pa.table({'item': [100], 'words': [['w1', 'w2']], 'year': [1983]})",
        program,
    ]
    return subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False).stderr


@pytest.mark.slow
def test_a_stored_model_and_a_factorisation_need_no_torch(tmp_path):
    save(fitted("convex", "two layers").model_, tmp_path / "model")
    assert not without_torch(f"load({str(tmp_path / 'model')!r}).with_new_items(new)")
    made = "EncoderMinimisation(update=CollectiveFactorisation(), dimension=2, rounds=1).fit(data).model_"
    fit = "data = Interactions.from_arrays([0, 1], [0, 1], [3.0, 4.0], task_ids=[0, 1])"
    names = "CollectiveFactorisation, EncoderMinimisation"
    imports = f"from apportion.data import Interactions; from apportion.published.public_features import {names}"
    assert not without_torch("\n".join([imports, fit, made]))


def test_a_module_of_ones_own_is_asked_for_after_loading(tmp_path):
    model = fitted("statistics", "own").model_
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.fold_in.features, model.fold_in.features)
    with pytest.raises(InputError, match=r"encoder, Bent, is a custom module, .* load\(path, encoder=\)"):
        again.with_new_items(twins())
    save(again, tmp_path / "again")
    back = load(tmp_path / "again", encoder=Bent(3)).with_new_items(twins())
    np.testing.assert_array_equal(back.fold_in.features, model.with_new_items(twins()).fold_in.features)
    with pytest.raises(InputError, match="with the parameters of the stored encoder"):
        load(tmp_path / "model", encoder=dense(3))
    save(fitted("statistics", "linear").model_, tmp_path / "model")
    with pytest.raises(InputError, match="has no encoder, so it needs no module"):
        load(tmp_path / "model", encoder=Bent(3))


def test_what_knows_nothing_of_new_items_says_why(tmp_path):
    data = random_interactions(4)
    with pytest.raises(InputError, match="one vector for each item, whatever its features"):
        fitted("statistics", lambda width: IdEncoder(9, width)).model_.with_new_items(twins())
    with pytest.raises(InputError, match="Asking uses the item's number"):
        fitted("statistics", Asking).model_.with_new_items(twins())
    rows = FEATURES.for_tasks(data.task_ids)
    model = estimator(EncoderStatistics(Bent(3), FEW), features=rows).fit(data).model_
    for one in (model, saved(model, tmp_path / "model")):
        with pytest.raises(InputError, match=r"fitted with rows of features, .* fit it with ItemFeatures"):
            one.with_new_items(twins())
    alone = estimator(EncoderStatistics(CommonEncoder(3), FEW)).fit(data).model_
    with pytest.raises(InputError, match="fitted without features"):
        alone.with_new_items(twins())


def saved(model, path):
    save(model, path)
    return load(path)


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_factorisation_solves_for_a_new_item_from_its_features_alone(kind, tmp_path):
    made = estimator(CollectiveFactorisation(ridge=0.5), features=FEATURES, kind=kind, noise=SeededNoise(0))
    model = made.fit(random_interactions(4)).model_
    extended = model.with_new_items(twins())
    assert np.isfinite(extended.fold_in.features).all()
    assert np.abs(extended.vectors[9:]).max() > 1e-3
    again = saved(model, tmp_path / "model").with_new_items(twins())
    np.testing.assert_array_equal(again.fold_in.features, extended.fold_in.features)


def test_popularity_of_new_items_is_of_the_size_of_known_ones():
    model = fitted("statistics", "two layers").model_
    known = np.log(model.popularity[:8] + 0.05 * model.popularity.mean())
    found = np.log(model.with_new_items(twins()).popularity[9:])
    assert abs(found.mean() - known.mean()) < 0.3
    by_hand = model.feature_map
    rows = FEATURES.for_tasks(model.task_ids).take(range(8))
    logs = by_hand.log_popularity[0] + rows.to_scipy() @ by_hand.log_popularity[1:]
    np.testing.assert_allclose(found, logs, atol=1e-4)
    assert abs(by_hand.log_popularity[0]) > 0.3  # so that leaving it out would be seen


def test_items_held_out_of_training_are_predicted_better_than_as_average_items():
    data, features, _ = ratings_with_features(800, 150, 30_000, rng=np.random.default_rng(3))
    held_out = np.arange(data.n_tasks) % 6 == 0
    kept = data.where(~held_out[data.tasks])
    known = data.task_ids.ids[~held_out]
    train = Interactions.from_arrays(
        kept.user_ids.ids_of(kept.users), kept.task_ids.ids_of(kept.tasks), kept.values, task_ids=known
    )
    new = ItemFeatures(
        type(data.task_ids)(data.task_ids.ids[held_out]),
        features.rows.take(features.item_ids.find(data.task_ids.ids[held_out])),
        features.space,
    )
    errors = {}
    for name, encoder in (("features", TwoLayerEncoder(features.rows.groups, 4)), ("none", CommonEncoder(4))):
        model = EncoderMinimisation(
            5.0, 1e-5, features=features, update=EncoderStatistics(encoder), dimension=3, noise=SeededNoise(0)
        ).fit(train).model_.with_new_items(new)  # fmt: skip
        history, targets = (placed(data.where(part[data.tasks]), model) for part in (~held_out, held_out))
        errors[name] = rmse(model.predict(history, targets), targets).overall
    assert errors["features"] < errors["none"] - 0.01


def placed(data, model):
    """The same rows by the codes of a model's tasks."""
    tasks = model.task_ids.find(data.task_ids.ids_of(data.tasks))
    return Interactions.from_codes(data.users, tasks, data.values, user_ids=data.user_ids, task_ids=model.task_ids)
