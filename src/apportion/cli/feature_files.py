"""Files about items' features, which are public."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apportion.cli.progress import Reporter
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.features import FeatureSpace, ItemFeatures

_IGNORED = "ignore"


def read_features(path: Path, kinds: Sequence[str], reporter: Reporter) -> ItemFeatures:
    """Features of items by column; what looks too fine is remarked on.

    Args:
        path: a CSV, TSV or Parquet file with the item's id in one column.
        kinds: "column=kind" for columns whose kind is not to be guessed, or "column=ignore".
        reporter: where remarks go.
    """
    from apportion.data.features import FineFeaturesWarning, ItemFeatures

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FineFeaturesWarning)
        features = ItemFeatures.read(path, kinds=_kinds(kinds))
    for each in caught:
        reporter.say(str(each.message))
    named = ", ".join(f"{group.name} ({group.kind})" for group in features.space.groups)
    reporter.say(f"Features of {len(features)} items, taken as public: {named}.")
    return features


def read_new_items(path: Path, space: FeatureSpace) -> ItemFeatures:
    """Features of items that a model does not know, read as those it was fitted with."""
    from apportion.data.features import ItemFeatures

    return ItemFeatures.read(path, space=space)


def _kinds(given: Sequence[str]) -> dict[str, Any]:
    from apportion.data import IGNORE

    kinds: dict[str, Any] = {}
    for each in given:
        column, mark, kind = each.rpartition("=")
        if not (column and mark and kind):
            raise InputError(f"Expected --feature-kind COLUMN=KIND, got {each!r}.")
        kinds[column] = IGNORE if kind == _IGNORED else kind
    return kinds
