"""Rows of items that training never met, from a module that is not linear in their features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from apportion.data.sparse_rows import SparseRows
from apportion.errors import InputError
from apportion.recommend.features.new_items import NewItemMap

Floats = NDArray[np.floating[Any]]

_STATE = "encoder."


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class EncoderMap(NewItemMap):
    """Rows intercept + columnsᵀ v, where v is what an encoder says of an item; for encoders that are not linear.

    Attributes:
        name: of the encoder's class.
        state: its parameters and buffers, by name.
        encoder: the module itself; None where only its state is at hand, as in a model that was loaded.
        n_known: how many items were in training; new ones are numbered after them.
        intercept: one number per column of the model's features.
        columns: one row per output of the encoder.
    """

    kind = "encoder"
    arrays = ("intercept", "columns", "log_popularity")

    name: str
    state: dict[str, NDArray[Any]]
    encoder: Any = None
    n_known: int
    intercept: Floats
    columns: Floats

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays, and the encoder's parameters and buffers."""
        return {**super().tensors(), **{_STATE + name: value for name, value in self.state.items()}}

    def stored_fields(self) -> dict[str, Any]:
        """Name of the encoder and number of known items."""
        return {"encoder": self.name, "n_known": self.n_known}

    @classmethod
    def restored(cls, shared: Mapping[str, Any], stored: Mapping[str, Any], tensors: Mapping[str, Any]) -> EncoderMap:
        """The map as it was stored, without a module."""
        state = {name.removeprefix(_STATE): value for name, value in tensors.items() if name.startswith(_STATE)}
        arrays = {name: tensors[name] for name in cls.arrays}
        return cls(**shared, **arrays, name=stored["encoder"], n_known=stored["n_known"], state=state)

    def features(self, rows: SparseRows) -> NDArray[np.float32]:
        """Rows of the model's features."""
        if self.encoder is None:
            raise InputError(
                f"The model's encoder, {self.name}, is a module of one's own, of which only the parameters are "
                "stored; give load(path, encoder=) one of the same form to score new items."
            )
        from apportion.published.public_features.training import encode_new

        found = self.intercept + encode_new(self.encoder, rows, self.n_known) @ self.columns.astype(np.float64)
        return np.asarray(found, np.float32)

    def with_encoder(self, encoder: Any) -> EncoderMap:
        """The same map with a module to compute it, whose parameters are replaced by those of the map."""
        from apportion.published.public_features.training import with_state

        return replace(self, encoder=with_state(encoder, self.state))
