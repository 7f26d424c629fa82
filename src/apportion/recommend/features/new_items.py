"""Items that were not in training: their rows of the model, from their features alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from apportion.data import Vocabulary
from apportion.data.features import FeatureSpace, ItemFeatures
from apportion.data.sparse_rows import SparseRows
from apportion.data.vocabulary import TEXT
from apportion.errors import InputError

Floats = NDArray[np.floating[Any]]


WITHOUT_FEATURES: Final = "The model was fitted without features, so it knows nothing about new items."


@dataclass(frozen=True, eq=False)
class LinearForm:
    """Vectors intercept + coefficientsᵀ x of items with features x.

    Attributes:
        intercept: one number per coordinate.
        coefficients: one row per feature.
        averaged: whether x has each group's entries divided by their sum.
    """

    intercept: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    averaged: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class NewItemMap(ABC):
    """Maps an item's features to its row of the model; all of it released or public.

    Attributes:
        space: how frames about items are read.
        log_popularity: coefficients of the logarithm of popularity: the intercept, then one per feature.
        observation_weight: how much an observation of such an item counts when a user folds in.
    """

    kind: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]]
    """Names of the attributes that are arrays, as storage keeps them."""

    space: FeatureSpace
    log_popularity: Floats
    observation_weight: float

    def read(self, new_items: Any) -> ItemFeatures:
        """Read a frame of new items, or features that were read before, in the space of this map."""
        if isinstance(new_items, ItemFeatures):
            if new_items.space.groups != self.space.groups:
                raise InputError(
                    "Expected features of new items read with space=model.feature_map.space, got others.",
                    argument="new_items",
                )
            return new_items
        return ItemFeatures.from_frame(new_items, space=self.space)

    def popularity(self, rows: SparseRows) -> NDArray[np.float32]:
        """Return expected popularity."""
        logs = self.log_popularity[0] + rows.to_scipy() @ self.log_popularity[1:].astype(np.float64)
        return np.asarray(np.exp(np.clip(logs, -60, 60)), np.float32)

    @abstractmethod
    def features(self, rows: SparseRows) -> NDArray[np.float32]:
        """Return rows of the model's features."""

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what storage keeps as tensors, by name."""
        return {name: getattr(self, name) for name in self.arrays}

    @abstractmethod
    def stored_fields(self) -> dict[str, Any]:
        """Return what storage keeps as plain values, besides the attributes that all maps have."""

    @classmethod
    @abstractmethod
    def restored(cls, shared: Mapping[str, Any], stored: Mapping[str, Any], tensors: Mapping[str, Any]) -> Self:
        """Return the map of stored fields and tensors; `shared` holds the plain attributes that all maps have."""

    def with_encoder(self, encoder: Any) -> NewItemMap:
        """Return the map with a module to compute it; only maps of modules accept one."""
        raise InputError(
            f"The model has no encoder, so it needs no module, got {type(encoder).__name__}.", argument="encoder"
        )


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureMap(NewItemMap):
    """Rows intercept + coefficientsᵀ x.

    Attributes:
        intercept: one number per column of the model's features.
        coefficients: one row per feature.
        averaged: whether x has each group's entries divided by their sum, as `SparseRows.averaged` has them.
    """

    kind = "linear"
    arrays = ("intercept", "coefficients", "log_popularity")

    intercept: Floats
    coefficients: Floats
    averaged: bool = False

    def stored_fields(self) -> dict[str, Any]:
        """Return whether entries are averaged by group."""
        return {"averaged": self.averaged}

    @classmethod
    def restored(cls, shared: Mapping[str, Any], stored: Mapping[str, Any], tensors: Mapping[str, Any]) -> Self:
        """Return the stored map."""
        return cls(**shared, **{name: tensors[name] for name in cls.arrays}, averaged=stored["averaged"])

    def features(self, rows: SparseRows) -> NDArray[np.float32]:
        """Return rows of the model's features."""
        shown = rows.averaged() if self.averaged else rows
        found = self.intercept + shown.to_scipy() @ self.coefficients.astype(np.float64)
        return np.asarray(found, np.float32)


def joined_ids(known: Vocabulary, new: Vocabulary) -> Vocabulary:
    """Return the known tasks followed by new items. Refuse an id that is already known."""
    ours, theirs = known.ids, new.ids
    if known.holds_text != new.holds_text:
        if not known.holds_text:
            raise InputError(
                f"Expected integers for new items, like the model's items, got {new.id_of(0)!r}.",
                argument="new_items",
            )
        theirs = theirs.astype(TEXT)
    found = known.find(theirs)
    if (found >= 0).any():
        again = known.id_of(int(found[found >= 0][0]))
        raise InputError(
            f"Expected new items, got {again!r}, which is already an item of the model.", argument="new_items"
        )
    return Vocabulary(np.concatenate([ours, theirs]), name=known.name, declared=known.declared)
