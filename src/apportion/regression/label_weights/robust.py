"""Label weights that stay near least squares if the truth is not linear or depends on the number of rows.

The target is b, the least squares line over all rows: y = X b + r with Xᵀ r = 0, whatever y is. Weights C with C X =
I give C y − b = D r, where D = C − (XᵀX)⁻¹Xᵀ: a bias, fixed for given labels. The weights of `optimal` put a user's
weight on its extreme rows and treat r as white noise, so D r is large on curved data. Here every row of a user has the
same factor,

    C = (XᵀWX)⁻¹ XᵀW,        W diagonal with the factor w_l ≤ 1 of the row's user,

so within a user the weights are those of least squares, and D moves weight only between users. The factors make heavy
users equally sensitive: w_l = min(1, h / load), where the load is the sum of the norms of C's columns over a user's
rows at factor 1.

How large D r may be is taken from a structure of residuals: a part ρ of their variance v is a line of each user's own,
and the rest is white. A part of the users' lines depends on the logarithm of their number of rows (`Structure.bias`).
If that dependence would cost more than the noise, the logarithm is one more column of the regression, whose coefficient
is not released. The choice of h, and of the column, minimises tr Cov(D r) + A T², with A and T as in `optimal`. At h =
∞ these are the weights of least squares, so the choice is never predicted to be worse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from apportion.regression.label_weights.optimal import LabelWeights, least_squares_weights
from apportion.regression.label_weights.projection import Floats

Offsets = NDArray[np.int64]

_CAPS = 14  # number of caps tried, from about the smallest load to the largest
_SMALLEST_LOADS = 0.05  # quantile of users' loads at which caps begin
_ROUNDS = 6  # rounds of factors and the loads that follow from them
_LEAST_SPREAD = 1e-6  # least spread of a column in a regression
_LARGEST_CONDITION = 1e10
_SLOPES = 0.5  # correlation of users' slopes with their size, relative to that of their levels


@dataclass(frozen=True)
class Structure:
    """How residuals vary; released or public numbers.

    Attributes:
        variance: v, the variance of a residual.
        shared: ρ, the part of it that is a line of the user's own.
        along_size: the correlation of users' levels with the logarithm of their number of rows; that of slopes is half
            of it.
    """

    variance: float
    shared: float
    along_size: float


class Design:
    """Features, and the reference for their weights: least squares over all rows.

    Args:
        features: X [n, d], of full column rank, in user-major order; public.
        indptr: user l holds rows indptr[l] to indptr[l + 1]; public.
    """

    def __init__(self, features: Floats, indptr: Offsets) -> None:
        self.features = features
        self.sizes = np.diff(indptr)
        self._filled = indptr[:-1][self.sizes > 0]
        self.indptr = indptr
        self.least_squares = least_squares_weights(features, indptr, variance=0.0, price=0.0, norm=1).rows
        triangle = np.linalg.qr(features, mode="r") / np.sqrt(len(features))
        self.unit: Floats = np.linalg.solve(triangle.T, features.T).T  # orthogonal columns of mean square 1
        self.log_sizes = self._log_sizes()

    def by_user(self, rows: Floats) -> Floats:
        """Return sums over each user's rows. Users without rows are left out."""
        return np.asarray(np.add.reduceat(rows, self._filled, axis=0))

    def bias(self, weights: Floats, structure: Structure) -> Floats:
        """Return Cov(D r) under the structure: a matrix of d by d, 0 for the weights of least squares."""
        return self.sampling(weights - self.least_squares, structure)

    def sampling(self, weights: Floats, structure: Structure) -> Floats:
        """Return Cov(C r) under the structure, for residuals that are drawn afresh: users and their rows."""
        width = weights.shape[1]
        shared = structure.variance * structure.shared
        white = (structure.variance - shared) * (weights.T @ weights)
        lines = np.zeros((width, width))
        along = np.zeros((width, width))
        of_users = self.by_user(self.log_sizes[:, None]) / self.sizes[self.sizes > 0][:, None]
        for column in range(width):
            moved = self.by_user(weights * self.unit[:, column : column + 1])
            lines += moved.T @ moved
            slope = of_users[:, 0] @ moved
            along += np.outer(slope, slope)
        level = self.log_sizes @ weights
        systematic = structure.along_size**2 * (_SLOPES**2 / width * along + np.outer(level, level))
        return np.asarray(white + shared * (lines / width + systematic))

    def _log_sizes(self) -> Floats:
        """Return the logarithm of the size of each row's user, without its linear part in the features.

        It is 0 if nothing else is left.
        """
        logs = np.repeat(np.log(np.maximum(self.sizes, 1)), self.sizes)
        rest = logs - self.unit @ (self.unit.T @ logs) / len(logs)
        spread = float(np.sqrt(np.mean(np.square(rest))))
        return rest / spread if spread > _LEAST_SPREAD else np.zeros_like(rest)


