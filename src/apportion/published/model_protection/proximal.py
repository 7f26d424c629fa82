"""Accelerated proximal descent, and the proximal operators of joint learning's penalties."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from apportion.published.model_protection.rows import Floats, JointObjective

Shrink = Callable[[Floats, float], Floats]
"""Given a point and a step, return the minimiser of the penalty times the step plus half the squared distance."""


def descended(smooth: JointObjective, shrink: Shrink, start: Floats, steps: int, tolerance: float = 1e-6) -> Floats:
    """Minimise a smooth loss plus a penalty from a start. Momentum restarts if a step would go uphill."""
    step = 1 / max(smooth.curvature, 1e-12)
    models, ahead, momentum = start, start, 1.0
    for _ in range(steps):
        moved = shrink(ahead - step * smooth.gradient(ahead), step)
        if float(((ahead - moved) * (moved - models)).sum()) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - models)
        change = float(np.abs(moved - models).max()) / max(float(np.abs(moved).max()), 1e-12)
        models, momentum = moved, following
        if change < tolerance:
            break
    return models


def shrink_singular_values(models: Floats, threshold: float) -> Floats:
    """Proximal operator of the trace norm: every singular value minus the threshold, but at least 0."""
    return _with_values(models, lambda values: np.maximum(values - threshold, 0.0))


def shrink_squared_trace(models: Floats, weight: float) -> Floats:
    """Proximal operator of half the squared trace norm times a weight: a threshold proportional to what is left.

    With the r largest values kept, the threshold is weight · (their sum) / (1 + r · weight); r is the largest for which
    all of them are above it.
    """

    def shrunk(values: Floats) -> Floats:
        ranks = np.arange(1, len(values) + 1)
        thresholds = weight * np.cumsum(values) / (1 + ranks * weight)
        kept = np.flatnonzero(values > thresholds)
        return np.maximum(values - thresholds[kept[-1]], 0.0) if len(kept) else np.zeros_like(values)

    return _with_values(models, shrunk)


def shrink_features(models: Floats, threshold: float) -> Floats:
    """Proximal operator of the sum of features' norms over tasks: each feature's norm minus the threshold."""
    norms = np.linalg.norm(models, axis=0)
    return np.asarray(models * np.maximum(1 - threshold / np.maximum(norms, 1e-300), 0.0))


def _with_values(models: Floats, change: Callable[[Floats], Floats]) -> Floats:
    """Return the matrix with the same singular vectors and changed values, by the smaller of the two products."""
    if models.shape[0] < models.shape[1]:
        return np.asarray(_with_values(models.T, change).T)
    squares, vectors = np.linalg.eigh(models.T @ models)
    values = np.sqrt(np.maximum(squares[::-1], 0.0))
    parts = np.divide(change(values), values, out=np.zeros_like(values), where=values > 1e-12 * (values[0] + 1e-300))
    turned = vectors[:, ::-1]
    return np.asarray(models @ ((turned * parts) @ turned.T))
