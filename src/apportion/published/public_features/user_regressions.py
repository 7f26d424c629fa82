"""The regression that every user solves alone, under a convex loss.

A user's own regression minimises Σ_i ℓ(u · f_i, y_i) + ½ (u − m)ᵀ B (u − m). A Newton step may land far beyond the
minimum if the loss is nearly straight. So it competes with the minimum of a parabola that touches the loss at the
current score and lies above it everywhere: that step cannot raise the loss. Each user takes the better of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.linalg.fixed_order import dot_rows, row_products
from apportion.losses import ConvexLoss

if TYPE_CHECKING:
    from apportion.privacy.contributions import Kernels
    from apportion.recommend.model import FoldIn

Floats = NDArray[np.float64]
_LEAST_CURVATURE = 1e-3  # least curvature of one observation in a user's Newton step, relative to the largest
_STEPS = 6


def majorised(loss: ConvexLoss, scores: Floats, labels: Floats) -> Floats:
    """Return curvatures of parabolas above the loss that touch it at these scores."""
    known = getattr(loss, "majoriser", None)
    return np.full(len(scores), largest_curvature(loss)) if known is None else np.asarray(known(scores, labels), float)


def largest_curvature(loss: ConvexLoss) -> float:
    """Return the largest second derivative of the loss."""
    return loss.curvature(math.inf)


def newton(
    fold_in: FoldIn, kernels: Kernels, users: Users, labels: Floats, loss: ConvexLoss, steps: int = _STEPS
) -> Floats:
    """Solve every user's own penalised regression under the loss, from the prior; private to the user.

    No step raises a user's objective, and all users take the same number of steps, so no user's rows affect another's
    result.
    """
    base = fold_in.base.astype(np.float64)
    prior: Floats = np.linalg.solve(base, fold_in.base_rhs.astype(np.float64)).astype(np.float64)
    own = _OwnLosses(fold_in, users, labels, loss, base, prior)
    solved = np.tile(prior, (users.n_users, 1))
    scores = own.scores(solved)
    values = own.values(solved, scores)
    for _ in range(steps):
        slopes = loss.derivative(scores, labels)
        bends = np.maximum(loss.second_derivative(scores, labels), _LEAST_CURVATURE * largest_curvature(loss))
        before = scores
        for curvatures in (bends, majorised(loss, before, labels)):
            targets = before - slopes / curvatures
            result = kernels.solve_users(users, fold_in.features, targets, fold_in.base, fold_in.base_rhs, curvatures)
            moved = np.asarray(result.cpu() if hasattr(result, "cpu") else result, np.float64)
            there = own.scores(moved)
            reached = own.values(moved, there)
            better = reached < values  # false if the value is not a number
            solved = np.where(better[:, None], moved, solved)
            scores = np.where(better[users.owner], there, scores)
            values = np.where(better, reached, values)
    return solved


@dataclass(frozen=True, repr=False)
class _OwnLosses:
    """What every user minimises, at given solutions; private."""

    fold_in: FoldIn
    users: Users
    labels: Floats
    loss: ConvexLoss
    base: Floats
    prior: Floats

    def scores(self, solved: Floats) -> Floats:
        """Return the scores u · f of every observation."""
        return np.asarray(dot_rows(solved[self.users.owner], self.fold_in.features[self.users.column("tasks")]))

    def values(self, solved: Floats, scores: Floats) -> Floats:
        """Return the losses of a user's rows plus its penalty."""
        losses = self.loss.value(scores, self.labels)
        apart = solved - self.prior
        penalties = 0.5 * dot_rows(row_products(apart, self.base.T), apart)
        return np.asarray(np.bincount(self.users.owner, losses, minlength=len(solved)) + penalties)
