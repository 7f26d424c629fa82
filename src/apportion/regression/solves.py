"""From released Gram matrices and moments to coefficients, task by task. Sees released arrays only.

`solve_psd` is the method of the paper: (Â + λ t I)⁺ b̂, the pseudo-inverse of the projection on the positive
semidefinite cone. It divides by eigenvalues that are mostly noise.

`solve_shrunk` uses two facts: the noise is known, and tasks resemble each other. Tasks whose users come from one
population have A_i ≈ s_i C with a common C, so Â_i is shrunk towards s_i C as far as the noise requires. If
coefficients have variance τ² per coordinate, estimated over all tasks, the best solution in mean square along an
eigenvector of the shrunk matrix S with eigenvalue e is

    θ = b e / (e² + λ t e + σ_b²/τ² + ρ),

where σ_b is the noise of b and ρ the effect of the remaining error of S on Sθ. If nothing exceeds the noise, the answer
is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion import linalg

Floats = NDArray[np.float64]

_SMALLEST = 1e-300


@dataclass(frozen=True)
class Statistics:
    """The releases about all tasks.

    Attributes:
        grams: packed Σ_j w_ij x x', one row per task.
        gram_stddev: noise on the diagonal; 1/√2 of it off the diagonal.
        moments: Σ_j w_ij y x, one row per task.
        moment_stddev: noise on every entry.
        exposure: estimates of t_i = Σ_j w_ij, none negative.
        exposure_stddev: standard deviation of their noise.
    """

    grams: Floats
    gram_stddev: float
    moments: Floats
    moment_stddev: float
    exposure: Floats
    exposure_stddev: float


def solve_psd(released: Statistics, ridge: float) -> Floats:
    """Return (Â + λ t I)⁺ b̂ for every task: line 7 of Algorithm 1 with the ridge added after the release."""
    values, vectors = np.linalg.eigh(linalg.unpack(released.grams))
    values = values + ridge * released.exposure[:, None]
    kept = values > np.finfo(np.float64).eps * values.shape[1] * np.abs(values).max(axis=1, keepdims=True)
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    return _in_eigenbasis(vectors, released.moments, inverse)


def solve_shrunk(released: Statistics, ridge: float) -> Floats:
    """Return the noise-aware solution above, for every task."""
    shape, _ = linalg.common_shape(released.grams)
    scales = task_scales(released, shape)
    shrunk, doubt = _shrink(released, shape, scales)
    values, vectors = np.linalg.eigh(linalg.unpack(shrunk))
    values = np.maximum(values, 0.0)
    variance = _coefficient_variance(released, values)
    if variance == 0.0:
        return np.zeros_like(released.moments)
    damping = released.moment_stddev**2 / variance + doubt[:, None]
    below = np.square(values) + ridge * released.exposure[:, None] * values + damping
    return _in_eigenbasis(vectors, released.moments, values / np.maximum(below, _SMALLEST))


def task_scales(released: Statistics, shape: Floats) -> Floats:
    """Return s_i of A_i ≈ s_i C, from two sources: Â_i's own component along C, and the released exposure.

    The second has an unknown factor that all tasks share (the mean squared length of features) and a relative error of
    its own for every task. Both are estimated over all tasks. They are averaged by their precisions.
    """
    weights = linalg.frobenius_weights(linalg.packed_dim(shape.size))
    squared_norm = float((weights * np.square(shape)).sum())
    own = (released.grams * weights) @ shape / squared_norm
    own_variance = released.gram_stddev**2 / squared_norm
    exposure = float(released.exposure.sum())
    factor = max(float(own.sum()), 0.0) / exposure if exposure > 0 else 0.0
    other = factor * released.exposure
    noise = np.square(factor * released.exposure_stddev)
    excess = float((np.square(own - other) - own_variance - noise).sum())
    size = float(np.square(other).sum())
    relative = max(excess, 0.0) / size if size > 0 else 0.0  # without any evidence, all scales are 0
    other_variance = noise + relative * np.square(other)
    together = np.maximum(own_variance + other_variance, _SMALLEST)
    return np.asarray(np.maximum((own * other_variance + other * own_variance) / together, 0.0))


def _shrink(released: Statistics, shape: Floats, scales: Floats) -> tuple[Floats, Floats]:
    """Return S, and ρ = E‖(S − A)θ‖² / ‖θ‖² for every task.

    The remaining noise in S is that of Â as far as Â was kept, and otherwise that of C.
    """
    n_tasks, size = released.grams.shape
    variance = released.gram_stddev**2
    shrunk, intensity = linalg.shrink_towards(released.grams, scales, shape, variance)
    of_shape = np.minimum(1.0, n_tasks * np.square(scales / max(float(scales.sum()), _SMALLEST)))
    left = variance * (1 - intensity + intensity * of_shape)
    return np.asarray(shrunk), left * (linalg.packed_dim(size) + 1) / 2


def _coefficient_variance(released: Statistics, eigenvalues: Floats) -> float:
    """Return τ², from E‖b_i‖² = τ² Σ_k e_ik² + d σ_b², summed over tasks."""
    signal = float((np.square(released.moments) - released.moment_stddev**2).sum())
    return max(signal, 0.0) / max(float(np.square(eigenvalues).sum()), _SMALLEST)


def _in_eigenbasis(vectors: Floats, right: Floats, factors: Floats) -> Floats:
    """Return V diag(factors) V' b for every task."""
    turned = np.einsum("tji,tj->ti", vectors, right)
    return np.asarray(np.einsum("tij,tj->ti", vectors, factors * turned))
