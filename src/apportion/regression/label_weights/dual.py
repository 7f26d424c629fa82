"""The dual of label-private regression's optimal weights: a concave function of one d x d matrix.

The problem, with labels' variance v and price A per squared unit of sensitivity, divided by v, so that ρ = A / v:

    minimise ‖C‖² + ρ T²   subject to   Σ_i c_i q_iᵀ = R,   Σ_{i ∈ S_l} ‖c_i‖_p ≤ T for every user l.

q_i are the features after a change of coordinates in which Σ_i q_i q_iᵀ = I, which takes the identity of C X = I to R.
The c_i stay in their own coordinates. For any d x d matrix Λ and thresholds τ_l ≥ 0, with z_i = Λ q_i,

    ⟨Λ, R⟩ = Σ_i ⟨c_i, z_i⟩ ≤ Σ |c| (|z| − τ)_+ + Σ_l τ_l T ≤ √(‖C‖² + ρ T²) · √(Σ (|z| − τ)_+² + (Σ_l τ_l)² / ρ),

where |z| stands for the magnitudes of `capped_projection` (p = 2: lengths). So, with Q the square of the last root, the
objective is at least ⟨Λ, R⟩² / Q. The best thresholds for Λ are those that cap every user at the T with ρ T = Σ_l τ_l.
With them 2 ⟨Λ, R⟩ − Q is concave in Λ and has gradient 2 (R − Σ_i c_i q_iᵀ), where c_i is z_i shrunk by τ: it is
largest where c satisfies the constraint, and there the bound is attained.

The gradient is piecewise smooth. With k_l magnitudes of user l above τ_l > 0 and w_l = Σ_i u_i q_iᵀ over them (u_i:
signs of the entries, or z_i / ‖z_i‖), its derivative in direction Δ is, up to the factor −2, the quadratic form

    Σ ⟨u, Δ q⟩² − Σ_l ⟨w_l, Δ⟩² / k_l + (Σ_l ⟨w_l, Δ⟩ / k_l)² / (ρ + Σ_l 1 / k_l),

the first sum over entries above the threshold (p = 1), with ‖Δ q‖² in place of ⟨u, Δ q⟩² as far as a row keeps its
length (p = 2). For p = 2 the solution is weighted least squares, c_i = w_i Λ q_i with Λ Σ_i w_i q_i q_iᵀ = R: so
Λ = R S with a symmetric S, and only such Λ are searched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.regression.label_weights.projection import (
    Floats,
    SummedNorm,
    UserBlock,
    capping_thresholds,
    sum_of_products,
)

_CAP_PRECISION = 1e-9
_MOST_CAP_STEPS = 100
_CORRECTED = 1e-8
_USERS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class DualPoint:
    """The dual function at one matrix.

    Attributes:
        matrix: Λ, scaled so that the dual is largest among its multiples: linear = curvature.
        cap: T.
        thresholds: one for every user with rows, in the order of the blocks.
        squares: ‖C‖² of the shrunk rows.
        curvature: Q.
        linear: ⟨Λ, R⟩.
        moment: Σ_i c_i q_iᵀ of the shrunk rows.
    """

    matrix: Floats
    cap: float
    thresholds: Floats
    squares: float
    curvature: float
    linear: float
    moment: Floats

    def lower_bound(self, ratio: float) -> float:
        """Return a lower bound on ‖C‖² + ratio T². The ratio need not be the one for which the point was made."""
        return self.linear**2 / (self.squares + float(self.thresholds.sum()) ** 2 / ratio)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Rows that meet the constraint: correction · shrunk(matrix · q, thresholds).

    Attributes:
        matrix: Λ.
        thresholds: one for every user with rows.
        correction: the matrix that takes the rows' moment to the target.
        squares: ‖C‖² of the rows.
        cap: the largest sum of norms of a user.
        largest_magnitudes: Σ_l of the largest magnitude of Λ q_i among the user's rows (p = 1: its dual norm).
        linear: ⟨Λ, R⟩.
    """

    matrix: Floats
    thresholds: Floats
    correction: Floats
    squares: float
    cap: float
    largest_magnitudes: float
    linear: float


