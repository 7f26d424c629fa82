"""Names that stand for code in other packages: methods of a study, and stored models, feature maps and mechanisms.

A package registers its own by entry points in its metadata. `apportion.published` does so, and no other package of the
library imports it.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

METHODS = "apportion.methods"
"""Functions (settings, kind, common arguments) -> estimator, by the name of the method in a study file."""
MODELS = "apportion.models"
"""Subclasses of `ItemModel`, by their `kind`."""
FEATURE_MAPS = "apportion.feature_maps"
"""Subclasses of `NewItemMap`, by their `kind`."""
MECHANISMS = "apportion.mechanisms"
"""Subclasses of `Mechanism`, by their `key`."""


def registered(group: str) -> tuple[str, ...]:
    """Return the names registered in a group, in alphabetical order."""
    return tuple(sorted(_entries(group)))


def lookup(group: str, name: object) -> Any | None:
    """Return what is registered under a name; None if there is nothing."""
    entry = _entries(group).get(name) if isinstance(name, str) else None
    return None if entry is None else entry.load()


@lru_cache(maxsize=8)
def _entries(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=group)}
