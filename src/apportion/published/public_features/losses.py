"""Convex losses of a score and a label, and the regression that every user solves under one, alone.

A user's own regression minimises Σ_i ℓ(u · f_i, y_i) + ½ (u − m)ᵀ B (u − m). A step of Newton's method may land far
beyond the minimum where the loss is nearly straight, so it competes with the minimum of a parabola that lies above the
loss everywhere and touches it at the present score, which cannot go up; each user takes the better of the two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.errors import InputError
from apportion.linalg.fixed_order import dot_rows, row_products

if TYPE_CHECKING:
    from apportion.privacy.contributions import Kernels
    from apportion.recommend.model import FoldIn

Floats = NDArray[np.float64]
_LEAST_CURVATURE = 1e-3  # of one observation in a user's Newton step, relative to the most
_STEPS = 6


class ConvexLoss(Protocol):
    """A convex loss of score and label, one observation at a time, with two bounded derivatives in the score.

    It may have a further method `majoriser(scores, labels)`: the curvatures of parabolas that touch the loss at these
    scores and lie above it everywhere. Without it they are `most_curved`, which is safe and slow. And it may say with
    `of_residuals = True` that it depends on s − y alone, so that labels may be centred.
    """

    @property
    def steepest(self) -> float:
        """A bound on the absolute first derivative; larger ones are clipped to it."""

    @property
    def most_curved(self) -> float:
        """A bound on the second derivative; larger ones are clipped to it."""

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """The loss."""

    def slope(self, scores: Floats, labels: Floats) -> Floats:
        """Its first derivative in the score."""

    def curvature(self, scores: Floats, labels: Floats) -> Floats:
        """Its second derivative in the score."""


@dataclass(frozen=True)
class LogisticLoss:
    """log(1 + exp(−y s)): a label above 0 means yes, any other no.

    Attributes:
        steepest: slopes beyond this are clipped; 1 clips none.
    """

    steepest: float = 1.0
    most_curved: float = 0.25

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """log(1 + exp(−y s)), without overflow."""
        return np.logaddexp(0.0, -np.where(labels > 0, scores, -scores))

    def slope(self, scores: Floats, labels: Floats) -> Floats:
        """The probability of yes, less 1 where the answer is yes."""
        return probability(scores) - (labels > 0)

    def curvature(self, scores: Floats, labels: Floats) -> Floats:
        """The probability of yes times that of no."""
        likely = probability(scores)
        return np.asarray(likely * (1 - likely))

    def majoriser(self, scores: Floats, labels: Floats) -> Floats:
        """tanh(s/2)/(2s), which is 1/4 at 0."""
        sizes = np.maximum(np.abs(scores), 1e-6)
        return np.asarray(np.tanh(sizes / 2) / (2 * sizes))


@dataclass(frozen=True)
class PseudoHuberLoss:
    """h² (√(1 + ((s − y)/h)²) − 1): squared error near the label, linear far from it.

    Attributes:
        threshold: h.
    """

    threshold: float = 1.0
    of_residuals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise InputError(f"Expected a threshold > 0, got {self.threshold}.")

    @property
    def steepest(self) -> float:
        """h, far from the label."""
        return self.threshold

    @property
    def most_curved(self) -> float:
        """1, at the label."""
        return 1.0

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """The loss."""
        return np.asarray(self.threshold**2 * (self._root(scores, labels) - 1))

    def slope(self, scores: Floats, labels: Floats) -> Floats:
        """(s − y)/√(1 + ((s − y)/h)²)."""
        return np.asarray((scores - labels) / self._root(scores, labels))

    def curvature(self, scores: Floats, labels: Floats) -> Floats:
        """(1 + ((s − y)/h)²)^(−3/2)."""
        return np.asarray(self._root(scores, labels) ** -3)

    def majoriser(self, scores: Floats, labels: Floats) -> Floats:
        """The slope over s − y: (1 + ((s − y)/h)²)^(−1/2)."""
        return np.asarray(1 / self._root(scores, labels))

    def _root(self, scores: Floats, labels: Floats) -> Floats:
        return np.asarray(np.sqrt(1 + np.square((scores - labels) / self.threshold)))


_STORED: dict[str, type[Any]] = {"LogisticLoss": LogisticLoss, "PseudoHuberLoss": PseudoHuberLoss}


def described(loss: ConvexLoss | str) -> dict[str, Any]:
    """A loss as numbers and text, for storage; of one that is not of this module only its name."""
    name = loss if isinstance(loss, str) else type(loss).__name__
    numbers = asdict(loss) if isinstance(loss, LogisticLoss | PseudoHuberLoss) and name in _STORED else {}
    return {"part": name, **numbers}


def known_loss(about: dict[str, Any]) -> ConvexLoss | str:
    """The loss that was described; the name of one that is not of this module."""
    numbers = {name: value for name, value in about.items() if name != "part"}
    if about["part"] not in _STORED or not numbers:
        return str(about["part"])
    loss: ConvexLoss = _STORED[about["part"]](**numbers)
    return loss


def probability(scores: Floats) -> Floats:
    """1 / (1 + exp(−s)), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -np.asarray(scores, np.float64))))


def majorised(loss: ConvexLoss, scores: Floats, labels: Floats) -> Floats:
    """Curvatures of parabolas above the loss that touch it at these scores."""
    known = getattr(loss, "majoriser", None)
    return np.full(len(scores), loss.most_curved) if known is None else np.asarray(known(scores, labels), np.float64)


def newton(
    fold_in: FoldIn, kernels: Kernels, users: Users, labels: Floats, loss: ConvexLoss, steps: int = _STEPS
) -> Floats:
    """Every user's own penalised regression under the loss, from the prior; private to the user.

    No step raises a user's objective, and all users take the same number of steps, so that nobody's rows change what
    another finds.
    """
    base = fold_in.base.astype(np.float64)
    prior: Floats = np.linalg.solve(base, fold_in.base_rhs.astype(np.float64)).astype(np.float64)
    own = _OwnLosses(fold_in, users, labels, loss, base, prior)
    solved = np.tile(prior, (users.n_users, 1))
    scores = own.scores(solved)
    values = own.values(solved, scores)
    for _ in range(steps):
        slopes = loss.slope(scores, labels)
        bends = np.maximum(loss.curvature(scores, labels), _LEAST_CURVATURE * loss.most_curved)
        before = scores
        for curvatures in (bends, majorised(loss, before, labels)):
            targets = before - slopes / curvatures
            found = kernels.solve_users(users, fold_in.features, targets, fold_in.base, fold_in.base_rhs, curvatures)
            moved = np.asarray(found.cpu() if hasattr(found, "cpu") else found, np.float64)
            there = own.scores(moved)
            reached = own.values(moved, there)
            better = reached < values  # never where it is not a number
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
        """The scores u · f of every observation."""
        return np.asarray(dot_rows(solved[self.users.owner], self.fold_in.features[self.users.column("tasks")]))

    def values(self, solved: Floats, scores: Floats) -> Floats:
        """Losses of a user's rows and its penalty."""
        losses = self.loss.value(scores, self.labels)
        apart = solved - self.prior
        penalties = 0.5 * dot_rows(row_products(apart, self.base.T), apart)
        return np.asarray(np.bincount(self.users.owner, losses, minlength=len(solved)) + penalties)
