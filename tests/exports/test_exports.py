"""Every export, loaded by its own library in a process without apportion, recommends what the model does."""

from __future__ import annotations

import json
import subprocess
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
from apportion.recommend.model import ItemModel

WITHOUT = "import sys, json\nsys.modules['apportion'] = None\ngiven = json.load(sys.stdin)\n"
N_BEST = 20


def in_another_process(code: str, given: object) -> object:
    """Run code that finds `given` and prints JSON, in a process that cannot import apportion."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def text_ids(data: Interactions) -> Interactions:
    ids = Vocabulary([f"film {each}" for each in data.task_ids], name="task")
    return Interactions.from_codes(data.users, data.tasks, data.values, user_ids=data.user_ids, task_ids=ids)


@pytest.fixture(scope="module")
def models():
    data = long_tailed_ratings(300, 50, 4000, rank=3, rng=np.random.default_rng(1), stars="whole")[0]
    settings = {"epsilon": 8.0, "dimension": 3, "rounds": 2, "noise": SeededNoise(1)}
    return {
        "ratings": PrivateRatingRecommender(**settings).fit(data).model_,
        "clicks": PrivateClickRecommender(**settings).fit(text_ids(data)).model_,
    }


@pytest.fixture(params=["ratings", "clicks"])
def model(request, models):
    return models[request.param]


def histories(model: ItemModel, n_users: int = 12):
    rng = np.random.default_rng(3)
    rows = [rng.choice(model.n_tasks, rng.integers(1, 15), replace=False) for _ in range(n_users)]
    values = [rng.integers(0, 7, len(row)).astype(np.float32) for row in rows]
    users = np.repeat(np.arange(n_users), [len(row) for row in rows])
    own = Vocabulary.of_range(n_users)
    tasks, given = np.concatenate(rows), np.concatenate(values)
    history = Interactions.from_codes(users, tasks, given, user_ids=own, task_ids=model.task_ids)
    named = [[model.task_ids.id_of(int(code)) for code in row] for row in rows]
    return history, [{"items": ids, "values": v.tolist()} for ids, v in zip(named, values, strict=True)]


def assert_same(model: ItemModel, history: Interactions, found) -> None:
    """Ids and scores as the model's own; items of equal score may change places."""
    expected = model.recommend(history, N_BEST)
    scores = model.score(history, np.arange(len(found), dtype=np.int32))
    for user, (ids, values) in enumerate(found):
        codes = model.task_ids.codes_of(ids)
        np.testing.assert_allclose(values, expected.scores[user], atol=1e-4)
        np.testing.assert_allclose(scores[user, codes], expected.scores[user], atol=1e-4)
        assert len(set(codes.tolist())) == N_BEST


