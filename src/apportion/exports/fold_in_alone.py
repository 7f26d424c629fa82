"""Use a saved apportion model without apportion: NumPy and safetensors are enough. This file is part of exports.

A user's coefficients u solve (base + Σ c f fᵀ) u = right side + Σ c y f over the user's own history, where f are the
features of its items, c their weights and y the ratings minus the offset (1 for clicks). An item's score is
offset + f · u.

A model of ratings that ranks by choice has a second regression of the same form, in which y is a rating's place in the
scale, from 0 to 1. Items are ranked by its score divided by a small power of popularity, plus a little of the predicted
rating. Every 20th place shows the best of some items that are drawn by a hash of the user's history.
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
        self.tensors = load_file(str(Path(folder) / "model.safetensors"))
        self.features = self.tensors["fold_in.features"].astype(np.float64)
        ids = self.description["task_ids"] or self.tensors["task_ids"].tolist()
        self.ids = np.array(ids, object)
        self._codes = {each: code for code, each in enumerate(ids)}

    def recommend(self, items: Any, values: Any = None, k: int = 20) -> tuple[Any, Any]:
        """Return the k best ids and their scores for one history; unknown ids are left out."""
        known = [place for place, item in enumerate(items) if item in self._codes]
        codes = np.array([self._codes[items[place]] for place in known], int)
        ratings = None
        if self.description["kind"] == "ratings":
            ratings = np.clip(np.asarray(values, float)[known], *self.description["value_range"])
        labels = np.ones(len(codes)) if ratings is None else ratings - self.description["offset"]
        scores = self.description["offset"] + self.features @ self._solved("fold_in", self.features, codes, labels)
        if "ranking" not in self.description:
            best = _ranked(scores, codes)[:k]
            return self.ids[best], scores[best]
        best = self._explored(_ranked(self._to_choose(scores, codes, ratings), codes), scores, codes, k)
        return self.ids[best], np.clip(scores[best], *self.description["value_range"])

    def _solved(self, name: str, features: Any, codes: Any, labels: Any) -> Any:
        """Return the user's coefficients in one of the regressions."""
        rows, weights = features[codes], self.tensors[f"{name}.observation_weights"].astype(np.float64)[codes]
        matrix = self.tensors[f"{name}.base"] + rows.T @ (weights[:, None] * rows)
        return np.linalg.solve(matrix, self.tensors[f"{name}.base_rhs"] + rows.T @ (weights * labels))

    def _to_choose(self, scores: Any, codes: Any, ratings: Any) -> Any:
        """Return the scores by which a model that ranks by choice ranks its items."""
        about, (low, high) = self.description["ranking"], self.description["value_range"]
        features, popularity = (self.tensors[name].astype(np.float64) for name in ("choice.features", "popularity"))
        choices = features @ self._solved("choice", features, codes, (ratings - low) / (high - low))
        known = np.maximum(popularity, about["least_popularity"] * popularity.mean())
        discounts = (known / max(known.max(), 1e-12)) ** -about["popularity_power"]
        return discounts * choices + about["value_weight"] * scores

    def _explored(self, ranked: Any, scores: Any, codes: Any, k: int) -> Any:
        """Return the first k items, with another one at every exploring place."""
        about, (low, high) = self.description["ranking"], self.description["value_range"]
        reliability = np.clip(self.tensors["reliability"].astype(np.float64), 0, 1)
        hoped = scores + (high - low) / 4 * np.sqrt(1 - reliability)
        best, left = list(ranked[:k]), set(ranked.tolist())
        for place in range(about["exploring_place"] - 1, len(best), about["exploring_place"]):
            allowed = [code for code in self._drawn(codes, place) if code in left.difference(best[:place])]
            if allowed:
                found = max(allowed[: about["compared"]], key=lambda code: hoped[code])
                rest = [code for code in best[place:] if code != found]
                best = [*best[:place], found, *rest][: len(best)]
        return np.array(best, int)

    def _drawn(self, codes: Any, place: int) -> list[int]:
        """Return items drawn for this history at this place."""
        about = self.description["ranking"]
        numbers = about["stride"] * (place * about["drawn"] + np.arange(about["drawn"], dtype=np.int64))
        seed = self._mixed(codes.astype(np.int64)).sum()
        drawn: list[int] = (self._mixed((seed + numbers) % about["prime"]) % len(self.ids)).tolist()
        return drawn

    def _mixed(self, numbers: Any) -> Any:
        about = self.description["ranking"]
        for added in about["added"]:
            numbers = (numbers * numbers + added) % about["prime"]
        return numbers

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Recommend for MLflow: from a frame of user, item and (for ratings) value to user, item, score and rank."""
        import pandas as pd

        k = int((params or {}).get("k", 20))
        parts = []
        for user, rows in model_input.groupby("user", sort=False):
            values = rows["value"].to_numpy() if "value" in rows else None
            items, scores = self.recommend(rows["item"].tolist(), values, k)
            parts.append(pd.DataFrame({"user": user, "item": items, "score": scores, "rank": range(1, len(items) + 1)}))
        return pd.concat(parts, ignore_index=True)


def _ranked(scores: Any, codes: Any) -> Any:
    """Return all items that are not in the history, best first."""
    left = np.array(scores)
    left[codes] = -np.inf
    best = np.argsort(-left, kind="stable")
    return best[left[best] > -np.inf]


def _load_pyfunc(path: str) -> Model:
    """Load the model for MLflow."""
    return Model(path)
