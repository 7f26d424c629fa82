"""Contributions of the encoder from protected statistics (SSP): Krichene et al. (2024), Algorithm 8, on ratings.

The server trains the encoder. Users get encoded items, solve their own regressions on them, and contribute a matrix and
a vector for every item that they rated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from apportion.engines import Processors
from apportion.privacy.contributions import TaskGrams, TaskMoments
from apportion.published.public_features.user_side import BiasedVectors, FoldedIn, UnbiasedLabels
from apportion.published.skew.updates import ClippedRawLabels, RawLabels
from apportion.transport.listed import CLIP_NORM, WEIGHTS, Listed, PublicFacts, regression, taken_weights, weights_of
from apportion.transport.rating_questions import fold_in_of, plain_of
from apportion.transport.schema import LARGEST, Real, Table, Whole

Given = Mapping[str, Any]

_ROWS: Final = {
    **regression("<f4").fields,
    **WEIGHTS,
    "centre": Real(-LARGEST, LARGEST),
    "taste": Whole(1, 513),
    "bias_scale": CLIP_NORM,
    "user_norm": CLIP_NORM,
}


def _width(given: Given) -> int:
    """Return the coordinates of a user's vector: a one and the taste."""
    return 1 + max(0, int(given["dimension"]) - int(given["taste"]))


def _numbers_of_matrices(given: Given, facts: PublicFacts) -> int:
    return facts.n_items * _width(given) * (_width(given) + 1) // 2


def _matrices(given: Given, facts: PublicFacts) -> TaskGrams:
    return TaskGrams(weights_of(given), _rows(given, facts))


def _vectors(given: Given, facts: PublicFacts) -> TaskMoments:
    rows = _rows(given, facts)
    labels = UnbiasedLabels(_labels(given, facts), rows, Processors(np.float32, exact=True))
    return TaskMoments(weights_of(given), rows, ClippedRawLabels(labels, given["label_bound"]))


def _rows(given: Given, facts: PublicFacts) -> BiasedVectors:
    solve = FoldedIn(fold_in_of(given), _labels(given, facts))
    return BiasedVectors(solve, given["taste"], given["bias_scale"], given["user_norm"])


def _labels(given: Given, facts: PublicFacts) -> RawLabels:
    return RawLabels(given["centre"], facts.value_range)


def _taken_matrices(contribution: Any, facts: PublicFacts) -> Given | None:
    return _taken_rows(contribution) if type(contribution) is TaskGrams else None


def _taken_vectors(contribution: Any, facts: PublicFacts) -> Given | None:
    if type(contribution) is not TaskMoments or type(contribution.labels) is not ClippedRawLabels:
        return None
    rows = _taken_rows(contribution)
    return None if rows is None else {**rows, "label_bound": contribution.labels.bound}


def _taken_rows(contribution: Any) -> dict[str, Any] | None:
    rows = contribution.rows
    if type(rows) is not BiasedVectors or type(rows.solve) is not FoldedIn or type(rows.solve.labels) is not RawLabels:
        return None
    return {
        **plain_of(rows.solve.fold_in),
        **taken_weights(contribution.weights),
        "centre": rows.solve.labels.centre,
        **{name: getattr(rows, name) for name in ("taste", "bias_scale", "user_norm")},
    }


ENCODER_QUESTIONS: Final = (
    Listed(
        "encoder-matrices",
        "the square of a person's taste, by item",
        Table(_ROWS),
        _numbers_of_matrices,
        _matrices,
        _taken_matrices,
    ),
    Listed(
        "encoder-vectors",
        "a person's taste times its ratings, by item",
        Table({**_ROWS, "label_bound": CLIP_NORM}),
        lambda given, facts: facts.n_items * _width(given),
        _vectors,
        _taken_vectors,
    ),
)
