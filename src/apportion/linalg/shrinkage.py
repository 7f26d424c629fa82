r"""Shrink noisy Gram matrices towards a common shape.

The release for task i is A_i + E_i with noise that is isotropic in the Frobenius metric (standard
deviation sigma on the diagonal, sigma / sqrt 2 off it), so that E||E_i||^2 = p sigma^2 with p = d(d+1)/2.
A rare task's Gram is almost all noise, but the Grams of all tasks look alike: A_i is near t_i C with one
matrix C and a scale t_i. The estimate is

    T_i + (1 - alpha_i) (Â_i - T_i),        T_i = t_i C,        alpha_i in [0, 1].

The squared distance D_i = ||Â_i - T_i||^2 estimates ||A_i - T_i||^2 + p sigma^2, and the intensity that is
best in mean square is p sigma^2 over that sum. With p unknown numbers behind one estimate, James and Stein use p - 2
instead of p, and an intensity of at most 1 (the positive part):

    alpha_i = min(1, (p - 2) sigma^2 / D_i).

D_i has a relative error of about sqrt(2/p), which is large at small d. So D_i / sigma_i^2 is averaged over the
neighbours of i in the order of t, which together have `pooled_coordinates` numbers (at d = 64 that is one task, at d =
8 about a hundred). Everything here is computed from released values: post-processing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.linalg.checks import checked_floats, refuse_non_finite
from apportion.linalg.packed import FloatArray, diagonal_positions, frobenius_weights, pack, packed_dim
from apportion.linalg.psd import project_psd

MAX_ELEMENTS = 1 << 21
_LARGEST_RATIO = 1e200  # keeps sums of many ratios finite


def shrink_towards(
    noisy: ArrayLike,
    scale: ArrayLike,
    common: ArrayLike,
    noise_variance: ArrayLike,
    *,
    pooled_coordinates: int = 4096,
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Move each packed matrix noisy[i] towards scale[i] * common by its own intensity.

    Args:
        noisy: float32 or float64 [s, d(d+1)/2], packed.
        scale: [s], the scale t of each target.
        common: [d(d+1)/2], the packed shape C.
        noise_variance: sigma^2 of the noise on the diagonal, one for all or [s]; not negative.
        pooled_coordinates: the least number of noisy numbers behind an intensity.

    Returns:
        The shrunk matrices, and the intensities. An intensity of 0 leaves a matrix unchanged, and one of 1 replaces it
        by its target.
    """
    matrices = checked_floats("noisy", noisy, ndim=2)
    n, size = matrices.shape
    scales = checked_floats("scale", scale, shape=(n,), dtype=np.dtype(np.float64))
    shape = checked_floats("common", common, shape=(size,), dtype=matrices.dtype)
    variances = _checked_variances(noise_variance, n)
    refuse_non_finite(noisy=matrices, scale=scales, common=shape)
    result = np.empty_like(matrices)
    distances = squared_distances(matrices, scales, shape)
    alpha = intensities(distances, scales, variances, size, pooled_coordinates)
    for part in _parts(n, size):
        target = scales[part, None].astype(matrices.dtype) * shape
        result[part] = matrices[part] + alpha[part, None].astype(matrices.dtype) * (target - matrices[part])
    return result, alpha


def common_shape(noisy: FloatArray) -> tuple[NDArray[np.float64], float]:
    """Return C, and the trace of the sum of all packed matrices, in which the noise is small.

    C is that sum, made positive semidefinite and scaled to trace 1; if nothing is left of it, the identity divided by
    d.
    """
    total = project_psd(noisy.sum(axis=0)[None])[0]
    dimension = packed_dim(total.size)
    trace = float(total[diagonal_positions(dimension)].sum())
    if trace <= 0:
        return np.asarray(pack(np.eye(dimension) / dimension)), 0.0
    return np.asarray(total / trace), trace


def squared_distances(matrices: FloatArray, scales: FloatArray, shape: FloatArray) -> NDArray[np.float64]:
    """Return ||A_i - t_i C||^2 in Frobenius norm, for packed A_i and C."""
    weights = frobenius_weights(packed_dim(shape.size)).astype(matrices.dtype)
    distances = np.empty(matrices.shape[0])
    for part in _parts(*matrices.shape):
        difference = matrices[part] - scales[part, None].astype(matrices.dtype) * shape
        distances[part] = np.einsum("ip,ip,p->i", difference, difference, weights, optimize=False)
    return distances


def intensities(
    distances: NDArray[np.float64],
    scales: FloatArray,
    variances: NDArray[np.float64],
    size: int,
    pooled_coordinates: int,
) -> NDArray[np.float64]:
    """Return min(1, (p - 2) / pooled(D / sigma^2)) for p = `size`; 0 if there is no noise."""
    noisy = variances > 0
    alpha = np.zeros(distances.size)
    with np.errstate(over="ignore"):  # with hardly any noise, a ratio is capped at the largest
        ratios = np.minimum(distances[noisy] / variances[noisy], _LARGEST_RATIO)
    window = min(max(1, -(-pooled_coordinates // size)), ratios.size)
    if ratios.size:
        pooled = _neighbour_means(ratios, np.argsort(scales[noisy], kind="stable"), window)
        alpha[noisy] = np.minimum(1.0, max(size - 2, 0) / np.maximum(pooled, np.finfo(np.float64).tiny))
    return alpha


def _neighbour_means(values: NDArray[np.float64], order: NDArray[np.intp], window: int) -> NDArray[np.float64]:
    """Return the mean of the `window` values nearest to each in `order`; the window does not shrink at the ends."""
    totals = np.concatenate([[0.0], np.cumsum(values[order])])
    first = np.clip(np.arange(values.size) - window // 2, 0, values.size - window)
    means = np.empty_like(values)
    means[order] = (totals[first + window] - totals[first]) / window
    return means


def _checked_variances(noise_variance: ArrayLike, n: int) -> NDArray[np.float64]:
    variances = np.asarray(noise_variance, dtype=np.float64)
    if variances.shape not in ((), (n,)):
        raise InputError(f"Expected one noise_variance or {n}, got shape {variances.shape}.", argument="noise_variance")
    if variances.size and not (variances.min() >= 0 and np.isfinite(variances).all()):
        raise InputError(f"Expected a finite noise_variance >= 0, got {variances.min()}.", argument="noise_variance")
    return np.broadcast_to(variances, (n,))


def _parts(n: int, size: int) -> list[slice]:
    step = max(1, MAX_ELEMENTS // size)
    return [slice(first, first + step) for first in range(0, n, step)]
