"""Many users under one cap: rows are shrunk until no user's norms add up to more than the cap.

User l holds vectors z_i, i ∈ S_l. The nearest vectors c_i with Σ_{i ∈ S_l} ‖c_i‖_p ≤ T follow by subtracting one
threshold τ_l ≥ 0 from every magnitude of the user: from each |z_ij| if p = 1, from each ‖z_i‖ if p = 2. Negative
results become zero. τ_l is 0 if the user is already under the cap. Otherwise it is the root of Σ (magnitude − τ)_+ = T,
where the sum is convex and falls in τ. Newton's steps for it rise to the root from below after the first one, and end
exactly on it, because the function is linear between magnitudes.

Users of similar size are stored together in blocks padded with zero rows, on which no threshold has an effect. So all
users of a block are treated at once, and nothing here loops over users or rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ENTRIES_PER_BLOCK = 2**16  # half a megabyte, so that results of a block stay in the cache
_CLASSES_PER_FACTOR_E = 4  # sizes in one block differ by a factor of at most 1.28
_MOST_STEPS = 100
_PRODUCTS_AT_ONCE = 2**17


class SummedNorm(ABC):
    """The norm whose sum over a user's rows is capped. Vectors come in blocks [user, row, column]."""

    @abstractmethod
    def magnitudes(self, vectors: Floats) -> Floats:
        """Return the magnitudes from which a threshold is subtracted, [user, magnitude].

        They sum to the user's sum of norms.
        """

    @abstractmethod
    def shrunk(self, vectors: Floats, magnitudes: Floats, thresholds: Floats) -> Floats:
        """Return the vectors after each user's threshold was subtracted from its magnitudes."""


class AbsoluteSum(SummedNorm):
    """p = 1: magnitudes are the absolute values of the entries."""

    def magnitudes(self, vectors: Floats) -> Floats:
        """Return the absolute value of every entry."""
        return np.abs(vectors).reshape(len(vectors), -1)

    def shrunk(self, vectors: Floats, magnitudes: Floats, thresholds: Floats) -> Floats:
        """Move every entry towards zero by the threshold."""
        left = np.maximum(magnitudes - thresholds[:, None], 0)
        return np.copysign(left.reshape(vectors.shape), vectors)


class EuclideanLength(SummedNorm):
    """p = 2: magnitudes are the lengths of the rows."""

    def magnitudes(self, vectors: Floats) -> Floats:
        """Return the length of every row."""
        lengths: Floats = np.sqrt(np.einsum("urc,urc->ur", vectors, vectors))
        return lengths

    def shrunk(self, vectors: Floats, magnitudes: Floats, thresholds: Floats) -> Floats:
        """Shorten every row by the threshold and keep its direction."""
        return vectors * kept_share(magnitudes, thresholds)[:, :, None]


def kept_share(magnitudes: Floats, thresholds: Floats) -> Floats:
    """Return (1 − threshold / magnitude)_+, and 0 if the magnitude is 0."""
    left = np.maximum(magnitudes - thresholds[:, None], 0)
    return np.divide(left, magnitudes, out=left, where=magnitudes > 0)


