"""Uses a saved apportion model without apportion: NumPy and safetensors are enough. This file travels with exports.

A user's coefficients u solve (base + Σ c f fᵀ) u = right side + Σ c y f over the user's own history, where f are the
features of its items, c their weights and y the ratings minus the offset (1 for clicks). An item's score is
offset + f · u.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file


class Model:
    """Recommends from a history.

    Args:
        folder: a folder with model.safetensors and model.json.
    """

    def __init__(self, folder: str | Path) -> None:
        self.description = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
        tensors = load_file(str(Path(folder) / "model.safetensors"))
        self.features = tensors["fold_in.features"].astype(np.float64)
        self.weights = tensors["fold_in.observation_weights"].astype(np.float64)
        self.base = tensors["fold_in.base"].astype(np.float64)
        self.right = tensors["fold_in.base_rhs"].astype(np.float64)
        ids = self.description["task_ids"] or tensors["task_ids"].tolist()
        self.ids = np.array(ids, object)
        self._codes = {each: code for code, each in enumerate(ids)}

    def recommend(self, items: Any, values: Any = None, k: int = 20) -> tuple[Any, Any]:
        """Return the k best ids and their scores for one history; unknown ids are left out."""
        known = [place for place, item in enumerate(items) if item in self._codes]
        codes = np.array([self._codes[items[place]] for place in known], int)
        labels = np.ones(len(codes))
        if self.description["kind"] == "ratings":
            labels = (
                np.clip(np.asarray(values, float)[known], *self.description["value_range"]) - self.description["offset"]
            )
        rows, weights = self.features[codes], self.weights[codes]
        matrix = self.base + rows.T @ (weights[:, None] * rows)
        coefficients = np.linalg.solve(matrix, self.right + rows.T @ (weights * labels))
        scores = self.description["offset"] + self.features @ coefficients
        scores[codes] = -np.inf
        best = np.argsort(-scores, kind="stable")[:k]
        best = best[scores[best] > -np.inf]
        return self.ids[best], scores[best]

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """For MLflow: takes a frame with user, item and (for ratings) value; returns user, item, score and rank."""
        import pandas as pd

        k = int((params or {}).get("k", 20))
        parts = []
        for user, rows in model_input.groupby("user", sort=False):
            values = rows["value"].to_numpy() if "value" in rows else None
            items, scores = self.recommend(rows["item"].tolist(), values, k)
            parts.append(pd.DataFrame({"user": user, "item": items, "score": scores, "rank": range(1, len(items) + 1)}))
        return pd.concat(parts, ignore_index=True)


def _load_pyfunc(path: str) -> Model:
    """Load the model for MLflow."""
    return Model(path)