def robust_label_weights(
    design: Design,
    structure: Structure,
    *,
    price: float,
    norm: Literal[1, 2],
    progress: Callable[[int, int], None] | None = None,
) -> LabelWeights:
    """Minimise tr Cov(D r) + A T² over caps on users' loads, with and without a column for the size.

    Args:
        design: features and users; public.
        structure: the structure of residuals; public or released.
        price: A ≥ 0, the cost of a squared unit of sensitivity.
        norm: p, 1 for Laplace noise and 2 for Gaussian noise.
        progress: called after every cap with the number tried and the total.
    """
    best = _judged(design, design.least_squares, structure, price, norm)
    columns = [design.features]
    if design.log_sizes.any():
        columns.append(np.column_stack([design.features, design.log_sizes]))
    first = design.by_user(_norms(design.least_squares, norm))
    caps = np.geomspace(np.quantile(first, _SMALLEST_LOADS), first.max(), _CAPS)
    for tried, cap in enumerate(caps[:-1], 1):
        factors = _factors(design, float(cap), norm)
        for extended in columns:
            rows = _weighted_least_squares(design, extended, factors)
            if rows is not None:
                made = _judged(design, rows, structure, price, norm)
                best = min(best, made, key=lambda each: each.objective)
        if progress is not None:
            progress(tried, _CAPS - 1)
    return best


def _factors(design: Design, cap: float, norm: Literal[1, 2]) -> Floats:
    """Return w_l = min(1, h / load) for users with rows; the loads are those that follow from the factors."""
    factors = np.ones(len(design.by_user(design.unit[:, :1])))
    for _ in range(_ROUNDS):
        rows = np.repeat(factors, design.sizes[design.sizes > 0])
        gram = (design.features * rows[:, None]).T @ design.features
        loads = design.by_user(_norms(np.asarray(np.linalg.solve(gram, design.features.T).T, np.float64), norm))
        factors = np.minimum(1.0, cap / np.maximum(loads, np.finfo(np.float64).tiny))
        factors = factors / factors.max()
    return factors


def _weighted_least_squares(design: Design, extended: Floats, factors: Floats) -> Floats | None:
    """Return the rows of C for the features, next to the other columns; None if the columns are almost collinear."""
    weighted = extended * np.repeat(factors, design.sizes[design.sizes > 0])[:, None]
    gram = weighted.T @ extended
    scales = np.sqrt(np.diag(gram))
    if not scales.all() or np.linalg.cond(gram / np.outer(scales, scales)) > _LARGEST_CONDITION:
        return None
    width = design.features.shape[1]
    return np.asarray(np.linalg.solve(gram, weighted.T)[:width].T)


def _judged(design: Design, rows: Floats, structure: Structure, price: float, norm: Literal[1, 2]) -> LabelWeights:
    """Return weights with their cost: predicted bias and noise, both squared."""
    cap = float(design.by_user(_norms(rows, norm)).max())
    objective = float(np.trace(design.bias(rows, structure))) + price * cap**2
    return LabelWeights(np.ascontiguousarray(rows), cap, objective, float("nan"), 0, True)


def _norms(rows: Floats, norm: Literal[1, 2]) -> Floats:
    return np.asarray(np.abs(rows).sum(axis=1) if norm == 1 else np.sqrt(np.square(rows).sum(axis=1)))
