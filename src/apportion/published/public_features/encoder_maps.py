"""How a fitted update maps features of new items to the model's rows. Sees released values only.

The library's own encoders are linear in the features, or in the features averaged by group, and become a matrix. Other
modules are kept unchanged, in evaluation mode. For items with their own vectors this is the prior mean, which is also
the vector of an item without any observation.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.features import ItemFeatures
from apportion.data.sparse_rows import SparseRows
from apportion.published.public_features.encoder_map import EncoderMap
from apportion.recommend.features.new_items import WITHOUT_FEATURES, FeatureMap, LinearForm, NewItemMap
from apportion.recommend.features.prior import linear_map, log_popularity

Floats = NDArray[np.floating[Any]]

_ONLY_ROWS = (
    "The model was fitted with rows of features, which have no column names; fit it with "
    "ItemFeatures to read frames of new items."
)
_NO_FORM = (
    "The model's update has one vector for each item, whatever its features, so it knows nothing about new items."
)


def linear_form(encoder: Any, n_features: int) -> LinearForm | None:
    """Return an encoder as a matrix; None if it is not known to be linear in the features."""
    from apportion.published.public_features.encoders import LinearEncoder, TwoLayerEncoder
    from apportion.published.public_features.training import CommonEncoder

    if type(encoder) is LinearEncoder:  # not a subclass, which may do something else
        table = _array(encoder.table.weight)
        return LinearForm(np.zeros(table.shape[1]) if encoder.bias is None else _array(encoder.bias), table)
    if type(encoder) is CommonEncoder:
        mean = _array(encoder.mean)
        return LinearForm(mean, np.zeros((n_features, len(mean))))
    return _of_two_layers(encoder) if type(encoder) is TwoLayerEncoder else None


def _knows_items_alone(encoder: Any) -> bool:
    from apportion.published.public_features.encoders import IdEncoder

    return isinstance(encoder, IdEncoder)


def _of_two_layers(encoder: Any) -> LinearForm:
    table, dense = _array(encoder.table.weight), _array(encoder.dense.weight)
    width = table.shape[1]
    parts = [
        table[group.first : group.last] @ dense[:, number * width : (number + 1) * width].T
        for number, group in enumerate(encoder.groups)
    ]
    return LinearForm(_array(encoder.dense.bias), np.concatenate(parts), averaged=True)


def new_item_map(
    update: Any, features: Any, rows: SparseRows, popularity: Floats, width: int, bias_scale: float | None
) -> tuple[NewItemMap | None, str]:
    """Return the map from features to rows of the model, or None and the reason why there is none.

    Args:
        update: the update after the fit; it has an `encoder`, or a `new_form` that says how features map to vectors.
        features: the features that the estimator was given.
        rows: the known items' features.
        popularity: released popularity of the known items.
        width: length of the items' vectors.
        bias_scale: the factor of an item's bias in its row (1, bias, vector); None if rows are vectors.
    """
    if features is None:
        return None, WITHOUT_FEATURES
    if not isinstance(features, ItemFeatures):
        return None, _ONLY_ROWS
    encoder = getattr(update, "encoder", None)
    form = getattr(update, "new_form", None) if encoder is None else linear_form(encoder, rows.n_columns)
    if form is None and (encoder is None or _knows_items_alone(encoder)):
        return None, _NO_FORM
    level, by_feature = linear_map(log_popularity(popularity), rows)
    shared: dict[str, Any] = {
        "space": features.space,
        "log_popularity": np.concatenate([level, by_feature[:, 0]]),
        "observation_weight": 1.0,
    }
    if form is None:
        return _module_map(encoder, shared, len(rows), _placed(width, bias_scale)), ""
    intercept, columns = _placed(width, bias_scale)
    made = FeatureMap(
        **shared,
        intercept=(intercept + form.intercept @ columns).astype(np.float32),
        coefficients=(form.coefficients @ columns).astype(np.float32),
        averaged=form.averaged,
    )
    return made, ""


def _module_map(encoder: Any, shared: dict[str, Any], n_known: int, placed: tuple[Floats, Floats]) -> EncoderMap:
    """Return the map of a custom module."""
    kept = copy.deepcopy(encoder).eval()
    state = {name: held.detach().cpu().numpy() for name, held in kept.state_dict().items()}
    return EncoderMap(
        **shared, name=type(encoder).__name__, state=state, encoder=kept, n_known=n_known, intercept=placed[0],
        columns=placed[1],
    )  # fmt: skip


def _placed(width: int, bias_scale: float | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how a vector becomes a row of the model: the constant part, and the place of each coordinate."""
    if bias_scale is None:
        return np.zeros(width), np.eye(width)
    columns = np.concatenate([np.zeros((width, 1)), np.eye(width)], axis=1)
    columns[0, 1] = bias_scale
    return np.eye(width + 1)[0], columns


def _array(tensor: Any) -> NDArray[np.float64]:
    return np.asarray(tensor.detach().double().cpu().numpy())
