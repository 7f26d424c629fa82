"""Sums and solves over segments: the kernel of private and non-private least squares.

Observations are sorted by segment (a user, or a task). Segment s owns observations indptr[s] .. indptr[s+1];
observation k has weight w_k, label y_k and the features x_k = features[indices[k]]. Per segment

    Gram    A_s = sum_k w_k x_k x_k'            moment    b_s = sum_k w_k y_k x_k
    solve   theta_s = (base + A_s)^-1 (base_rhs + b_s)

All functions work in the dtype of `features` (float32 or float64), but sums of float32 features may be formed in
float64. No array of size observations x d is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from apportion.errors import InputError
from apportion.linalg import fixed_factors, kernel, reference
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import (
    FLOATS,
    SegmentedRows,
    all_finite,
    checked_floats,
    checked_out,
    checked_segments,
    checked_symmetric,
    first_non_finite,
)
from apportion.linalg.fixed_order import row_products
from apportion.linalg.packed import FloatArray, packed_dim, packed_size
from apportion.linalg.threads import thread_count


def segment_gram(
    indptr: ArrayLike,
    indices: ArrayLike,
    features: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    out: FloatArray | None = None,
    threads: int | None = None,
) -> FloatArray:
    """Return packed weighted Gram matrices, one per segment: sum_k w_k x_k x_k'.

    Args:
        indptr: int64[s+1], segment boundaries, starting with 0.
        indices: int32[nnz], rows of `features`.
        features: float32 or float64 [n, d].
        weights: [nnz], of any sign; None is all ones.
        dtype: precision of the sums, not below that of `features`; None is the same.
        out: where to put the result.
        threads: number of threads; None is all.

    Returns:
        [s, d(d+1)/2], see `apportion.linalg.packed`.

    >>> segment_gram([0, 2], [0, 1], np.array([[1.0, 0.0], [1.0, 2.0]]))
    array([[2., 2., 4.]])
    """
    rows = checked_segments(indptr, indices, features)
    precision = _precision(dtype, rows)
    w = _per_observation("weights", weights, rows, precision)
    result = checked_out(out, (rows.n_segments, packed_size(rows.dim)), precision)
    count = thread_count(threads)
    if active_backend() == "compiled":
        failed = kernel.segments(
            kernel.GRAM, rows.indptr, rows.indices, rows.features, result, weights=w, threads=count
        )
    else:
        reference.segment_gram(rows, w, result)
        failed = _first_non_finite(result)
    if failed is not None:
        _explain(failed, "no finite Gram matrix", features=rows.features, weights=w)
    return result


def segment_moment(
    indptr: ArrayLike,
    indices: ArrayLike,
    features: ArrayLike,
    *,
    coefficients: ArrayLike,
    dtype: DTypeLike | None = None,
    out: FloatArray | None = None,
    threads: int | None = None,
) -> FloatArray:
    """Return weighted sums of features, one per segment: sum_k c_k x_k, where usually c = w y.

    Args:
        indptr: int64[s+1], segment boundaries, starting with 0.
        indices: int32[nnz], rows of `features`.
        features: float32 or float64 [n, d].
        coefficients: [nnz].
        dtype: precision of the sums, not below that of `features`; None is the same.
        out: where to put the result.
        threads: number of threads; None is all.

    Returns:
        [s, d].

    >>> segment_moment([0, 2], [0, 1], np.array([[1.0, 0.0], [1.0, 2.0]]), coefficients=[3, 1])
    array([[4., 2.]])
    """
    rows = checked_segments(indptr, indices, features)
    precision = _precision(dtype, rows)
    c = _per_observation("coefficients", coefficients, rows, precision)
    assert c is not None
    result = checked_out(out, (rows.n_segments, rows.dim), precision)
    count = thread_count(threads)
    if active_backend() == "compiled":
        failed = kernel.segments(
            kernel.MOMENT, rows.indptr, rows.indices, rows.features, result, labels=c, threads=count
        )
    else:
        reference.segment_moment(rows, c, result)
        failed = _first_non_finite(result)
    if failed is not None:
        _explain(failed, "no finite moment", features=rows.features, coefficients=c)
    return result


def segment_solve(
    indptr: ArrayLike,
    indices: ArrayLike,
    features: ArrayLike,
    *,
    labels: ArrayLike,
    base: ArrayLike,
    weights: ArrayLike | None = None,
    base_rhs: ArrayLike | None = None,
    unsolved: Literal["raise", "zero"] = "raise",
    out: FloatArray | None = None,
    threads: int | None = None,
) -> FloatArray:
    """Solve weighted ridge regressions, one per segment: half an epoch of alternating least squares.

    It solves (base + sum w x x') theta = base_rhs + sum w y x by Cholesky and never stores the Gram matrices.
    A segment without observations gives base^-1 base_rhs. Every bit of a segment's solution depends only on its own
    observations, `features` and `base`, not on other segments.

    Args:
        indptr: int64[s+1], segment boundaries, starting with 0.
        indices: int32[nnz], rows of `features`.
        features: float32 or float64 [n, d].
        labels: [nnz].
        base: symmetric [d, d], for instance ridge * identity.
        weights: [nnz], of any sign; None is all ones.
        base_rhs: [d]; None is zero.
        unsolved: what to do with segments that have no solution: raise, or make them zero.
        out: where to put the result.
        threads: number of threads; None is all.

    Returns:
        [s, d].

    Raises:
        InputError: for arguments that do not fit together.
        ArithmeticError: naming the first segment whose matrix is not positive definite, or the NaN or
            infinity in the arguments that spoiled it.

    >>> segment_solve([0, 1, 1], [0], np.array([[2.0]]), labels=[3], base=[[2.0]])
    array([[1.],
           [0.]])
    """
    rows = checked_segments(indptr, indices, features)
    dtype = rows.features.dtype
    w = _per_observation("weights", weights, rows, dtype)
    y = _per_observation("labels", labels, rows, dtype)
    assert y is not None
    matrix = checked_symmetric("base", base, rows.dim, dtype)
    rhs = np.zeros(rows.dim) if base_rhs is None else base_rhs
    rhs = checked_floats("base_rhs", rhs, shape=(rows.dim,), dtype=dtype)
    result = checked_out(out, (rows.n_segments, rows.dim), dtype)
    count = thread_count(threads)
    if active_backend() == "compiled":
        failed = _compiled_solve(rows, w, y, matrix, rhs, result, count)
    else:
        reference.segment_solve(rows, w, y, matrix, rhs, result)
        failed = _first_non_finite(result)
    if failed is not None and unsolved == "zero":
        result[~np.isfinite(result).all(axis=1)] = 0
    elif failed is not None:
        _explain(failed, "no solution", features=rows.features, weights=w, labels=y, base_rhs=rhs)
    return result


def solve_packed(
    packed: ArrayLike, rhs: ArrayLike, base: ArrayLike | None = None, *, threads: int | None = None
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Solve (base + A_s) x_s = rhs_s for packed symmetric A_s by Cholesky.

    Args:
        packed: float32 or float64 [s, d(d+1)/2].
        rhs: [s, d].
        base: symmetric [d, d], added to every matrix; None is zero.
        threads: number of threads; None is all.

    Returns:
        The solutions [s, d], and which segments failed because their matrix is not positive definite (or
        something is not finite). Rows that failed are NaN: repair them with `project_psd`, or drop them.

    >>> solve_packed(np.array([[4.0], [-1.0]]), np.array([[2.0], [1.0]]))
    (array([[0.5],
           [nan]]), array([False,  True]))
    """
    matrices = checked_floats("packed", packed, ndim=2)
    n_segments, dim = matrices.shape[0], packed_dim(matrices.shape[1])
    right = checked_floats("rhs", rhs, shape=(n_segments, dim), dtype=matrices.dtype)
    common = None if base is None else checked_symmetric("base", base, dim, matrices.dtype)
    if active_backend() == "compiled":
        return kernel.solve_packed(matrices, right, common, threads=thread_count(threads))
    return reference.solve_packed(matrices, right, common)


def _precision(dtype: DTypeLike | None, rows: SegmentedRows) -> np.dtype[Any]:
    """Return the precision of the sums."""
    own = rows.features.dtype
    wanted = own if dtype is None else np.dtype(dtype)
    if wanted not in FLOATS or wanted.itemsize < own.itemsize:
        raise InputError(
            f"Expected sums in float32 or float64, not below the features' {own}, got {wanted}.", argument="dtype"
        )
    return wanted


def _per_observation(
    name: str, values: ArrayLike | None, rows: SegmentedRows, dtype: np.dtype[Any]
) -> FloatArray | None:
    if values is None:
        return None
    return checked_floats(name, values, shape=(rows.n_observations,), dtype=dtype)


def _first_non_finite(result: FloatArray) -> int | None:
    if all_finite(result):
        return None
    return int(np.flatnonzero(~np.isfinite(result).all(axis=1))[0])


def _explain(segment: int, what: str, **arrays: FloatArray | None) -> NoReturn:
    """Name the segment and the input that caused the failure; if none did, the arithmetic itself failed."""
    because = first_non_finite(**arrays)
    if because is None and what == "no solution":
        because = "its matrix is not positive definite in this precision"
    raise ArithmeticError(f"Segment {segment} has {what}: {because or 'the numbers are too large'}.")


@dataclass(frozen=True)
class _Whitening:
    """Coordinates z = T x in which `base` is the identity; theta = T' (solution in z)."""

    transform: FloatArray

    def rows(self, rows: SegmentedRows, threads: int) -> SegmentedRows:
        """Return the rows in the new coordinates.

        If there are few observations, only the rows that occur are transformed.
        """
        if rows.n_observations >= len(rows.features):
            return SegmentedRows(rows.indptr, rows.indices, self._changed(rows.features, threads))
        used, places = np.unique(rows.indices, return_inverse=True)
        return SegmentedRows(rows.indptr, places.astype(np.int32), self._changed(rows.features[used], threads))

    def _changed(self, features: FloatArray, threads: int) -> FloatArray:
        return row_products(features, self.transform, threads=threads)

    def vector(self, values: FloatArray) -> FloatArray:
        return np.ascontiguousarray(row_products(self.transform, values[None, :])[:, 0])


def _compiled_solve(
    rows: SegmentedRows,
    weights: FloatArray | None,
    labels: FloatArray,
    base: FloatArray,
    base_rhs: FloatArray,
    out: FloatArray,
    threads: int,
) -> int | None:
    """Run the kernel, in coordinates that allow the dual form of short segments wherever that is safe.

    This choice must not depend on the segments: the two forms round differently, so adding or removing one user would
    change the solutions of all others.
    """
    ridge = _ridge(base) if weights is None or not weights.size or weights.min() >= 0 else 0.0
    whitening = _whitening(base) if ridge is None else None
    if whitening is None:
        return kernel.segments(
            kernel.SOLUTION, rows.indptr, rows.indices, rows.features, out,
            weights=weights, labels=labels, base=base, base_rhs=base_rhs, ridge=ridge or 0.0, threads=threads,
        )  # fmt: skip
    white, transform = whitening.rows(rows, threads), whitening.transform
    return kernel.segments(
        kernel.SOLUTION, white.indptr, white.indices, white.features, out,
        weights=weights, labels=labels, base=np.eye(rows.dim, dtype=base.dtype),
        base_rhs=whitening.vector(base_rhs), ridge=1.0, back=transform, threads=threads,
    )  # fmt: skip


def _ridge(base: FloatArray) -> float | None:
    """Return the r > 0 of base = r I; None if base is another matrix."""
    ridge = float(base[0, 0])
    is_multiple = ridge > 0 and np.array_equal(base, ridge * np.eye(base.shape[0], dtype=base.dtype))
    return ridge if is_multiple else None


def _whitening(base: FloatArray) -> _Whitening | None:
    """Return the change of coordinates that turns `base` into the identity, if it is safe.

    A segment of n < d observations costs n^2 d/2 + n^3/6 multiply-adds in the dual form instead of
    n d^2/2 + d^3/6; the change itself costs d^2 per row of features. It is safe if `base` has an inverse in its
    precision. It is then more accurate than the direct form, because its error grows with the square root of base's
    condition number. T is the inverse of the Cholesky factor of `base`, by elementary operations in a fixed order:
    LAPACK would round it differently on another processor.
    """
    return _whitening_of(base.tobytes(), base.dtype.str, len(base))


@lru_cache(maxsize=8)
def _whitening_of(held: bytes, dtype: str, dim: int) -> _Whitening | None:
    """Do the same from the bytes of `base`, because all users of a model are folded in with the same `base`."""
    base = np.frombuffer(held, dtype).reshape(dim, dim)
    factor = fixed_factors.cholesky(base.astype(np.float64))
    if factor is None:
        return None
    transform = fixed_factors.inverse_of_lower(factor)
    largest_of_inverse = float(np.square(transform).sum(axis=0).max())  # relative to its diagonal
    if not float(base.diagonal().max()) * largest_of_inverse * 16 * np.finfo(base.dtype).eps < 1:
        return None
    return _Whitening(np.ascontiguousarray(transform, dtype=base.dtype))
