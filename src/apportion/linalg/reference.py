"""The segment operations in plain NumPy: the reference for the compiled kernel, and the code that runs without it.

Segments of similar length are padded and stacked (`batches`), so that each step is one batched product.
Arguments have been checked before; results may hold NaN, which the caller reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.batches import padded_batches
from apportion.linalg.checks import SegmentedRows
from apportion.linalg.packed import FloatArray, pack, unpack

MAX_ELEMENTS = 1 << 21  # size of one batch: a few temporary arrays of this size exist at a time


def segment_gram(rows: SegmentedRows, weights: FloatArray | None, out: FloatArray) -> None:
    """Set out[s] to the packed sum of w x x' over the segment."""
    for segments, gram, _ in _sums(rows, weights, None, out.dtype, want_gram=True):
        out[segments] = pack(gram)


def segment_moment(rows: SegmentedRows, coefficients: FloatArray, out: FloatArray) -> None:
    """Set out[s] to the sum of c x over the segment."""
    for segments, _, moment in _sums(rows, None, coefficients, out.dtype, want_gram=False):
        out[segments] = moment


def segment_solve(
    rows: SegmentedRows,
    weights: FloatArray | None,
    labels: FloatArray,
    base: FloatArray,
    base_rhs: FloatArray,
    out: FloatArray,
) -> None:
    """Set out[s] to (base + sum w x x')^-1 (base_rhs + sum w y x); NaN if there is no Cholesky factor.

    It computes in float64 whatever the precision of the rows. The batches depend on all segments, and that must not
    change a solution noticeably.
    """
    coefficients = labels if weights is None else labels * weights
    for segments, gram, moment in _sums(rows, weights, coefficients, np.dtype(np.float64), want_gram=True):
        out[segments] = cholesky_solve(gram + base, moment + base_rhs)[0]


def solve_packed(packed: FloatArray, rhs: FloatArray, base: FloatArray | None) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return (base + A_s)^-1 rhs_s for packed A_s, and which of them failed."""
    solution, failed = np.empty_like(rhs), np.zeros(rhs.shape[0], dtype=np.bool_)
    count = max(1, MAX_ELEMENTS // rhs.shape[1] ** 2)
    for first in range(0, rhs.shape[0], count):
        part = slice(first, first + count)
        matrices = unpack(packed[part]) if base is None else unpack(packed[part]) + base
        solution[part], failed[part] = cholesky_solve(matrices, rhs[part])
    return solution, failed


def _sums(
    rows: SegmentedRows,
    weights: FloatArray | None,
    coefficients: FloatArray | None,
    dtype: np.dtype[Any],
    *,
    want_gram: bool,
) -> Iterator[tuple[NDArray[np.int64], FloatArray, FloatArray]]:
    """Yield (segments, their Gram matrices, their moments), a batch at a time, summed in this precision."""
    dim = rows.dim
    for batch in padded_batches(np.diff(rows.indptr), dim, MAX_ELEMENTS):
        n = batch.segments.size
        gram = np.zeros((n, dim, dim) if want_gram else (0,), dtype)
        moment = np.zeros((n, dim), dtype)
        for stride in batch.strides:
            at, present = _padded_positions(rows.indptr, batch.segments, *stride)
            x = rows.features[rows.indices[at]].astype(dtype, copy=False)
            with np.errstate(all="ignore"):  # the caller looks for non-finite results
                if want_gram:
                    w = present if weights is None else np.where(present, weights[at], 0)
                    gram += np.matmul(x.transpose(0, 2, 1), x * w[:, :, None].astype(dtype))
                if coefficients is not None:
                    c = np.where(present, coefficients[at], 0)
                    moment += np.matmul(c[:, None, :], x)[:, 0, :]
        yield batch.segments, gram, moment


def _padded_positions(
    indptr: NDArray[np.int64], segments: NDArray[np.int64], start: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return observations start .. stop of each segment, [segments, stop - start], and which of them exist."""
    at = indptr[segments][:, None] + np.arange(start, stop)
    present = at < indptr[segments + 1][:, None]
    return np.where(present, at, 0), present


def cholesky_solve(matrices: FloatArray, rhs: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Solve matrices[s] x = rhs[s] by Cholesky; failures are marked and become NaN."""
    lower, failed = _cholesky(matrices)
    x = rhs.copy()
    dim = rhs.shape[1]
    with np.errstate(all="ignore"):
        for r in range(dim):
            x[:, r] -= np.einsum("sc,sc->s", lower[:, r, :r], x[:, :r])
            x[:, r] /= lower[:, r, r]
        for r in reversed(range(dim)):
            x[:, r] -= np.einsum("sc,sc->s", lower[:, r + 1 :, r], x[:, r + 1 :])
            x[:, r] /= lower[:, r, r]
    failed |= ~np.isfinite(x).all(axis=1)
    x[failed] = np.nan
    return x, failed


def _cholesky(matrices: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return lower Cholesky factors; a matrix without one is marked and gets the identity."""
    failed = np.zeros(matrices.shape[0], dtype=np.bool_)
    try:
        return np.linalg.cholesky(matrices), failed
    except np.linalg.LinAlgError:
        failed[:] = [not _has_cholesky(matrix) for matrix in matrices]
    patched = matrices.copy()
    patched[failed] = np.eye(matrices.shape[-1], dtype=matrices.dtype)
    return np.linalg.cholesky(patched), failed


def _has_cholesky(matrix: FloatArray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True
