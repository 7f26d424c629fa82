"""The numbers of the explorer in one block of text: whole numbers, compressed, in base 64.

Item features are rounded to whole steps, column by column. The steps follow from the effect of rounding on a score. For
a user whose coefficients u have the second moments r² of the fold-in's prior, steps of s_k change f · u by about
√(Σ r_k² s_k² / 12). Each column gets an equal part of the tolerance. If the block would be too large, the tolerance is
doubled until it fits. `rounding_loss` measures the effect.

Items are in the order of released popularity, so that numbers of similar size follow each other and compress well.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions, Vocabulary
from apportion.recommend.model import FoldIn, ItemModel

Array = NDArray[Any]

_TOLERANCE: Final = 4e-6  # standard deviation of the error of a score, on a scale of 1
_MOST_BYTES: Final = 3_400_000  # size of the compressed features; a page of 20,000 items stays below 5 MB
N_HISTORIES: Final = 20
"""Number of made-up histories on which the effect of rounding is measured."""
_LONGEST_HISTORY: Final = 40


@dataclass(frozen=True)
class RoundedFeatures:
    """Features in whole steps.

    Attributes:
        whole: one row per item.
        steps: size of a step, per column.
        tolerance: the standard deviation of a score's error for which the steps were chosen.
    """

    whole: NDArray[np.int64]
    steps: NDArray[np.float64]
    tolerance: float

    @property
    def values(self) -> NDArray[np.float64]:
        """The features as the page uses them."""
        return np.asarray(self.whole * self.steps)

    def planes(self) -> NDArray[np.uint8]:
        """Return the bytes, lowest first, with the sign in the lowest bit: upper bytes are mostly zero."""
        folded = np.where(self.whole < 0, -2 * self.whole - 1, 2 * self.whole)
        n_planes = max(1, math.ceil(int(folded.max(initial=0)).bit_length() / 8))
        return np.stack([(folded >> (8 * plane) & 255).astype(np.uint8) for plane in range(n_planes)])


def round_features(fold_in: FoldIn, order: NDArray[np.int64], scale: float = 1.0) -> RoundedFeatures:
    """Round the features of a fold-in as finely as the size of the page allows.

    Args:
        fold_in: the regression whose features are rounded.
        order: the order of items.
        scale: the size of a score difference that matters: a quarter of the scale of ratings, or 1.
    """
    features = np.asarray(fold_in.features, np.float64)[order]
    sizes = _coefficient_sizes(fold_in)
    tolerance = _TOLERANCE * scale
    while True:
        steps = tolerance * math.sqrt(12 / len(sizes)) / sizes
        rounded = RoundedFeatures(np.round(features / steps).astype(np.int64), steps, tolerance)
        if len(zlib.compress(rounded.planes().tobytes())) <= _MOST_BYTES:
            return rounded
        tolerance *= 2


def round_vectors(vectors: Array) -> RoundedFeatures:
    """Round vectors that are only compared by angle: a cosine changes by about 1e-5."""
    exact = np.asarray(vectors, np.float64)
    typical = float(np.sqrt(np.square(exact).sum(axis=1)).mean()) or 1.0
    steps = np.full(exact.shape[1], float(f"{_TOLERANCE * typical:.6g}"))
    return RoundedFeatures(np.round(exact / steps).astype(np.int64), steps, _TOLERANCE)


def _coefficient_sizes(fold_in: FoldIn) -> NDArray[np.float64]:
    """Return the root mean square of a user's coefficients under the prior of the fold-in, to six digits."""
    base = np.asarray(fold_in.base, np.float64)
    covariance = np.linalg.inv(base + 1e-9 * np.trace(base) / len(base) * np.eye(len(base)))
    mean = covariance @ np.asarray(fold_in.base_rhs, np.float64)
    sizes = np.sqrt(np.maximum(np.diag(covariance), 0) + mean**2)
    sizes = np.maximum(sizes, 1e-3 * sizes.max())
    return np.array([float(f"{size:.6g}") for size in sizes])


def rounding_loss(model: ItemModel, rounded: RoundedFeatures, order: NDArray[np.int64]) -> float:
    """Return the largest change of any score by rounding, over made-up histories of popular and rare items."""
    features = np.empty(model.fold_in.features.shape, np.float32)
    features[order] = rounded.values
    history = _made_up(model)
    users = np.arange(N_HISTORIES, dtype=np.int32)
    twin = _with_features(model, features)
    return float(np.abs(twin.score(history, users) - model.score(history, users)).max())


def _made_up(model: ItemModel) -> Interactions:
    """Return histories of random items, half of them from the hundred most popular, with random values."""
    rng = np.random.default_rng(0)
    longest = min(_LONGEST_HISTORY, model.n_tasks)
    popular = np.argsort(-model.popularity, kind="stable")[: max(100, longest)]
    rows = [
        rng.choice(popular if user % 2 else model.n_tasks, rng.integers(1, longest + 1), replace=False)
        for user in range(N_HISTORIES)
    ]
    users = np.repeat(np.arange(N_HISTORIES), [len(row) for row in rows])
    tasks = np.concatenate(rows)
    values = rng.uniform(*model.value_range, len(tasks)).astype(np.float32)
    return Interactions.from_codes(
        users, tasks, values, user_ids=Vocabulary.of_range(N_HISTORIES), task_ids=model.task_ids
    )


def _with_features(model: ItemModel, features: NDArray[np.float32]) -> ItemModel:
    return type(model)(
        fold_in=replace(model.fold_in, features=features),
        vectors=model.vectors,
        popularity=model.popularity,
        reliability=model.reliability,
        task_ids=model.task_ids,
        statement=model.statement,
        offset=model.offset,
        value_range=model.value_range,
        **model.extra_arguments,
    )


def pack(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return one block of text: a header that lists the arrays, then the arrays; compressed, in base 64.

    Args:
        header: further entries of the header.
        arrays: little-endian numbers by name.
    """
    listed: dict[str, dict[str, Any]] = {}
    parts: list[bytes] = []
    start = 0
    for name, array in arrays.items():
        content = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        content += bytes(-len(content) % 8)
        listed[name] = {"type": array.dtype.name, "shape": list(array.shape), "start": start}
        parts.append(content)
        start += len(content)
    encoded = json.dumps({**header, "arrays": listed}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = encoded.encode("utf-8")
    text += b" " * (-(len(text) + 4) % 8)
    whole = np.array([len(text)], "<u4").tobytes() + text + b"".join(parts)
    return base64.b64encode(_deflated(whole)).decode("ascii")


def _deflated(content: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(content) + deflater.flush()
