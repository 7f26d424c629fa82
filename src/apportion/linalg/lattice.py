"""Sums over segments on a lattice: whole numbers of a public step, the same for every order of additions.

Factors are truncated towards zero before they are multiplied, so that no part becomes longer. Products are whole
numbers of steps and are added without rounding: in doubles below 2^53, in 64 bits beyond. The same arguments give the
same whole numbers on any number of threads, and what an observation adds does not depend on other observations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.linalg import kernel, reference
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import FLOATS, SegmentedRows, checked_floats, checked_segments
from apportion.linalg.packed import FloatArray, packed_size

FACTOR_BITS = 17  # steps of the largest factor of a Gram matrix
PRODUCT_BITS = 2 * FACTOR_BITS  # steps of the largest product
_LEAST_EXPONENT = -1022  # least number whose reciprocal is finite
_AT_A_TIME = 1 << 15  # observations at a time in the NumPy path

Counts = NDArray[np.int64]


def step_below(bound: float, bits: int = PRODUCT_BITS) -> float:
    """Return the smallest power of two of which 2^bits steps reach the bound. If the bound is 0, any step will do.

    >>> step_below(1.0, 3)
    0.125
    """
    if not (0 <= bound < math.inf):
        raise InputError(f"Expected a finite bound of at least 0 to divide into steps, got {bound}.", argument="bound")
    fraction, exponent = math.frexp(bound)
    return math.ldexp(1.0, max(exponent - (fraction == 0.5) - bits, _LEAST_EXPONENT))


def whole_steps(values: ArrayLike, step: float) -> FloatArray:
    """Return how many steps each number is, truncated towards zero; float64."""
    return np.asarray(np.trunc(np.asarray(values, np.float64) / step))


def lattice_gram(
    indptr: ArrayLike,
    indices: ArrayLike,
    features: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    step: float,
    threads: int | None = None,
) -> Counts:
    """Return packed Gram matrices sum_k ± p_k p_k', one per segment, where p is sqrt|w| x in whole steps.

    Args:
        indptr: int64[s+1], segment boundaries, starting with 0.
        indices: int32[nnz], rows of `features`.
        features: float32 or float64 [n, d].
        weights: [nnz], of any sign; None is all ones.
        step: the step of the factors, a power of two; no factor may have more than 2^17 steps.
        threads: number of threads; None is all.

    Returns:
        [s, d(d+1)/2], in units of step².

    >>> lattice_gram([0, 2], [0, 1], np.array([[1.0, 0.0], [1.0, 2.0]]), step=0.25)
    array([[32, 32, 64]])
    """
    rows, w = _checked(indptr, indices, features, np.ones(np.size(indices)) if weights is None else weights, step)
    _refuse_beyond(2.0**FACTOR_BITS, _largest(rows.features) * math.sqrt(_largest(w)) / step, "factors")
    counts = np.zeros((rows.n_segments, packed_size(rows.dim)), np.int64)
    if active_backend() == "compiled":
        kernel.lattice(kernel.GRAM, rows.indptr, rows.indices, rows.features, w, step, counts, threads=threads)
    else:
        _by_numpy(rows, np.sqrt(np.abs(w)), np.sign(w), step, counts, want_gram=True)
    return counts


def lattice_moment(
    indptr: ArrayLike,
    indices: ArrayLike,
    features: ArrayLike,
    *,
    coefficients: ArrayLike,
    step: float,
    threads: int | None = None,
) -> Counts:
    """Return sums of c x in whole steps, one per segment.

    Args:
        indptr: int64[s+1], segment boundaries, starting with 0.
        indices: int32[nnz], rows of `features`.
        features: float32 or float64 [n, d].
        coefficients: [nnz].
        step: the step of the products, a power of two; no product may have more than 2^34 steps.
        threads: number of threads; None is all.

    Returns:
        [s, d], in units of step.

    >>> lattice_moment([0, 2], [0, 1], np.array([[1.0, 0.0], [1.0, 2.0]]), coefficients=[3.0, 1.0], step=0.5)
    array([[8, 4]])
    """
    rows, c = _checked(indptr, indices, features, coefficients, step)
    _refuse_beyond(2.0**PRODUCT_BITS, _largest(rows.features) * _largest(c) / step, "products")
    counts = np.zeros((rows.n_segments, rows.dim), np.int64)
    if active_backend() == "compiled":
        kernel.lattice(kernel.MOMENT, rows.indptr, rows.indices, rows.features, c, step, counts, threads=threads)
    else:
        _by_numpy(rows, c, np.ones(len(c)), step, counts, want_gram=False)
    return counts


def _checked(
    indptr: ArrayLike, indices: ArrayLike, features: ArrayLike, numbers: ArrayLike, step: float
) -> tuple[SegmentedRows, FloatArray]:
    if not (step > 0 and math.frexp(step)[0] == 0.5):
        raise InputError(f"Expected a step that is a power of two, got {step}.", argument="step")
    rows = checked_segments(indptr, indices, features)
    return rows, checked_floats("weights", numbers, shape=(rows.n_observations,), dtype=FLOATS[1])


def _largest(values: FloatArray) -> float:
    """Return the largest absolute entry; NaN if there is one."""
    return max(abs(float(values.max(initial=0.0))), abs(float(values.min(initial=0.0))))


def _refuse_beyond(most: float, steps: float, what: str) -> None:
    if not steps <= most:
        raise InputError(f"Expected {what} of at most {most:.0f} steps, got {steps:g}.", argument=None)


def _by_numpy(
    rows: SegmentedRows, scales: FloatArray, signs: FloatArray, step: float, counts: Counts, *, want_gram: bool
) -> None:
    """Process some observations at a time: find the runs of one segment among them, and add up each run."""
    owners = np.repeat(np.arange(rows.n_segments), np.diff(rows.indptr))
    for first in range(0, rows.n_observations, _AT_A_TIME):
        part = slice(first, first + _AT_A_TIME)
        here, runs = np.unique(owners[part], return_counts=True)
        whole = whole_steps(rows.features[rows.indices[part]] * scales[part, None], step)
        order = np.arange(len(whole), dtype=np.int32)
        pieces = SegmentedRows(np.concatenate([[0], np.cumsum(runs)]), order, np.ascontiguousarray(whole))
        sums = np.empty((len(here), counts.shape[1]))
        if want_gram:
            reference.segment_gram(pieces, signs[part], sums)
        else:
            reference.segment_moment(pieces, np.ones(len(whole)), sums)
        counts[here] += sums.astype(np.int64)