@dataclass(frozen=True, eq=False)
class UserBlock:
    """Users of similar size.

    Attributes:
        features: [user, row, column]; rows that a user does not have are zero.
        rows: [user, row], the original position of each row; −1 for rows that do not exist.
        users: the positions of these users among all that have rows, in the order of the blocks.
    """

    features: Floats
    rows: NDArray[np.int64]
    users: slice

    @property
    def flat(self) -> Floats:
        """The features of all rows, [user and row, column]."""
        return self.features.reshape(-1, self.features.shape[2])

    def mapped(self, matrix: Floats) -> Floats:
        """Return the matrix applied to every row."""
        return _in_pieces(self.flat, matrix).reshape(*self.features.shape[:2], len(matrix))

    def moment(self, rows: Floats) -> Floats:
        """Return Σ_i c_i q_iᵀ for rows c [user and row, column] or [user, row, column]."""
        n_rows, d = self.flat.shape
        left, right = rows.reshape(n_rows, -1), self.flat
        size = max(_PRODUCTS_AT_ONCE // d**2, 1)
        end = n_rows // size * size
        pieces = np.matmul(left[:end].reshape(-1, size, d).transpose(0, 2, 1), right[:end].reshape(-1, size, d))
        moment: Floats = pieces.sum(axis=0) + left[end:].T @ right[end:]
        return moment


def sum_of_products(left: Floats, right: Floats) -> float:
    """Return Σ left · right over all entries, without BLAS, whose threads would cause waiting."""
    return float(np.einsum("i,i->", left.ravel(), right.ravel()))


def _in_pieces(rows: Floats, matrix: Floats) -> Floats:
    """Return the matrix times every row, in products so small that BLAS starts no threads.

    On a busy machine, such threads would cause waiting.
    """
    n_rows, d = rows.shape
    size = max(_PRODUCTS_AT_ONCE // d**2, 1)
    end = n_rows // size * size
    image = np.empty((n_rows, len(matrix)))
    np.matmul(rows[:end].reshape(-1, size, d), matrix.T, out=image[:end].reshape(-1, size, len(matrix)))
    np.matmul(rows[end:], matrix.T, out=image[end:])
    return image


def user_blocks(features: Floats, indptr: NDArray[np.int64], transform: Floats) -> list[UserBlock]:
    """Sort users with rows by size, divide them into blocks, and multiply their features by `transform`."""
    sizes = np.diff(indptr)
    order = np.argsort(sizes, kind="stable")
    order = order[np.searchsorted(sizes[order], 1) :]
    classes = np.floor(_CLASSES_PER_FACTOR_E * np.log(sizes[order])).astype(np.int64)
    ends = [*(np.flatnonzero(np.diff(classes)) + 1).tolist(), len(order)]
    blocks, start = [], 0
    for end in ends:
        at_once = max(_ENTRIES_PER_BLOCK // (features.shape[1] * int(sizes[order[end - 1]])), 1)
        for first in range(start, end, at_once):
            users = order[first : min(first + at_once, end)]
            place = np.arange(sizes[users[-1]])
            there = place < sizes[users, None]
            rows = np.where(there, indptr[users, None] + place, -1)
            padded = np.where(there[:, :, None], features[rows], 0.0) @ transform
            blocks.append(UserBlock(padded, rows, slice(first, first + len(users))))
        start = end
    return blocks


def capping_thresholds(magnitudes: Floats, cap: float, guess: Floats) -> tuple[Floats, Floats]:
    """Return each user's threshold for a cap > 0, and how many magnitudes are above it.

    Args:
        magnitudes: [user, magnitude].
        cap: the largest sum that a user's magnitudes may have afterwards.
        guess: a threshold per user to start from; any number ≥ 0.

    Returns:
        Thresholds, and counts, which are 0 for the users who were under the cap.

    >>> capping_thresholds(np.array([[3.0, 1.0, 0.0], [0.5, 0.0, 0.0]]), 1.0, np.zeros(2))
    (array([2., 0.]), array([1., 0.]))
    """
    ones = np.ones(magnitudes.shape[1])
    over = np.flatnonzero(magnitudes @ ones > cap)
    thresholds, counts = np.zeros(len(magnitudes)), np.zeros(len(magnitudes))
    if over.size:
        large = magnitudes if over.size == len(magnitudes) else magnitudes[over]
        thresholds[over], counts[over] = _roots(large, cap, guess[over], ones)
    return thresholds, counts


def _roots(magnitudes: Floats, cap: float, guess: Floats, ones: Floats) -> tuple[Floats, Floats]:
    """Solve Σ (magnitude − τ)_+ = cap by Newton's method, for users over the cap."""
    roots, before, excess = guess, np.zeros(len(guess)), np.empty_like(magnitudes)
    for _ in range(_MOST_STEPS):
        np.maximum(np.subtract(magnitudes, roots[:, None], out=excess), 0, out=excess)
        counts = (excess > 0).astype(np.float64) @ ones
        steps = (excess @ ones - cap) / np.maximum(counts, 1)
        settled = (counts == before) | (np.abs(steps) <= 4 * np.finfo(float).eps * roots)
        roots = np.where(counts > 0, np.maximum(roots + steps, 0), 0)  # a guess above all magnitudes starts again at 0
        if (settled & (counts > 0)).all():
            break
        before = counts
    return roots, np.maximum(counts, 1)
