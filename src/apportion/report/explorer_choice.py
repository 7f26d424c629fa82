"""What the explorer needs to rank by choice: the second regression, rounded like the first, and the constants.

All of it is part of the saved model, or follows from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.recommend import choosing
from apportion.recommend.model import ItemModel
from apportion.report import explorer_packing as packing


def choice_header(model: ItemModel, order: NDArray[np.int64]) -> dict[str, Any] | None:
    """Return the steps of choice features and the constants of the ranking; None for a model that ranks by score."""
    choice = model.choice
    if choice is None:
        return None
    steps = packing.round_features(choice, order).steps.tolist()
    return {"steps": steps, **choosing.constants(model.value_range)}


def choice_arrays(model: ItemModel, order: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the arrays of the choice regression, with items in this order."""
    choice = model.choice
    if choice is None:
        return {}
    return {
        "choicePlanes": packing.round_features(choice, order).planes(),
        "choiceWeights": np.asarray(choice.observation_weights, np.float32)[order],
        "choiceBase": np.asarray(choice.base, np.float32),
        "choiceRight": np.asarray(choice.base_rhs, np.float32),
        "discounts": choosing.discounts(model.popularity).astype(np.float32)[order],
        "doubts": choosing.doubts_of(model.reliability, model.value_range).astype(np.float32)[order],
    }
