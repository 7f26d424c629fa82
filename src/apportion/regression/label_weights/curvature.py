"""The dual function of `dual` for each of the two norms: the matrices it ranges over, and its second derivative."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from apportion.regression.label_weights.dual import CappedUsers, DualPoint, LabelDual
from apportion.regression.label_weights.projection import AbsoluteSum, EuclideanLength, Floats, UserBlock, kept_share

_ROWS_AT_ONCE = 1024  # rows at a time in products of all pairs of columns: with twenty columns, 1.7 MB


def label_dual(blocks: Sequence[UserBlock], target: Floats, ratio: float, norm: Literal[1, 2]) -> LabelDual:
    """Return the dual for the norm of the rows: 1 for Laplace noise, 2 for Gaussian noise."""
    kind = AbsoluteDual if norm == 1 else EuclideanDual
    return kind(blocks, target, ratio)


class AbsoluteDual(LabelDual):
    """p = 1: any Λ, d² coordinates; the first sum is one Gram matrix for every row of Λ."""

    norm = AbsoluteSum()

    @cached_property
    def directions(self) -> Floats:
        """The single entries of Λ, row by row."""
        return np.eye(self.dim**2).reshape(-1, self.dim, self.dim)

    def uncapped_form(self, point: DualPoint) -> tuple[Floats, CappedUsers]:
        """Return Σ q qᵀ over the entries above the threshold, for every row of Λ, and users' sums of signs times q."""
        d = self.dim
        packed, capped = np.zeros((d, d * (d + 1) // 2)), CappedUsers(d * d)
        for block in self.blocks:
            vectors, thresholds = block.mapped(point.matrix), point.thresholds[block.users]
            above = (np.abs(vectors) > thresholds[:, None, None]).astype(np.float64)
            add_grams(packed, above.reshape(-1, d), block.flat)
            over = np.flatnonzero(thresholds)
            if over.size:
                signs = np.copysign(above[over], vectors[over])
                users = np.matmul(signs.transpose(0, 2, 1), block.features[over])
                capped.add(users.reshape(len(over), -1), np.maximum(above[over].sum(axis=(1, 2)), 1))
        return block_diagonal(packed), capped


class EuclideanDual(LabelDual):
    """p = 2: Λ = R S with a symmetric S, d (d + 1) / 2 coordinates."""

    norm = EuclideanLength()

    @cached_property
    def directions(self) -> Floats:
        """R (E_ab + E_ba) for a ≤ b, where E_ab has a single one."""
        n_coordinates = self.dim * (self.dim + 1) // 2
        symmetric = _unpacked(np.eye(n_coordinates), self.dim)
        symmetric[:, np.arange(self.dim), np.arange(self.dim)] *= 2
        return self.target @ symmetric

    def uncapped_form(self, point: DualPoint) -> tuple[Floats, CappedUsers]:
        """Return the form in which rows above the threshold keep a share of their length.

        It is share ‖Δ q‖² + (1 − share) ⟨u, Δ q⟩².
        """
        n_coordinates = len(self.directions)
        gram, form = np.zeros((self.dim, self.dim)), np.zeros((n_coordinates, n_coordinates))
        capped = CappedUsers(n_coordinates)
        for block in self.blocks:
            vectors, thresholds = block.mapped(point.matrix), point.thresholds[block.users]
            lengths = self.norm.magnitudes(vectors)
            share = kept_share(lengths, thresholds)
            gram += block.moment(block.flat * share.reshape(-1, 1))
            over = np.flatnonzero(thresholds)
            if over.size:
                above = share[over] > 0
                units = _units(vectors[over], lengths[over], above)
                pulled = (units.reshape(-1, self.dim) @ self.target).reshape(units.shape)
                features = block.features[over]
                users = np.matmul(pulled.transpose(0, 2, 1), features)
                capped.add(_packed_symmetric(users), np.maximum(above.sum(axis=1), 1.0))
                turned = pulled[above] * np.sqrt(1 - share[over][above])[:, None]
                _add_outer(form, turned, features[above])
        flat = self.directions.reshape(n_coordinates, -1)
        form += (self.directions @ gram).reshape(n_coordinates, -1) @ flat.T
        return form, capped


def add_grams(packed: Floats, weights: Floats, features: Floats) -> None:
    """Add Σ_i w_ij q_i q_iᵀ for every column j of the weights, packed, [j, pair of columns]."""
    for rows in _slices(len(features)):
        columns = np.ascontiguousarray(features[rows].T)
        packed += (_pair_products(columns, columns) @ weights[rows]).T


def block_diagonal(packed: Floats) -> Floats:
    """Return the matrix [d², d²] with the Gram matrices of `add_grams` along its diagonal."""
    d = len(packed)
    form = np.zeros((d, d, d, d))
    form[np.arange(d), :, np.arange(d), :] = _unpacked(packed, d)
    return form.reshape(d * d, d * d)


def _add_outer(form: Floats, left: Floats, right: Floats) -> None:
    """Add Σ_i p_i p_iᵀ with p_i = left_a right_b + left_b right_a for the pairs a ≤ b of columns of row i."""
    for rows in _slices(len(left)):
        one, other = np.ascontiguousarray(left[rows].T), np.ascontiguousarray(right[rows].T)
        products = _pair_products(one, other) + _pair_products(other, one)
        form += products @ products.T


def _pair_products(left: Floats, right: Floats) -> Floats:
    """Return left_a right_b for a ≤ b, [pair, row], from [column, row], as long contiguous products."""
    d, n_rows = left.shape
    products, start = np.empty((d * (d + 1) // 2, n_rows)), 0
    for a in range(d):
        np.multiply(left[a], right[a:], out=products[start : start + d - a])
        start += d - a
    return products


def _units(vectors: Floats, lengths: Floats, above: NDArray[np.bool_]) -> Floats:
    """Return the directions z / ‖z‖ of rows above the threshold, 0 for the others."""
    inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=above)
    return vectors * inverse[:, :, None]


def _packed_symmetric(matrices: Floats) -> Floats:
    """Return M_ab + M_ba for a ≤ b."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    packed: Floats = matrices[:, rows, columns] + matrices[:, columns, rows]
    return packed


def _unpacked(packed: Floats, dim: int) -> Floats:
    """Return symmetric matrices from their entries a ≤ b, row by row."""
    rows, columns = np.triu_indices(dim)
    full = np.empty((len(packed), dim, dim))
    full[:, rows, columns] = full[:, columns, rows] = packed
    return full


def _slices(n_rows: int) -> list[slice]:
    return [slice(start, start + _ROWS_AT_ONCE) for start in range(0, n_rows, _ROWS_AT_ONCE)]
