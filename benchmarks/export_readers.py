"""Exports read back by their own libraries, each in a process where apportion cannot be imported.

A reader takes what was written and either histories (ids and values) or users' coefficients. It returns, for each of
them, ids with scores, best first.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.claim import UnavailableError

LIBRARIES: Final = ("onnx", "onnxruntime", "mlflow", "faiss", "lancedb", "huggingface_hub", "duckdb")
Ranked = list[list[tuple[Any, float]]]

_ALONE: Final = """
import json, os, sys
sys.modules["apportion"] = None  # whoever imports it fails
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
given = json.load(sys.stdin)
where, k, column = given["where"], given["k"], given["column"]
bias = "bias" if column == "vector" else "0"
"""
_ONNX: Final = """
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(where, providers=["CPUExecutionProvider"])
def answer(each):
    kind = object if isinstance(each["items"][0], str) else np.int64
    items, values = np.array(each["items"], kind), np.array(each["values"], np.float32)
    ids, scores = session.run(["ids", "scores"], {"items": items, "values": values, "k": np.array([k])})
    return list(zip(ids.tolist(), scores.tolist()))
found = [answer(each) for each in given["users"]]
"""
_MLFLOW: Final = """
import mlflow.pyfunc, pandas as pd
loaded = mlflow.pyfunc.load_model(where)
parts = [pd.DataFrame({"user": n, "item": e["items"], "value": e["values"]}) for n, e in enumerate(given["users"])]
best = loaded.predict(pd.concat(parts), params={"k": k})
found = [list(zip(rows["item"].tolist(), rows["score"].tolist())) for _, rows in best.groupby("user")]
"""
_HUGGINGFACE: Final = """
from huggingface_hub import ModelCard
assert ModelCard.load(where + "/README.md").data.to_dict()["privacy"]["guarantee"]["epsilon"] > 0
sys.path.insert(0, where)
from apportion_fold_in import Model
model = Model(where)
answers = [model.recommend(each["items"], each["values"], k) for each in given["users"]]
found = [list(zip(ids.tolist(), scores.tolist())) for ids, scores in answers]
"""
_DUCKDB: Final = """
import duckdb
width = len(given["users"][0])
score = f"{bias} + array_inner_product({column}::float[{width}], ?::float[{width}])"
asked = f"select id, {score} as score from read_parquet('{where}') order by score desc limit {k}"
found = [duckdb.execute(asked, [user]).fetchall() for user in given["users"]]
"""
_LANCEDB: Final = """
import lancedb, tempfile, numpy as np, pyarrow.parquet as parquet
with tempfile.TemporaryDirectory() as folder:
    table = lancedb.connect(folder).create_table("items", parquet.read_table(where))
    def answer(user):
        asked = table.search(np.array(user, np.float32), vector_column_name=column)
        rows = asked.distance_type("dot").limit(k).to_list()
        return [(row["id"], 1 - row["_distance"] + row.get(bias, 0)) for row in rows]
    found = [answer(user) for user in given["users"]]
"""
_FAISS: Final = """
import faiss, numpy as np, pyarrow.parquet as parquet
index = faiss.read_index(where + "/items.faiss")
items = parquet.read_table(where + "/items.parquet").to_pylist()
answers = zip(*index.search(np.array(given["users"], np.float32), k))
found = [[(items[n]["id"], float(s) + items[n].get(bias, 0)) for s, n in zip(*row)] for row in answers]
"""
FROM_HISTORIES: Final = {"onnx": _ONNX, "mlflow": _MLFLOW, "huggingface": _HUGGINGFACE}
"""Readers that take a history, by the export that they read."""
FROM_COEFFICIENTS: Final = {"duckdb": _DUCKDB, "lancedb": _LANCEDB, "faiss": _FAISS}
"""Readers that take a user's coefficients; DuckDB and LanceDB read the Parquet file."""


def need_libraries() -> None:
    """Say which of the libraries are missing, if any are."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UnavailableError(f"Not installed: {', '.join(missing)}; they come with the development dependencies.")


def read(reader: str, where: Path, users: list[Any], k: int, column: str = "vector") -> Ranked:
    """Run one reader in a process of its own; `column` has the vectors of a Parquet file that are ranked by."""
    code = _ALONE + {**FROM_HISTORIES, **FROM_COEFFICIENTS}[reader] + "print(json.dumps(found))\n"
    given = json.dumps({"where": str(where), "k": k, "column": column, "users": users})
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{reader} failed: {done.stderr.strip().splitlines()[-1]}")
    found: Ranked = json.loads(done.stdout.splitlines()[-1])
    return found
