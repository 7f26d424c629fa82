"""Convex losses of a score θ·x and a label, with their derivatives with respect to the score.

The gradient with respect to θ is the derivative times x, so one number clips a user's gradient for one task. Every
estimator takes its losses from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg.fixed_exp import fixed_logistic

__all__ = ["ConvexLoss", "Huber", "Logistic", "Loss", "PseudoHuber", "SmoothedHinge", "Squared", "loss_of"]

Floats = NDArray[np.float64]


@runtime_checkable
class Loss(Protocol):
    """A convex loss, element by element: entry k of a result depends only on entry k of the arguments.

    A loss may also have these methods: `steepest(reach)`, the largest absolute derivative where neither score nor label
    exceeds `reach`; `curvature(reach)`, the largest second derivative there; `coded(labels)`, which checks labels and
    converts them to the form that the others expect; `prediction(scores)`, which converts scores to predictions; and
    `probability(scores)`, the probability of a "yes". Without them, `gradient_bound` and a step size must be given,
    labels are used unchanged, the prediction is the score, and there are no probabilities.
    """

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """Return the loss of every observation."""

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return its derivative with respect to the score."""


class ConvexLoss(Loss, Protocol):
    """A loss that is twice differentiable, with both derivatives bounded everywhere.

    It may also have `majoriser(scores, labels)`: the curvatures of parabolas that touch the loss at these scores and
    lie above it everywhere. And `of_residuals = True` says that it depends only on s − y, so labels may be centred.
    """

    def second_derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return its second derivative with respect to the score."""

    def steepest(self, reach: float) -> float:
        """Return the largest absolute derivative where neither score nor label exceeds `reach`; finite at infinity."""

    def curvature(self, reach: float) -> float:
        """Return the largest second derivative there; finite at infinity."""


@dataclass(frozen=True)
class Squared:
    """(score − label)², as in eq. 4 of the paper, without a factor 1/2."""

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """Return (s − y)²."""
        return np.square(scores - labels)

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return 2 (s − y)."""
        return 2 * (scores - labels)

    def steepest(self, reach: float) -> float:
        """Return the slope with score and label at opposite ends."""
        return 4 * reach

    def curvature(self, reach: float) -> float:
        """Return 2, which holds everywhere."""
        return 2.0


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(−y s)) with y = ±1: a label above 0 means "yes", any other "no"."""

    def coded(self, labels: Floats) -> Floats:
        """Return labels as −1 and 1."""
        return _as_signs(labels, "the logistic loss")

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """Return log(1 + exp(−y s)), without overflow."""
        return np.logaddexp(0.0, -np.where(labels > 0, scores, -scores))

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return −y / (1 + exp(y s))."""
        signs = np.where(labels > 0, 1.0, -1.0)
        return np.asarray(-signs * fixed_logistic(-signs * scores))

    def second_derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return the probability of "yes" times that of "no"."""
        likely = self.probability(scores)
        return np.asarray(likely * (1 - likely))

    def majoriser(self, scores: Floats, labels: Floats) -> Floats:
        """Return tanh(s/2)/(2s), which is 1/4 at 0."""
        sizes = np.maximum(np.abs(scores), 1e-6)
        return np.asarray(np.tanh(sizes / 2) / (2 * sizes))

    def steepest(self, reach: float) -> float:
        """Return 1, which holds everywhere."""
        return 1.0

    def curvature(self, reach: float) -> float:
        """Return 1/4, its value at a score of 0."""
        return 0.25

    def prediction(self, scores: Floats) -> Floats:
        """Return 1 if "yes" is the likelier answer, otherwise 0."""
        return (scores > 0).astype(np.float64)

    def probability(self, scores: Floats) -> Floats:
        """Return 1 / (1 + exp(−s)), without overflow."""
        return fixed_logistic(scores)


@dataclass(frozen=True)
class Huber:
    """Squared error up to `threshold` from the label, linear beyond, with a continuous slope."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise InputError(f"Expected a Huber threshold > 0, got {self.threshold}.", argument="threshold")

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """Return (s − y)² near the label, then a line of slope 2·threshold."""
        apart = np.abs(scores - labels)
        near = np.minimum(apart, self.threshold)
        return np.asarray(near * (2 * apart - near))

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return 2 (s − y), at most 2·threshold."""
        return np.clip(2 * (scores - labels), -2 * self.threshold, 2 * self.threshold)

    def steepest(self, reach: float) -> float:
        """Return 2·threshold, or less if no residual is that large."""
        return 2 * min(self.threshold, 2 * reach)

    def curvature(self, reach: float) -> float:
        """Return 2, its value near the label."""
        return 2.0


@dataclass(frozen=True)
class PseudoHuber:
    """h² (√(1 + ((s − y)/h)²) − 1): squared error near the label, linear far from it.

    Attributes:
        threshold: h.
    """

    threshold: float = 1.0
    of_residuals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise InputError(f"Expected a threshold > 0, got {self.threshold}.", argument="threshold")

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """Return the loss."""
        return np.asarray(self.threshold**2 * (self._root(scores, labels) - 1))

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return (s − y)/√(1 + ((s − y)/h)²)."""
        return np.asarray((scores - labels) / self._root(scores, labels))

    def second_derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return (1 + ((s − y)/h)²)^(−3/2)."""
        return np.asarray(self._root(scores, labels) ** -3)

    def majoriser(self, scores: Floats, labels: Floats) -> Floats:
        """Return the derivative over s − y: (1 + ((s − y)/h)²)^(−1/2)."""
        return np.asarray(1 / self._root(scores, labels))

    def steepest(self, reach: float) -> float:
        """Return h, the slope far from the label, or less if no residual is that large."""
        return self.threshold if np.isinf(reach) else 2 * reach / float(np.hypot(1.0, 2 * reach / self.threshold))

    def curvature(self, reach: float) -> float:
        """Return 1, its value at the label."""
        return 1.0

    def _root(self, scores: Floats, labels: Floats) -> Floats:
        return np.asarray(np.sqrt(1 + np.square((scores - labels) / self.threshold)))


@dataclass(frozen=True)
class SmoothedHinge:
    """max(0, 1 − y s) with y = ±1, its corner smoothed by a parabola of the given width; 0 and −1 both mean "no".

    It is at most width/2 below the hinge loss, and convex with a continuous slope.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.width) and self.width > 0):
            raise InputError(f"Expected a finite width > 0 of the smoothed hinge, got {self.width}.", argument="width")

    def coded(self, labels: Floats) -> Floats:
        """Return labels as −1 and 1."""
        return _as_signs(labels, "the smoothed hinge loss")

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """Return, with a = 1 − y s: 0 for a < 0, a²/(2·width) up to the width, a − width/2 beyond."""
        short = np.maximum(1 - labels * scores, 0.0)
        near = np.minimum(short, self.width)
        return np.asarray(near * (short - near / 2) / self.width)

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Return −y a/width, with a/width clipped to [0, 1]."""
        return np.asarray(-labels * np.clip((1 - labels * scores) / self.width, 0.0, 1.0))

    def steepest(self, reach: float) -> float:
        """Return 1, or less if no margin is missed by the width."""
        return min(1.0, (1 + reach) / self.width)

    def curvature(self, reach: float) -> float:
        """Return 1/width, its value on the parabola."""
        return 1 / self.width

    def prediction(self, scores: Floats) -> Floats:
        """Return 1 if the score says "yes", otherwise 0."""
        return (scores > 0).astype(np.float64)


LOSSES: dict[str, Loss] = {
    "squared": Squared(),
    "logistic": Logistic(),
    "huber": Huber(),
    "smoothed-hinge": SmoothedHinge(),
}


def loss_of(choice: Any) -> Loss:
    """Return the loss with a given name; return a loss object unchanged."""
    if isinstance(choice, str) and choice in LOSSES:
        return LOSSES[choice]
    if isinstance(choice, type) or not isinstance(choice, Loss):
        names = ", ".join(repr(name) for name in LOSSES)
        raise InputError(
            f"Expected a loss among {names}, or an object with value and derivative, got {choice!r}.", argument="loss"
        )
    if not np.isfinite(choice.derivative(np.zeros(2), np.array([-1.0, 1.0]))).all():  # evaluated at public points
        raise InputError(
            f"Expected finite derivatives of the loss, got NaN or infinity from {choice!r}.", argument="loss"
        )
    return choice


def _as_signs(labels: Floats, loss: str) -> Floats:
    allowed = np.isin(labels, (-1.0, 0.0, 1.0))
    if not allowed.all():
        row = int(np.argmin(allowed))
        raise InputError(f"Expected labels 0 and 1, or -1 and 1, for {loss}, got {labels[row]:g}.", argument="y")
    return np.where(labels > 0, 1.0, -1.0)
