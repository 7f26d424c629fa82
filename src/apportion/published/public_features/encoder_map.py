"""Rows of items that were not in training, from a module that is not linear in their features."""

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
    """Rows intercept + columnsᵀ v, where v is the encoder's output for an item; for encoders that are not linear.

    Attributes:
        name: the name of the encoder's class.
        state: its parameters and buffers, by name.
        encoder: the module itself; None if only its state is known, as in a loaded model.
        n_known: number of items in training; new ones are numbered after them.
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
        """Return the arrays, and the encoder's parameters and buffers."""
        return {**super().tensors(), **{_STATE + name: value for name, value in self.state.items()}}

    def stored_fields(self) -> dict[str, Any]:
        """Return the name of the encoder and the number of known items."""
        return {"encoder": self.name, "n_known": self.n_known}

    @classmethod
    def restored(cls, shared: Mapping[str, Any], stored: Mapping[str, Any], tensors: Mapping[str, Any]) -> EncoderMap:
        """Return the stored map, without a module."""
        state = {name.removeprefix(_STATE): value for name, value in tensors.items() if name.startswith(_STATE)}
        arrays = {name: tensors[name] for name in cls.arrays}
        return cls(**shared, **arrays, name=stored["encoder"], n_known=stored["n_known"], state=state)

    def features(self, rows: SparseRows) -> NDArray[np.float32]:
        """Return rows of the model's features."""
        if self.encoder is None:
            raise InputError(
                f"The model's encoder, {self.name}, is a custom module, and only its parameters are "
                "stored; pass a module of the same form to load(path, encoder=) to score new items.",
                argument="encoder",
            )
        from apportion.published.public_features.training import encode_new

        result = self.intercept + encode_new(self.encoder, rows, self.n_known) @ self.columns.astype(np.float64)
        return np.asarray(result, np.float32)

    def with_encoder(self, encoder: Any) -> EncoderMap:
        """Return the map with a module to compute it; the map's parameters replace the module's."""
        from apportion.published.public_features.training import with_state

        return replace(self, encoder=with_state(encoder, self.state))
