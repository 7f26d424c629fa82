"""Public item features in a study: which rows have them, and what their fits depend on.

A method says `features = true` or `false`, or has both in its grid. If no method of a study says anything, every method
"ours" becomes two rows, without features and with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from apportion.data import Vocabulary
from apportion.data.features import ItemFeatures
from apportion.errors import InputError
from apportion.evaluation.study.description import Study
from apportion.evaluation.study.methods import FEATURES, Method

WITH_FEATURES: Final = ", with features"
_TAKES_FEATURES: Final = "ours"


def with_feature_rows(study: Study) -> Study:
    """Return the study with a second row, with features, for each method that supports them.

    A study whose methods say whether they have features is not changed. A study in which no row would
    have features is refused.
    """
    methods = list(study.methods)
    if not any(FEATURES in method.spec or FEATURES in method.grid for method in methods):
        methods = [row for method in methods for row in _rows_of(method)]
    if not any(method.spec.get(FEATURES, False) or any(method.grid.get(FEATURES, ())) for method in methods):
        raise InputError(
            f"Expected a method {_TAKES_FEATURES!r}, or one with features = true, to use the given features.",
            argument=None,
        )
    names = [method.name for method in methods]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"Expected no method named {name!r}, because the row with features has that name.", argument=None
            )
    return replace(study, methods=tuple(methods))


def _rows_of(method: Method) -> list[Method]:
    if method.spec["method"] != _TAKES_FEATURES:
        return [method]
    return [method, replace(method, name=method.name + WITH_FEATURES, spec={**method.spec, FEATURES: True})]


def put_features(spec: Mapping[str, Any], features: ItemFeatures | None) -> dict[str, Any]:
    """Return settings for the builder, with the features themselves if the method asks for them."""
    others = {key: value for key, value in spec.items() if key != FEATURES}
    if not spec.get(FEATURES, False):
        return others
    if features is None:
        raise InputError(
            "Expected public item features, because features = true asks for them, got none.", argument=None
        )
    return {**others, FEATURES: features}


def features_fingerprint(features: ItemFeatures, task_ids: Vocabulary) -> str:
    """Return a hash of what is known about each task, and of how new items are read."""
    rows = features.for_tasks(task_ids)
    digest = hashlib.sha256(features.space.to_json().encode())
    for array in (rows.indptr, rows.indices, rows.values):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
