"""Small data sets whose items have features, for the tests of this folder."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from apportion.data.features import ItemFeatures
from apportion.engines import LocalEngine
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender


def frame_of(n_items, first=0):
    """Words and a year for items first to first + n_items - 1."""
    items = np.arange(first, first + n_items)
    words = [[f"w{i % 3}", f"w{i % 5}"] for i in items]
    return pa.table({"item": items, "words": words, "year": 1980 + items % 7})


def features_of(n_items):
    """The same as features; the last item has none."""
    return ItemFeatures.from_frame(frame_of(n_items - 1), kinds={"year": "binned"}, bins=3)


def ratings(features, **arguments):
    engine = LocalEngine(np.float64, chunk=17)
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 3, "engine": engine}
    return PrivateRatingRecommender(**{**defaults, "features": features, **arguments})


def clicks(features, **arguments):
    engine = LocalEngine(np.float64, chunk=17)
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 3, "engine": engine}
    return PrivateClickRecommender(**{**defaults, "features": features, **arguments})


RECOMMENDERS = {"ratings": ratings, "clicks": clicks}
