"""The readable path: every kernel in NumPy, a block of segments at a time.

It is what runs where the compiled kernel was not built, and what the compiled kernel is tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.packed import packed_size, unpack

Floats = NDArray[np.floating[Any]]
_ROWS_AT_A_TIME = 1 << 16


def segment_gram(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], features: Floats, weights: Floats | None
) -> Floats:
    """Σ w x xᵀ of every segment, packed."""
    width = features.shape[1]
    grams = np.zeros((len(indptr) - 1, packed_size(width)), features.dtype)
    lower = np.tril_indices(width)
    for segment in np.flatnonzero(np.diff(indptr)):  # over segments, not observations: one matrix product each
        entries = slice(indptr[segment], indptr[segment + 1])
        x = features[indices[entries]]
        weighted = x if weights is None else x * weights[entries, None]
        grams[segment] = (weighted.T @ x)[lower]
    return grams


def segment_moment(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], features: Floats, coefficients: Floats
) -> Floats:
    """Σ c x of every segment."""
    moments = np.zeros((len(indptr) - 1, features.shape[1]), features.dtype)
    for segments, entries in _blocks(indptr):
        products = features[indices[entries]] * coefficients[entries, None]
        moments[segments] = _segment_sums(products, indptr[segments.start : segments.stop + 1] - entries.start)
    return moments


def segment_solve(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    features: Floats,
    weights: Floats | None,
    labels: Floats,
    base: Floats,
    base_rhs: Floats | None,
) -> Floats:
    """(base + Σ w x xᵀ)⁻¹ (base_rhs + Σ w y x) of every segment; NaN where the matrix is not positive definite."""
    coefficients = labels if weights is None else weights * labels
    solved = np.empty((len(indptr) - 1, features.shape[1]), features.dtype)
    for segments, entries in _blocks(indptr):
        local = indptr[segments.start : segments.stop + 1] - entries.start
        own = None if weights is None else weights[entries]
        grams = segment_gram(local, indices[entries], features, own)
        moments = segment_moment(local, indices[entries], features, coefficients[entries])
        if base_rhs is not None:
            moments += base_rhs
        solved[segments], _ = solve_packed(grams, moments, base)
    return solved


def solve_packed(packed: Floats, rhs: Floats, base: Floats | None) -> tuple[Floats, NDArray[np.bool_]]:
    """Solve (packed + base) θ = rhs for every row by Cholesky; rows that are not positive definite become NaN."""
    full = unpack(packed) if base is None else unpack(packed) + base
    failed = _not_positive(full)
    full[failed] = np.eye(full.shape[-1], dtype=full.dtype)
    solved = np.linalg.solve(full, rhs[:, :, None])[:, :, 0]
    solved[failed] = np.nan
    return solved, failed


def fill_normals(out: Floats, random_bytes: Any) -> None:
    """Fill with standard normals by Box-Muller from 53-bit uniforms."""
    flat = out.reshape(-1)
    for start in range(0, len(flat), _ROWS_AT_A_TIME):
        block = flat[start : start + _ROWS_AT_A_TIME]
        pairs = (len(block) + 1) // 2
        bits = np.frombuffer(random_bytes(16 * pairs), dtype=np.uint64) >> np.uint64(11)
        radius = np.sqrt(-2 * np.log((bits[:pairs] + np.uint64(1)) * 2.0**-53))
        angle = bits[pairs:] * (2.0**-53 * 2 * np.pi)
        block[:pairs] = radius * np.cos(angle)
        block[pairs:] = (radius * np.sin(angle))[: len(block) - pairs]


def _not_positive(full: Floats) -> NDArray[np.bool_]:
    """Which matrices have no Cholesky factor; the whole stack is tried first, since that is almost always enough."""
    try:
        np.linalg.cholesky(full)
        return np.zeros(len(full), bool)
    except np.linalg.LinAlgError:
        finite = np.isfinite(full).all(axis=(1, 2))
        smallest = np.full(len(full), -np.inf)
        smallest[finite] = np.linalg.eigvalsh(full[finite].astype(np.float64))[:, 0]
        return smallest <= 0


def _blocks(indptr: NDArray[np.int64]) -> Iterator[tuple[slice, slice]]:
    """Runs of segments of about as many entries as are worked on at once."""
    first = 0
    while first < len(indptr) - 1:
        reach = int(np.searchsorted(indptr, indptr[first] + _ROWS_AT_A_TIME, side="right")) - 1
        last = min(max(reach, first + 1), first + _ROWS_AT_A_TIME, len(indptr) - 1)
        yield slice(first, last), slice(int(indptr[first]), int(indptr[last]))
        first = last


def _segment_sums(products: Floats, local: NDArray[np.int64]) -> Floats:
    """Sum rows between consecutive offsets; empty segments give zeros."""
    sums = np.zeros((len(local) - 1, products.shape[1]), products.dtype)
    filled = np.flatnonzero(np.diff(local))
    if len(filled):
        sums[filled] = np.add.reduceat(products, local[filled], axis=0)
    return sums
