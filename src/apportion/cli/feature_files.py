"""Files with public features of items."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.cli.feature_options import FeatureOptions
from apportion.cli.progress import Reporter
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data import Vocabulary
    from apportion.data.features import FeatureSpace, ItemFeatures


def read_features(options: FeatureOptions, reporter: Reporter) -> ItemFeatures | None:
    """Read item features by column; None if none were asked for. Remark on features that look too detailed."""
    from apportion.data.features import FineFeaturesWarning, ItemFeatures

    if options.features is None:
        return None
    kinds, crosses = _kinds(options.feature_kinds), _crosses(options.feature_crosses)
    with warnings.catch_warnings(record=True) as caught, np.errstate(over="ignore", invalid="ignore"):
        warnings.simplefilter("always", FineFeaturesWarning)
        try:
            features = ItemFeatures.read(options.features, item=options.feature_item, kinds=kinds, crosses=crosses)
        except InputError as error:
            raise _as_option(error) from None
    for each in caught:
        if issubclass(each.category, FineFeaturesWarning):
            reporter.say(str(each.message))
    reporter.say(f"Features of {len(features)} items, assumed public: {in_words(features.space)}.")
    return features


def match_features(features: ItemFeatures | None, task_ids: Vocabulary, reporter: Reporter) -> None:
    """Refuse features that match no item or are not finite, and say how many items have none. All of this is public."""
    if features is None:
        return
    rows = features.for_tasks(task_ids)
    wrong = rows.group_of_entry()[~np.isfinite(rows.values)]
    if len(wrong):
        raise InputError(
            f"Feature {rows.groups[wrong[0]].name!r} holds numbers that are too large to compute with.",
            argument="features",
        )
    lacking = int((rows.counts == 0).sum())
    if lacking == len(rows):
        raise InputError(f"Expected features for the {len(rows)} items, got none for any of them.", argument="features")
    if lacking:
        reporter.say(f"{lacking} of the {len(rows)} items have no features; they are known only by their ids.")


def in_words(space: FeatureSpace) -> str:
    """The names of feature groups, each with its kind."""
    return ", ".join(f"{group.name} ({group.kind})" for group in space.groups)


def read_new_items(path: Path, space: FeatureSpace) -> ItemFeatures:
    """Read features of items that a model does not know, in the form it was fitted with."""
    from apportion.data.features import ItemFeatures

    try:
        return ItemFeatures.read(path, space=space)
    except InputError as error:
        raise _as_option(error) from None


def _as_option(error: InputError) -> InputError:
    """Rewrite an error in terms of the options that say how features are read."""
    if error.argument == "columns":
        return InputError(f"{error.problem}; add a header line with column names.", argument=None)
    argument = "feature_item" if error.argument == "item" else error.argument
    return InputError(error.problem, argument=argument, remedy=error.remedy)


def _kinds(given: Sequence[str]) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for each in given:
        column, mark, kind = each.rpartition("=")
        if not (column and mark and kind):
            raise InputError(f"Expected --feature-kind COLUMN=KIND, got {each!r}.", argument=None)
        if column in kinds:
            raise InputError(f"Expected --feature-kind once for each column, got {column!r} twice.", argument=None)
        kinds[column] = kind
    return kinds


def _crosses(given: Sequence[str]) -> list[tuple[str, ...]]:
    crosses = [tuple(name.strip() for name in each.split(",")) for each in given]
    for each, names in zip(given, crosses, strict=True):
        if len(names) < 2 or not all(names) or len(set(names)) < len(names):
            raise InputError(
                f"Expected --feature-cross A,B with at least two different columns, got {each!r}.", argument=None
            )
    return crosses
