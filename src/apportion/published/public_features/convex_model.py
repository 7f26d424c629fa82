"""A model whose users minimise a convex loss: what `ConvexMinimisation` fits. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.engines import Processors
from apportion.errors import InputError
from apportion.linalg.fixed_order import dot_rows
from apportion.losses import ConvexLoss, Logistic, PseudoHuber
from apportion.published.public_features.user_regressions import newton
from apportion.recommend.histories import check_targets
from apportion.recommend.model import ItemModel, row_chunks

_STORED: dict[str, type[Any]] = {"Logistic": Logistic, "PseudoHuber": PseudoHuber}


def loss_settings(loss: ConvexLoss | str) -> dict[str, Any]:
    """Return a loss as its name and settings, for storage; only the name for a custom loss."""
    name = loss if isinstance(loss, str) else type(loss).__name__
    own = isinstance(loss, str) or type(loss) not in _STORED.values()
    return {"name": name, "settings": None if own else asdict(loss)}  # type: ignore[call-overload]


def stored_loss(stored: Mapping[str, Any]) -> ConvexLoss | str:
    """Return the loss of stored settings; only the name for a custom loss."""
    if stored["settings"] is None:
        return str(stored["name"])
    loss: ConvexLoss = _STORED[stored["name"]](**stored["settings"])
    return loss


@final
class ConvexModel(ItemModel):
    """Predicts a score: offset + f_i · u, where a user's u minimises a convex loss of its own history.

    Args:
        loss: what users minimise, or the name of a loss that was not stored; then nothing can be predicted.
        given: the arguments of `ItemModel`.
    """

    kind = "convex"

    def __init__(self, *, loss: ConvexLoss | str, **given: Any) -> None:
        super().__init__(**given)
        self.loss = loss

    @property
    def extra_arguments(self) -> dict[str, Any]:
        """Return the loss."""
        return {"loss": self.loss}

    def stored_fields(self) -> dict[str, Any]:
        """Return the loss as plain values."""
        return {"loss": loss_settings(self.loss)}

    @classmethod
    def extra_from_stored(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored loss."""
        return {"loss": stored_loss(stored["loss"])}

    def labels(self, history: Interactions) -> NDArray[np.float64]:
        """Return values clipped to the public scale, minus the offset."""
        return np.asarray(np.clip(history.values, *self.value_range) - self.offset, np.float64)

    def user_vectors(self, history: Interactions) -> NDArray[np.float32]:
        """Compute every user's vector from the user's own rows; this costs no privacy."""
        return self._solved(history).astype(np.float32)

    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.float64]:
        """Return scores of the targets: log odds under a logistic loss, values under a loss of residuals."""
        self._check_tasks(history)
        check_targets(history, targets)
        vectors = self._solved(history)
        features = self.fold_in.features
        result = np.empty(targets.n_observations)
        for rows in row_chunks(targets.n_observations, 1 << 14):
            users, tasks = targets.users[rows], targets.tasks[rows]
            result[rows] = dot_rows(vectors[users], features[tasks])
        return result + self.offset

    def _solved(self, history: Interactions) -> NDArray[np.float64]:
        self._check_tasks(history)
        if isinstance(self.loss, str):
            raise InputError(
                f"The model was fitted with the loss {self.loss}, which is not stored with it; set model.loss to it.",
                argument=None,
            )
        return newton(self.fold_in, Processors(np.float64), history.as_users, self.labels(history), self.loss)
