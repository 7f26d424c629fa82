"""Items that training has never met: their rows of the model, from their features alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Vocabulary
from apportion.data.features import FeatureSpace, ItemFeatures
from apportion.data.sparse_rows import SparseRows
from apportion.data.vocabulary import TEXT
from apportion.errors import InputError

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """From an item's features x to its row of the model, intercept + coefficientsᵀ x; all released or public.

    Attributes:
        space: how frames about items are read.
        intercept: one number per column of the model's features.
        coefficients: one row per feature.
        log_popularity: coefficients of the logarithm of popularity: the intercept, then one per feature.
        observation_weight: how much an observation of such an item counts when a user folds in.
    """

    space: FeatureSpace
    intercept: Floats
    coefficients: Floats
    log_popularity: Floats
    observation_weight: float

    def read(self, new_items: Any) -> ItemFeatures:
        """A frame about new items, or features that were read before, in the space of this map."""
        if isinstance(new_items, ItemFeatures):
            if new_items.space.groups != self.space.groups:
                raise InputError("Expected features of new items read with space=model.feature_map.space, got others.")
            return new_items
        return ItemFeatures.from_frame(new_items, space=self.space)

    def popularity(self, rows: SparseRows) -> NDArray[np.float32]:
        """Expected popularity."""
        logs = self.log_popularity[0] + rows.to_scipy() @ self.log_popularity[1:].astype(np.float64)
        return np.asarray(np.exp(np.clip(logs, -60, 60)), np.float32)

    def features(self, rows: SparseRows) -> NDArray[np.float32]:
        """Rows of the model's features."""
        found = self.intercept + rows.to_scipy() @ self.coefficients.astype(np.float64)
        return np.asarray(found, np.float32)


def joined_ids(known: Vocabulary, new: Vocabulary) -> Vocabulary:
    """The known tasks and new items after them; an id that is known already is refused."""
    ours, theirs = known.ids, new.ids
    if known.holds_text != new.holds_text:
        if not known.holds_text:
            raise InputError(f"Expected integers for new items, as the model's tasks are, got {new.id_of(0)!r}.")
        theirs = theirs.astype(TEXT)
    found = known.find(theirs)
    if (found >= 0).any():
        again = known.id_of(int(found[found >= 0][0]))
        raise InputError(f"Expected new items, got {again!r}, which is a task of the model already.")
    return Vocabulary(np.concatenate([ours, theirs]), name=known.name, declared=known.declared)
