"""Optimal weights of label-private linear regression: the matrix C of the estimate C y, for a million rows.

Features X [n, d] and who holds which rows are public; labels have variance v around X β. For C X = I the estimate C y
is unbiased, and replacing one user's labels, of range B, moves it by at most B T in the p-norm,
T = max_l Σ_{i ∈ S_l} ‖c_i‖_p: p = 1 for Laplace noise, p = 2 for Gaussian noise. Its total variance with noise is
v ‖C‖² + A T², with the price A = 2 d (B/ε)² (Laplace) or d (B/μ)² (Gaussian). `optimal_label_weights` minimises this
over C, to a stated gap.

There are d n unknowns, but the dual has d² (`dual`). With many users Newton's method climbs it in a few steps
(`newton`), each of which takes some passes over the rows. With few users and a high price the minimum lies near a
corner, as that of a linear program does; for p = 1 the interior-point method takes over then (`interior`). Either
way, every step gives weights that meet C X = I and a lower bound, so the gap is certain whatever happened before.

The problem is that of section 5 of Epasto, Mahdian, Mao, Mirrokni, Ren, "Smoothly Bounding User Contributions in
Differential Privacy" (2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.regression.label_weights.certificate import Certificate
from apportion.regression.label_weights.interior import interior_search
from apportion.regression.label_weights.newton import NewtonSearch
from apportion.regression.label_weights.projection import Floats, user_blocks

Progress = Callable[[int, float], None]

_WORTH_TRYING = 10.0  # factor on the ratio that is easy for Newton's method
_NEWTON_ITERATIONS = 20
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class LabelWeights:
    """Weights for which C X = I, and how good they are.

    Attributes:
        rows: [n, d]; row i is c_i, the column of C that multiplies label i.
        cap: T, the largest sum of the norms of a user's rows.
        objective: v ‖C‖² + A T², the total variance with noise.
        lower_bound: a lower bound on the objective of any weights; nan if none was sought.
        iterations: steps of Newton's and of the interior-point method.
        converged: whether the objective is within the tolerance of the lower bound, if one was sought.
        for_lines: whether they were made for labels whose means are linear in the features.
    """

    rows: Floats
    cap: float
    objective: float
    lower_bound: float
    iterations: int
    converged: bool
    for_lines: bool = False

    @property
    def gap(self) -> float:
        """How far above the best the objective is, at most, as a fraction of the bound."""
        return self.objective / self.lower_bound - 1 if self.objective > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Problem:
    features: Floats
    indptr: NDArray[np.int64]
    variance: float
    price: float
    norm: Literal[1, 2]

    def objective(self, rows: Floats) -> float:
        return self.variance * float(np.vdot(rows, rows)) + self.price * self.cap(rows) ** 2

    def cap(self, rows: Floats) -> float:
        """Return T = max_l Σ_{i ∈ S_l} ‖c_i‖_p."""
        norms = np.abs(rows).sum(axis=1) if self.norm == 1 else np.sqrt(np.einsum("nd,nd->n", rows, rows))
        starts = self.indptr[:-1][np.diff(self.indptr) > 0]
        return float(np.add.reduceat(norms, starts).max()) if len(starts) else 0.0

    def weights(self, rows: Floats, lower_bound: float, iterations: int, tolerance: float) -> LabelWeights:
        """Return weights measured from their rows. The tolerance is that of `converged`."""
        cap, objective = self.cap(rows), self.objective(rows)
        if objective < lower_bound <= objective * (1 + _ROUNDING):
            lower_bound = objective
        converged = bool(np.isnan(lower_bound) or objective <= lower_bound * (1 + tolerance))
        return LabelWeights(rows, cap, objective, lower_bound, iterations, converged)


def optimal_label_weights(
    features: ArrayLike,
    indptr: ArrayLike,
    *,
    variance: float,
    price: float,
    norm: Literal[1, 2],
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    progress: Progress | None = None,
) -> LabelWeights:
    """Minimise v ‖C‖² + A (max_l Σ_{i ∈ S_l} ‖c_i‖_p)² subject to C X = I.

    Args:
        features: X [n, d], of full column rank; public.
        indptr: user l holds rows indptr[l] to indptr[l + 1]; users without rows may be among them. Public.
        variance: v ≥ 0, the variance of a label around its mean; public.
        price: A ≥ 0, the cost of a squared unit of sensitivity.
        norm: p, 1 for Laplace noise and 2 for Gaussian noise.
        tolerance: the largest gap to the best, as a fraction of it.
        max_iterations: when to give up; the best weights so far are returned, with `converged` False.
        progress: called after every step with the number of steps and the gap.

    Returns:
        Weights with their certificate: `objective` and `lower_bound`.

    >>> weights = optimal_label_weights(np.ones((5, 1)), [0, 1, 5], variance=1.0, price=0.25, norm=1)
    >>> np.round(weights.rows.ravel(), 3), round(weights.objective, 4)
    (array([0.333, 0.167, 0.167, 0.167, 0.167]), 0.3333)
    """
    problem = _checked(features, indptr, variance, price, norm)
    if not tolerance > 0:
        raise InputError(f"Expected a tolerance > 0, got {tolerance}.", argument="tolerance")
    if max_iterations < 0:
        raise InputError(f"Expected max_iterations >= 0, got {max_iterations}.", argument="max_iterations")
    if problem.price == 0:
        rows = _least_squares_rows(problem.features)
        return replace(problem.weights(rows, problem.objective(rows), 0, tolerance), for_lines=True)
    certificate = Certificate(problem.variance, problem.price, tolerance, max_iterations, progress)
    rows = _exactly_unbiased(_searched(problem, certificate), problem.features)
    return replace(problem.weights(rows, certificate.bound, certificate.iterations, tolerance), for_lines=True)


def least_squares_weights(
    features: ArrayLike,
    indptr: ArrayLike,
    *,
    variance: float,
    price: float,
    norm: Literal[1, 2],
    kept: NDArray[np.bool_] | None = None,
) -> LabelWeights:
    """Return ordinary least squares weights on all rows, or on those that sample limiting keeps.

    Args:
        features: X [n, d].
        indptr: user l holds rows indptr[l] to indptr[l + 1].
        variance: v ≥ 0, the variance of a label around its mean.
        price: A ≥ 0, the cost of a squared unit of sensitivity.
        norm: p, 1 for Laplace noise and 2 for Gaussian noise.
        kept: which rows are used; the others have weight 0. None keeps all.
    """
    problem = _checked(features, indptr, variance, price, norm)
    n_rows = len(problem.features)
    chosen = np.ones(n_rows, bool) if kept is None else np.asarray(kept)
    if chosen.shape != (n_rows,) or chosen.dtype != np.bool_:
        raise InputError(
            f"Expected kept to be {n_rows} booleans, got shape {chosen.shape} of {chosen.dtype}.", argument="kept"
        )
    rows = np.zeros_like(problem.features)
    rows[chosen] = _least_squares_rows(problem.features[chosen])
    return problem.weights(rows, float("nan"), 0, 0.0)


def variance_of(rows: ArrayLike, indptr: ArrayLike, variance: float, price: float, norm: Literal[1, 2]) -> float:
    """Return the total variance of the noisy estimate, v ‖C‖² + A (max_l Σ_{i ∈ S_l} ‖c_i‖_p)²."""
    problem = _checked(rows, indptr, variance, price, norm)
    return problem.objective(problem.features)


def _searched(problem: _Problem, certificate: Certificate) -> Floats:
    """Return the best rows by Newton's method and, if that is not enough for p = 1, by the interior-point method."""
    n_rows, target = len(problem.features), _inverse_root(problem.features)
    blocks = user_blocks(problem.features, problem.indptr, target)
    newton = NewtonSearch(blocks, target, problem.norm, certificate)
    if problem.norm == 2:
        newton.run()
        return newton.rows(n_rows)
    if certificate.ratio <= _WORTH_TRYING * newton.easy_ratio:
        newton.try_without_stages(_NEWTON_ITERATIONS)
        if certificate.over:
            return newton.rows(n_rows)
    found = interior_search(blocks, target, n_rows, certificate)
    return newton.rows(n_rows) if found is None else found


