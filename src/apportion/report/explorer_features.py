"""What public features add to the model, by popularity, from released values alone.

The vectors of a model fitted with features have learned coordinates, followed by directions of the features. Features
account for these directions, and for the part of the learned coordinates that a regression on them explains, because
the prior follows the features too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.recommend.model import ItemModel
from apportion.report.bands import Band
from apportion.report.svg import Drawing, Linear
from apportion.report.wording import percent

Floats = NDArray[np.floating[Any]]


def share_by_band(model: ItemModel, n_bands: int) -> list[float]:
    """Return the fraction of the squared length of item vectors that features explain, in each popularity band.

    It is empty for a model without feature directions.
    """
    learned = model.settings.get("dimension")
    if model.feature_map is None or not isinstance(learned, int) or not 0 < learned < model.vectors.shape[1]:
        return []
    vectors = np.asarray(model.vectors, np.float64)
    centred, directions = vectors[:, :learned] - vectors[:, :learned].mean(axis=0), vectors[:, learned:]
    left = np.square(centred - _explained(centred, directions)).sum(axis=1)
    whole = np.square(centred).sum(axis=1) + np.square(directions).sum(axis=1)
    order = np.argsort(-np.asarray(model.popularity, np.float64), kind="stable")
    return [_rest(float(left[part].sum()), float(whole[part].sum())) for part in np.array_split(order, n_bands)]


def _explained(learned: Floats, directions: Floats) -> Floats:
    """Return the part of the learned coordinates that the leading directions explain, at most one per ten items."""
    leading = directions[:, : max(1, len(learned) // 10)]
    coefficients = np.linalg.lstsq(leading, learned, rcond=None)[0]
    return np.asarray(leading @ coefficients)


def _rest(part: float, whole: float) -> float:
    return min(1.0, max(0.0, 1 - part / whole)) if whole else 0.0


def feature_words(model: ItemModel, shares: Sequence[float]) -> str:
    """Describe the chart, or say why there is none."""
    if model.feature_map is None:
        return (
            "This model was fitted without item features: a rare item is described by what all items "
            "have in common. Public features would describe it better, at no cost in privacy."
        )
    if not shares:
        return (
            "Features shifted the prior of each item’s vector. Their effect cannot be separated in the released values."
        )
    return (
        "The part of item vectors (of their squared length) that public features explain: the "
        "directions of the features themselves, and the part of the learned coordinates that a "
        f"regression on them explains. It is {percent(shares[0])} for the most popular items and "
        f"{percent(shares[-1])} for the rarest. Features cost no privacy."
    )


def features_chart(bands: Sequence[Band], shares: Sequence[float], width: float) -> Drawing:
    """Draw the part explained by features in each popularity band, from the most to the least popular items."""
    height = 250.0
    told = "; ".join(f"{band.name} {percent(share)}" for band, share in zip(bands, shares, strict=True))
    picture = Drawing(width, height, f"Part of item vectors explained by features: {told}")
    up = Linear(0, 1, height - 58, 22)
    for tick in up.ticks(4):
        picture.line((46, up(tick)), (width - 8, up(tick)), "grid" if tick else "base")
        picture.text((40, up(tick) + 4), f"{100 * tick:.0f} %", "axis", anchor="end")
    pitch = (width - 54) / len(bands)
    thick = min(46.0, pitch * 0.62)
    for position, (band, share) in enumerate(zip(bands, shares, strict=True)):
        centre = 46 + pitch * (position + 0.5)
        hint = f"{band.name}: {percent(share)} by features"
        picture.rect((centre - thick / 2, up(1)), thick, up(share) - up(1), "fill-accent", radius=3, hint=hint)
        picture.rect((centre - thick / 2, up(share)), thick, up(0) - up(share), "part-features", radius=3, hint=hint)
        picture.text((centre, up(1) - 6), f"{100 * share:.0f}", "strong small", anchor="middle")
    picture.text((46, height - 30), "← most popular items", "axis")
    picture.text((width - 8, height - 30), "rarest items →", "axis", anchor="end")
    picture.text((46, height - 10), "green: from features · blue-green: learned from people’s data", "axis")
    return picture