def test_onnx_runs_the_whole_fold_in(model, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    exports.write_onnx(model, tmp_path / "model.onnx")
    history, given = histories(model)
    code = f"""
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession({str(tmp_path / "model.onnx")!r}, providers=["CPUExecutionProvider"])
def answer(each):
    kind = object if isinstance(each["items"][0], str) else np.int64
    items, values = np.array(each["items"], kind), np.array(each["values"], np.float32)
    ids, scores = session.run(["ids", "scores"], {{"items": items, "values": values, "k": np.array([{N_BEST}])}})
    return [ids.tolist(), scores.tolist()]
statement = json.loads(session.get_modelmeta().custom_metadata_map["statement"])
print(json.dumps([[answer(each) for each in given], statement["epsilon"]]))
"""
    found, epsilon = in_another_process(code, given)
    assert epsilon == 8.0
    assert_same(model, history, found)


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


def test_mlflow_loads_it_as_a_pyfunc(model, tmp_path):
    pytest.importorskip("mlflow")
    exports.write_mlflow(model, tmp_path / "model")
    history, given = histories(model)
    code = f"""
import os
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
import mlflow.pyfunc, pandas as pd
loaded = mlflow.pyfunc.load_model({str(tmp_path / "model")!r})
parts = [pd.DataFrame({{"user": k, "item": each["items"], "value": each["values"]}}) for k, each in enumerate(given)]
best = loaded.predict(pd.concat(parts), params={{"k": {N_BEST}}})
found = [[rows["item"].tolist(), rows["score"].tolist()] for _, rows in best.groupby("user")]
print(json.dumps([found, loaded.metadata.metadata["privacy_card"]["guarantee"]["epsilon"]]))
"""
    found, epsilon = in_another_process(code, given)
    assert epsilon == 8.0
    assert_same(model, history, found)


def test_a_hugging_face_folder_has_a_card_that_the_hub_reads_and_a_module_that_recommends(model, tmp_path):
    pytest.importorskip("huggingface_hub")
    exports.write_huggingface(model, tmp_path / "model")
    history, given = histories(model)
    code = f"""
from huggingface_hub import ModelCard
folder = {str(tmp_path / "model")!r}
card = ModelCard.load(folder + "/README.md")
sys.path.insert(0, folder)
from apportion_fold_in import Model
model = Model(folder)
found = [model.recommend(each["items"], each["values"], {N_BEST}) for each in given]
found = [[ids.tolist(), scores.tolist()] for ids, scores in found]
about = card.data.to_dict()
print(json.dumps([found, about["privacy"], about["tags"], card.text]))
"""
    found, privacy, tags, text = in_another_process(code, given)
    assert_same(model, history, found)
    assert privacy["guarantee"]["epsilon"] == 8.0
    assert "differential-privacy" in tags
    assert "NOT FOR RELEASE" in text


def user_vectors(model):
    history, _ = histories(model)
    return history, model.user_vectors(history).astype(float).tolist()


def test_duckdb_scores_items_from_parquet(model, tmp_path):
    exports.write_parquet(model, tmp_path / "items.parquet")
    history, users = user_vectors(model)
    code = f"""
import duckdb
width = len(given[0])
score = f"bias + array_inner_product(vector::float[{{width}}], ?::float[{{width}}])"
asked = f"select id, {{score}} as score from '{tmp_path / "items.parquet"}' order by score desc"
print(json.dumps([duckdb.execute(asked, [user]).fetchall() for user in given]))
"""
    assert_same(model, history, without_history(model, history, in_another_process(code, users)))


def test_lancedb_finds_the_same_items_from_parquet(model, tmp_path):
    pytest.importorskip("lancedb")
    exports.write_parquet(model, tmp_path / "items.parquet")
    history, users = user_vectors(model)
    code = f"""
import lancedb, numpy as np, pyarrow.parquet as parquet
items = parquet.read_table({str(tmp_path / "items.parquet")!r})
table = lancedb.connect({str(tmp_path / "db")!r}).create_table("items", items)
def answer(user):
    rows = table.search(np.array(user, np.float32)).distance_type("dot").limit({model.n_tasks}).to_list()
    return [[row["id"], 1 - row["_distance"] + row["bias"]] for row in rows]
print(json.dumps([answer(user) for user in given]))
"""
    assert_same(model, history, without_history(model, history, in_another_process(code, users)))


def test_faiss_finds_the_same_items(model, tmp_path):
    pytest.importorskip("faiss")
    exports.write_faiss(model, tmp_path / "index")
    history, users = user_vectors(model)
    code = f"""
import faiss, numpy as np, pyarrow.parquet as parquet
index = faiss.read_index({str(tmp_path / "index" / "items.faiss")!r})
items = parquet.read_table({str(tmp_path / "index" / "items.parquet")!r}).to_pylist()
scores, places = index.search(np.array(given, np.float32), {model.n_tasks})
found = [[[items[k]["id"], float(s) + items[k]["bias"]] for s, k in zip(*row)] for row in zip(scores, places)]
print(json.dumps(found))
"""
    assert_same(model, history, without_history(model, history, in_another_process(code, users)))


def without_history(model, history, ranked):
    """The first items of each ranking that the user does not have, with ids as the model has them."""
    found = []
    for user, rows in enumerate(ranked):
        seen = set(history.tasks[history.users == user].tolist())
        named = [(ident if model.task_ids.holds_text else int(ident), score) for ident, score in rows]
        left = [each for each in named if model.task_ids.code_of(each[0]) not in seen][:N_BEST]
        found.append([[ident for ident, _ in left], [score for _, score in left]])
    return found


def test_parquet_carries_the_statement_and_what_a_fold_in_needs(model, tmp_path):
    import pyarrow.parquet as parquet

    exports.write_parquet(model, tmp_path / "items.parquet")
    table = parquet.read_table(tmp_path / "items.parquet")
    about = json.loads(table.schema.metadata[b"apportion"])
    assert about["statement"]["epsilon"] == 8.0
    assert table.schema.field("vector").type.list_size == model.fold_in.features.shape[1]
    np.testing.assert_array_equal(np.float32(about["base"]), model.fold_in.base)
    np.testing.assert_array_equal(table["weight"].to_numpy(), model.fold_in.observation_weights)


def test_the_module_that_travels_with_exports_agrees_and_imports_no_apportion(model, tmp_path):
    save(model, tmp_path / "model")
    history, given = histories(model)
    alone = Model(tmp_path / "model")
    assert_same(model, history, [alone.recommend(each["items"], each["values"], N_BEST) for each in given])


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