def _inverse_root(features: Floats) -> Floats:
    """Return R⁻¹ of X = Q R, where Q has orthonormal columns. Refuse features of deficient rank."""
    lengths = np.sqrt(np.einsum("nd,nd->d", features, features))
    if len(features) >= features.shape[1] and (lengths > 0).all():
        root = np.linalg.qr(features / lengths, mode="r")
        singular = np.linalg.svd(root, compute_uv=False)
        if singular[-1] > max(features.shape) * np.finfo(float).eps * singular[0]:
            inverse: Floats = np.linalg.inv(root) / lengths[:, None]
            return inverse
    rank = np.linalg.matrix_rank(features / np.where(lengths > 0, lengths, 1)) if len(features) else 0
    raise InputError(
        f"Expected features of full column rank {features.shape[1]}, got rank {rank}.", argument="features"
    )


def _least_squares_rows(features: Floats) -> Floats:
    inverse = _inverse_root(features)
    return _exactly_unbiased(features @ inverse @ inverse.T, features)


def _exactly_unbiased(rows: Floats, features: Floats) -> Floats:
    """Correct rounding, so that C X = I to the last digits."""
    corrected: Floats = rows @ np.linalg.inv(rows.T @ features).T
    return corrected


def _checked(features: ArrayLike, indptr: ArrayLike, variance: float, price: float, norm: int) -> _Problem:
    """Return the arguments in the form that the search reads, or raise an InputError."""
    rows = np.ascontiguousarray(features, dtype=np.float64)
    starts = np.asarray(indptr)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InputError(
            f"Expected features [rows, columns] with at least one column, got shape {rows.shape}.", argument="features"
        )
    if not np.isfinite(rows).all():
        at = np.argwhere(~np.isfinite(rows))[0]
        raise InputError(
            f"Expected finite features, got {rows[tuple(at)]} in row {at[0]}, column {at[1]}.", argument="features"
        )
    if starts.ndim != 1 or not len(starts) or starts.dtype.kind not in "iu":
        raise InputError(
            f"Expected indptr to be a list of integers, got shape {starts.shape} of {starts.dtype}.", argument="indptr"
        )
    offsets = starts.astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 0).any():
        raise InputError(
            f"Expected indptr that rises from 0 to {len(rows)}, got {offsets[0]} to {offsets[-1]}.", argument="indptr"
        )
    for name, value in (("variance", variance), ("price", price)):
        if not (np.isfinite(value) and value >= 0):
            raise InputError(f"Expected a finite {name} >= 0, got {value}.", argument=name)
    if norm not in (1, 2):
        raise InputError(f"Expected norm 1 or 2, got {norm}.", argument="norm")
    return _Problem(rows, offsets, float(variance), float(price), 1 if norm == 1 else 2)
