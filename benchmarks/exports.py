"""Claim: exports, loaded by their own libraries in processes without apportion, recommend what the model does.

Models of MovieLens 1M at ε = 5 (ratings, ratings ranked by choice, and clicks) and 200 random histories. ONNX, MLflow
and the Hugging Face folder are given the histories. The Parquet file (by DuckDB and LanceDB) and FAISS are given users'
coefficients. What a user has is left out afterwards, and they know nothing of exploring places. Scores may differ by
1e-4 at most, and the first 20 items must be the same; only items whose scores are closer than twice the largest
difference may change places. The quick form takes generated data and 20 histories.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import exports
from apportion.data import Interactions
from apportion.privacy.statement import rounded_up
from apportion.recommend.model import ItemModel
from benchmarks.claim import Outcome, print_table
from benchmarks.explorer_browser import EPSILON, LONGEST, N_BEST, fitted_models, random_histories, ranking_scores
from benchmarks.export_readers import FROM_HISTORIES, Ranked, need_libraries, read

TARGET = {"largest_difference": 1e-4, "other_items": 0}
_WRITTEN = {
    "onnx": ("model.onnx", exports.write_onnx),
    "mlflow": ("mlflow", exports.write_mlflow),
    "huggingface": ("huggingface", exports.write_huggingface),
    "duckdb": ("items.parquet", exports.write_parquet),
    "lancedb": ("items.parquet", exports.write_parquet),
    "faiss": ("faiss", exports.write_faiss),
}


def measure(quick: bool) -> Outcome:
    """Write, read back and compare every export of every model."""
    need_libraries()
    n_histories = 20 if quick else 200
    rows: list[list[Any]] = []
    for name, model in fitted_models(quick).items():
        with tempfile.TemporaryDirectory() as folder:
            rows += [[name, reader, *_compared(reader, model, Path(folder), n_histories)] for reader in _WRITTEN]
    print_table(["model", "read by", "largest difference", "items that differ"], rows)
    value = {
        "largest_difference": rounded_up(max(row[2] for row in rows), 2),
        "other_items": sum(row[3] for row in rows),
        "histories": n_histories,
    }
    headline = (
        "Exports of MovieLens 1M models to ONNX, MLflow, Hugging Face, Parquet (DuckDB, LanceDB) and FAISS, read "
        f"without apportion: the first {N_BEST} items of {n_histories} histories are the model's own up to ties, "
        f"scores within {value['largest_difference']:g}"
    )
    holds = all(value[each] <= TARGET[each] for each in TARGET)
    return Outcome(value, TARGET, holds, headline, {"epsilon": EPSILON, "longest": LONGEST})


def _compared(reader: str, model: ItemModel, folder: Path, n_histories: int) -> tuple[float, int]:
    """The largest difference of scores, and items that differ by more than a tie."""
    name, write = _WRITTEN[reader]
    if not (folder / name).exists():
        write(model, folder / name)
    history, pairs = random_histories(model, n_histories)
    if reader in FROM_HISTORIES:
        ids = model.task_ids.id_of
        users: list[Any] = [{"items": [ids(c) for c, _ in row], "values": [v for _, v in row]} for row in pairs]
        return against_model(model, history, read(reader, folder / name, users, N_BEST))
    users = model.ranking_coefficients(history).astype(float).tolist()
    column = column_of(model)
    found = without_history(model, history, read(reader, folder / name, users, N_BEST + LONGEST, column), N_BEST)
    return against_products(model, history, found)


def column_of(model: ItemModel) -> str:
    """The column of the Parquet file by which the model ranks."""
    return "vector" if model.choice is None else "rank_vector"


def against_model(model: ItemModel, history: Interactions, found: Ranked) -> tuple[float, int]:
    """The largest difference of scores from the model's own, and how many items differ by more than a tie."""
    expected = model.recommend(history, N_BEST)
    own = np.clip(_predicted(model, history), *_bounds(model))
    codes = _codes(model, found)
    largest = float(np.abs(np.take_along_axis(own, codes, axis=1) - _scores(found)).max())
    return largest, _repeated(codes) + _beyond_ties(ranking_scores(model, history), codes, expected.tasks, largest)


def against_products(model: ItemModel, history: Interactions, found: Ranked) -> tuple[float, int]:
    """The same for what is ranked by products of vectors alone, so without exploring places."""
    own = ranking_scores(model, history)
    codes = _codes(model, found)
    largest = float(np.abs(np.take_along_axis(own, codes, axis=1) - _scores(found)).max())
    own[history.users, history.tasks] = -np.inf
    expected = np.argsort(-own, axis=1, kind="stable")[:, :N_BEST]
    return largest, _repeated(codes) + _beyond_ties(own, codes, expected, largest)


def _bounds(model: ItemModel) -> tuple[float, float]:
    """The bounds of what is shown: the scale, if the list shows predicted values beside another ranking."""
    return (-np.inf, np.inf) if model.choice is None else model.value_range


def _predicted(model: ItemModel, history: Interactions) -> NDArray[np.float32]:
    return model.score(history, np.arange(history.n_users, dtype=np.int32))


def _codes(model: ItemModel, found: Ranked) -> NDArray[np.int64]:
    return np.array([model.task_ids.codes_of([ident for ident, _ in row]) for row in found])


def _scores(found: Ranked) -> NDArray[np.float64]:
    return np.array([[score for _, score in row] for row in found])


def _repeated(codes: NDArray[np.int64]) -> int:
    return sum(N_BEST - len(set(row)) for row in codes.tolist())


def _beyond_ties(own: NDArray[Any], codes: NDArray[Any], expected: NDArray[Any], largest: float) -> int:
    """How many items are not those expected, and differ from them by more than a tie."""
    gaps = np.abs(np.take_along_axis(own, codes, axis=1) - np.take_along_axis(own, expected, axis=1))
    return int(((codes != expected) & (gaps > 2 * largest + 1e-7)).sum())


def without_history(model: ItemModel, history: Interactions, ranked: Ranked, k: int) -> Ranked:
    """The first k items of each ranking that the user does not have, with ids as the model has them."""
    found = []
    for user, row in enumerate(ranked):
        seen = set(history.tasks[history.users == user].tolist())
        named = [(ident if model.task_ids.holds_text else int(ident), score) for ident, score in row]
        found.append([each for each in named if model.task_ids.code_of(each[0]) not in seen][:k])
    return found
