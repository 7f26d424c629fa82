"""Every export, loaded by its own library in a process without apportion, recommends what the model does."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from apportion import exports
from apportion.data import Interactions, Vocabulary
from apportion.data.synthetic import long_tailed_ratings
from apportion.errors import InputError
from apportion.exports.fold_in_alone import Model
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender, RatingRecommender, save
from apportion.report.card import privacy_card
from benchmarks.explorer_browser import random_histories
from benchmarks.export_readers import FROM_COEFFICIENTS, FROM_HISTORIES, read
from benchmarks.exports import against_model, against_products, column_of, without_history

N_USERS = 12


def text_ids(data: Interactions) -> Interactions:
    ids = Vocabulary([f"film {each}" for each in data.task_ids], name="task")
    return Interactions.from_codes(data.users, data.tasks, data.values, user_ids=data.user_ids, task_ids=ids)


@pytest.fixture(scope="module")
def models():
    data = long_tailed_ratings(300, 50, 4000, rank=3, rng=np.random.default_rng(1), stars="whole")[0]
    settings = {"epsilon": 8.0, "dimension": 3, "rounds": 2, "noise": SeededNoise(1)}
    return {
        "ratings": PrivateRatingRecommender(**settings).fit(data).model_,
        "by choice": PrivateRatingRecommender(**settings, rank_by="choice").fit(data).model_,
        "clicks": PrivateClickRecommender(**settings).fit(text_ids(data)).model_,
    }


@pytest.fixture(params=["ratings", "clicks"])
def model(request, models):
    return models[request.param]


WRITERS = {
    "onnx": exports.write_onnx,
    "mlflow": exports.write_mlflow,
    "huggingface": exports.write_huggingface,
    "duckdb": exports.write_parquet,
    "lancedb": exports.write_parquet,
    "faiss": exports.write_faiss,
}
LIBRARIES = {"huggingface": ["huggingface_hub"], "onnx": ["onnx", "onnxruntime"]}


SLOW = ("mlflow", "lancedb")  # for a model of ratings they do no more than for one ranked by choice


def pairs_of(readers):
    kinds = ("ratings", "by choice", "clicks")
    return [(kind, reader) for kind in kinds for reader in readers if kind != "ratings" or reader not in SLOW]


def named(model, pairs):
    ids = model.task_ids.id_of
    return [{"items": [ids(code) for code, _ in row], "values": [value for _, value in row]} for row in pairs]


@pytest.mark.parametrize(("kind", "reader"), pairs_of(FROM_HISTORIES))
def test_from_a_history_it_recommends_what_the_model_does(models, tmp_path, kind, reader):
    model = models[kind]
    for library in LIBRARIES.get(reader, [reader]):
        pytest.importorskip(library)
    WRITERS[reader](model, tmp_path / "out")
    history, pairs = random_histories(model, N_USERS, longest=20)
    largest, other = against_model(model, history, read(reader, tmp_path / "out", named(model, pairs), 20))
    assert largest < 1e-4
    assert other == 0


@pytest.mark.parametrize(("kind", "reader"), pairs_of(FROM_COEFFICIENTS))
def test_from_a_users_coefficients_it_finds_the_same_items(models, tmp_path, kind, reader):
    model = models[kind]
    pytest.importorskip(reader)
    WRITERS[reader](model, tmp_path / "out")
    history, _ = random_histories(model, N_USERS, longest=20)
    users = model.ranking_coefficients(history).astype(float).tolist()
    found = read(reader, tmp_path / "out", users, model.n_tasks, column_of(model))
    largest, other = against_products(model, history, without_history(model, history, found, 20))
    assert largest < 1e-4
    assert other == 0


def test_a_wrong_model_would_be_noticed(models, tmp_path):
    """The comparison that the tests above rest on tells models apart."""
    model = models["ratings"]
    history, pairs = random_histories(model, N_USERS, longest=20)
    save(model, tmp_path / "model")
    alone = Model(tmp_path / "model")
    right = [
        list(zip(*alone.recommend(each["items"], each["values"], 20), strict=True)) for each in named(model, pairs)
    ]
    assert against_model(model, history, right)[1] == 0
    alone.features[:, 2] *= 1.1
    wrong = [
        list(zip(*alone.recommend(each["items"], each["values"], 20), strict=True)) for each in named(model, pairs)
    ]
    assert against_model(model, history, wrong)[0] > 1e-3


def test_onnx_leaves_out_ids_that_it_does_not_know(model, tmp_path):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    exports.write_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    strange = "nobody's" if model.task_ids.holds_text else 10**9
    kind = object if model.task_ids.holds_text else np.int64

    def answer(items, values):
        asked = {"items": np.array(items, kind), "values": np.array(values, np.float32), "k": np.array([5])}
        return session.run(["ids", "scores"], asked)

    known = model.task_ids.id_of(4)
    one, other = answer([known], [5.0]), answer([strange, known, strange], [1.0, 5.0, 2.0])
    assert one[0].tolist() == other[0].tolist()
    np.testing.assert_allclose(one[1], other[1], rtol=1e-6)


def test_the_card_of_a_hugging_face_folder_carries_the_privacy_card(model, tmp_path):
    exports.write_huggingface(model, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    front = dict(line.split(": ", 1) for line in text.split("---\n")[1].splitlines())
    assert json.loads(front["privacy"]) == privacy_card(model.statement)
    assert "NOT FOR RELEASE" in text
    assert "user: all rows of one user. Neighbours: add or remove one user.\n\nThese files" in text
    assert "Guarantee: (8.0, 1e-06)-differential privacy." in text


def test_the_metadata_of_onnx_and_mlflow_carry_the_promise(model, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("mlflow")
    exports.write_onnx(model, tmp_path / "model.onnx")
    held = {each.key: each.value for each in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert json.loads(held["statement"]) == json.loads(model.statement.to_json())
    exports.write_mlflow(model, tmp_path / "mlflow")
    assert "epsilon: 8.0" in (tmp_path / "mlflow" / "MLmodel").read_text(encoding="utf-8")


def test_parquet_carries_the_statement_and_what_a_fold_in_needs(model, tmp_path):
    import pyarrow.parquet as parquet

    exports.write_parquet(model, tmp_path / "items.parquet")
    table = parquet.read_table(tmp_path / "items.parquet")
    about = json.loads(table.schema.metadata[b"apportion"])
    assert about["statement"]["epsilon"] == 8.0
    assert table.schema.field("vector").type.list_size == model.fold_in.features.shape[1]
    np.testing.assert_array_equal(np.float32(about["base"]), model.fold_in.base)
    np.testing.assert_array_equal(table["weight"].to_numpy(), model.fold_in.observation_weights)


def test_a_model_without_privacy_is_not_exported(tmp_path):
    data = long_tailed_ratings(60, 12, 500, rank=2, rng=np.random.default_rng(0))[0]
    plain = RatingRecommender(dimension=2, epochs=2).fit(data).model_
    for write in (exports.write_parquet, exports.write_onnx, exports.write_huggingface, exports.write_mlflow):
        with pytest.raises(InputError, match="without privacy"):
            write(plain, tmp_path / "out")


def test_a_library_that_is_missing_is_named_with_its_extra(models, tmp_path, monkeypatch):
    for name, write in (("faiss", exports.write_faiss), ("onnx", exports.write_onnx)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError, match=rf"apportion\[{name}\]"):
            write(models["ratings"], tmp_path / name)