@dataclass(frozen=True, eq=False)
class NewtonSystem:
    """The second-order model of half the dual at a point.

    Attributes:
        hessian: minus the second derivative along the directions.
        scale: the hessian if no user is capped; an upper bound on the hessian.
        gradient: the first derivative along the directions.
        directions: [coordinate, d, d].
    """

    hessian: Floats
    scale: Floats
    gradient: Floats
    directions: Floats

    def step(self, damping: float) -> Floats:
        """Return Newton's step. A multiple of the scale, relative to the size of the hessian, is added as damping."""
        lengths = np.sqrt(np.diag(self.scale))
        hessian = self.hessian / np.outer(lengths, lengths)
        scale = self.scale / np.outer(lengths, lengths)
        mean = float(np.trace(hessian)) / len(lengths)
        coordinates = np.linalg.solve(hessian + damping * mean * scale, self.gradient / lengths) / lengths
        step: Floats = np.tensordot(coordinates, self.directions, 1)
        return step


class LabelDual(ABC):
    """The dual function for one ratio ρ.

    Args:
        blocks: the features in coordinates with Σ q qᵀ = I.
        target: R.
        ratio: ρ.
    """

    norm: SummedNorm

    def __init__(self, blocks: Sequence[UserBlock], target: Floats, ratio: float) -> None:
        self.blocks, self.target, self.ratio, self.dim = blocks, target, ratio, len(target)
        self.n_users = blocks[-1].users.stop

    def evaluate(self, matrix: Floats, cap: float, guess: Floats) -> DualPoint:
        """Find the cap by Newton's method (ρ T − Σ_l τ_l(T) rises and is concave) and scale the matrix."""
        for _ in range(_MOST_CAP_STEPS):
            thresholds, inverse_counts, squares, moment = self._capped(matrix, cap, guess)
            total = float(thresholds.sum())
            step = (total - self.ratio * cap) / (self.ratio + inverse_counts)
            if abs(step) <= _CAP_PRECISION * cap:
                break
            cap, guess = max(cap + step, cap / 1000), thresholds
        linear = float(np.vdot(matrix, self.target))
        curvature = squares + total**2 / self.ratio
        s = linear / curvature
        return DualPoint(s * matrix, s * cap, s * thresholds, s**2 * squares, s**2 * curvature, s * linear, s * moment)

    def _capped(self, matrix: Floats, cap: float, guess: Floats) -> tuple[Floats, float, float, Floats]:
        """Return thresholds for a cap, Σ 1/k over capped users, and the squares and the moment of the shrunk rows."""
        thresholds = np.empty(self.n_users)
        inverse_counts, squares, moment = 0.0, 0.0, np.zeros((self.dim, self.dim))
        for block in self.blocks:
            vectors = block.mapped(matrix)
            magnitudes = self.norm.magnitudes(vectors)
            found, counts = capping_thresholds(magnitudes, cap, guess[block.users])
            thresholds[block.users] = found
            inverse_counts += float((1 / counts[counts > 0]).sum())
            rows = self.norm.shrunk(vectors, magnitudes, found)
            squares += sum_of_products(rows, rows)
            moment += block.moment(rows)
        return thresholds, inverse_counts, squares, moment

    def residual(self, point: DualPoint) -> float:
        """Return how far the shrunk rows are from meeting the constraint, each row of it relative to its target."""
        missing = np.linalg.norm(self.target - point.moment, axis=1) / np.linalg.norm(self.target, axis=1)
        return float(missing.max())

    def least_squares(self) -> Candidate:
        """Return ordinary least squares: no thresholds."""
        return self.measured(self.target, np.zeros(self.n_users), np.eye(self.dim))

    def candidate(self, point: DualPoint) -> Candidate | None:
        """Return the rows of a point, corrected to meet the constraint; None if they cannot be corrected."""
        try:
            correction = self.target @ np.linalg.inv(point.moment)
        except np.linalg.LinAlgError:
            return None
        missed = np.linalg.norm(correction @ point.moment - self.target, axis=1)
        if not (missed <= _CORRECTED * np.linalg.norm(self.target, axis=1)).all():
            return None
        return self.measured(point.matrix, point.thresholds, correction)

    def measured(self, matrix: Floats, thresholds: Floats, correction: Floats) -> Candidate:
        """Return the squares and the cap of a candidate, by one pass over the rows."""
        squares, cap, largest = 0.0, 0.0, 0.0
        for block in self.blocks:
            vectors = block.mapped(matrix)
            magnitudes = self.norm.magnitudes(vectors)
            shrunk = self.norm.shrunk(vectors, magnitudes, thresholds[block.users])
            rows = shrunk @ correction.T
            squares += sum_of_products(rows, rows)
            cap = max(cap, float(self.norm.magnitudes(rows).sum(axis=1).max()))
            largest += float(magnitudes.max(axis=1).sum())
        linear = float(np.vdot(matrix, self.target))
        return Candidate(matrix, thresholds, correction, squares, cap, largest, linear)

    def rows(self, candidate: Candidate, n_rows: int) -> Floats:
        """Return the rows of a candidate in the order in which the features were given."""
        result = np.zeros((n_rows, self.dim))
        for block in self.blocks:
            vectors = block.mapped(candidate.matrix)
            thresholds = candidate.thresholds[block.users]
            shrunk = self.norm.shrunk(vectors, self.norm.magnitudes(vectors), thresholds).reshape(-1, self.dim)
            there = block.rows.ravel() >= 0
            result[block.rows.ravel()[there]] = shrunk[there] @ candidate.correction.T
        return result

    def system(self, point: DualPoint) -> NewtonSystem:
        """Return Newton's equations at a point."""
        hessian, capped = self.uncapped_form(point)
        hessian += capped.form(self.ratio)
        flat = self.directions.reshape(len(self.directions), -1)
        gradient = flat @ (self.target - point.moment).ravel()
        return NewtonSystem(hessian, flat @ flat.T, gradient, self.directions)

    @cached_property
    @abstractmethod
    def directions(self) -> Floats:
        """The matrices of which Λ is a linear combination, [coordinate, d, d]."""

    @abstractmethod
    def uncapped_form(self, point: DualPoint) -> tuple[Floats, CappedUsers]:
        """Return the first sum of the quadratic form along the directions, and the terms of the other sums."""


class CappedUsers:
    """Σ_l w_l w_lᵀ / k_l, Σ_l w_l / k_l and Σ_l 1 / k_l over capped users, gathered block by block."""

    def __init__(self, n_coordinates: int) -> None:
        self.weighted = np.zeros(n_coordinates)
        self.inverse_counts = 0.0
        self._outer = np.zeros((n_coordinates, n_coordinates))
        self._waiting: list[Floats] = []

    def add(self, users: Floats, counts: Floats) -> None:
        """Add w_l, [user, coordinate], and k_l."""
        inverse = 1 / counts
        self.weighted += inverse @ users
        self.inverse_counts += float(inverse.sum())
        self._waiting.append(users * np.sqrt(inverse)[:, None])
        if sum(map(len, self._waiting)) >= _USERS_AT_ONCE:
            self._multiply()

    def form(self, ratio: float) -> Floats:
        """Return the last two terms of the quadratic form."""
        self._multiply()
        return np.outer(self.weighted, self.weighted) / (ratio + self.inverse_counts) - self._outer

    def _multiply(self) -> None:
        """Multiply many users at once, which is faster."""
        if self._waiting:
            users = np.concatenate(self._waiting)
            self._outer += users.T @ users
            self._waiting.clear()
