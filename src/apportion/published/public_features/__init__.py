"""Krichene et al., "Private Learning with Public Features" (2024), as published, with repairs; needs the extra `torch`.

Encoders of item features, trained from protected statistics (SSP-c, SSP-i), by DP-SGD, or for convex losses; DP-CMF.

A module is loaded when one of its names is first used, so that torch is not loaded needlessly.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {
    "CollectiveFactorisation": "cmf",
    "CommonEncoder": "training",
    "ConvexMinimisation": "convex",
    "ConvexModel": "convex_model",
    "DenseEncoder": "user_gradients",
    "EncoderConvex": "convex",
    "EncoderGradient": "gradient",
    "EncoderMap": "encoder_map",
    "EncoderMinimisation": "minimisation",
    "EncoderStatistics": "ssp",
    "FeatureBatch": "encoders",
    "IdEncoder": "encoders",
    "JointGradient": "joint",
    "LinearEncoder": "encoders",
    "Training": "training",
    "TwoLayerEncoder": "encoders",
    "head_by_popularity": "head",
}

__all__ = [
    "CollectiveFactorisation",
    "CommonEncoder",
    "ConvexMinimisation",
    "ConvexModel",
    "DenseEncoder",
    "EncoderConvex",
    "EncoderGradient",
    "EncoderMap",
    "EncoderMinimisation",
    "EncoderStatistics",
    "FeatureBatch",
    "IdEncoder",
    "JointGradient",
    "LinearEncoder",
    "Training",
    "TwoLayerEncoder",
    "head_by_popularity",
]


def __getattr__(name: str) -> Any:
    """Load a module when one of its names is first used."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
