"""Convex losses of a score θ·x and a label, with their derivatives in the score.

A gradient in θ is then the derivative times x, so that a user's gradient for one task is clipped by one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError

Floats = NDArray[np.float64]


@runtime_checkable
class Loss(Protocol):
    """A convex loss, one observation at a time: entry k of a result depends on entry k of the arguments alone.

    Beside these two, a loss may have `steepest(reach)`, the largest absolute derivative where neither score nor label
    exceeds `reach`; `coded(labels)`, which checks labels and brings them to the form that the others expect; and
    `prediction(scores)`, which turns scores into what a user wants to know. Without them `gradient_bound` must be
    given, labels are taken as they are, and the prediction is the score.
    """

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """The loss of every observation."""

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """Its derivative in the score."""


@dataclass(frozen=True)
class Squared:
    """(score − label)², as in eq. 4 of the paper: no factor 1/2."""

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """(s − y)²."""
        return np.square(scores - labels)

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """2 (s − y)."""
        return 2 * (scores - labels)

    def steepest(self, reach: float) -> float:
        """Score and label at opposite ends."""
        return 4 * reach


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(−y s)) with y = ±1; labels 0 and −1 both mean "no"."""

    def coded(self, labels: Floats) -> Floats:
        """Labels as −1 and 1."""
        allowed = np.isin(labels, (-1.0, 0.0, 1.0))
        if not allowed.all():
            row = int(np.argmin(allowed))
            raise InputError(f"Expected labels 0 and 1, or -1 and 1, for the logistic loss, got {labels[row]:g}.")
        return np.where(labels > 0, 1.0, -1.0)

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """log(1 + exp(−y s)), without overflow."""
        return np.logaddexp(0.0, -labels * scores)

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """−y / (1 + exp(y s))."""
        return np.asarray(-labels * np.exp(-np.logaddexp(0.0, labels * scores)))

    def steepest(self, reach: float) -> float:
        """1, wherever it is."""
        return 1.0

    def prediction(self, scores: Floats) -> Floats:
        """1 where "yes" is the likelier answer, else 0."""
        return (scores > 0).astype(np.float64)


@dataclass(frozen=True)
class Huber:
    """Squared error up to `threshold` from the label, linear beyond, with a continuous slope."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise InputError(f"Expected a Huber threshold > 0, got {self.threshold}.")

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """(s − y)² near the label, then a line of slope 2·threshold."""
        apart = np.abs(scores - labels)
        near = np.minimum(apart, self.threshold)
        return np.asarray(near * (2 * apart - near))

    def derivative(self, scores: Floats, labels: Floats) -> Floats:
        """2 (s − y), at most 2·threshold."""
        return np.clip(2 * (scores - labels), -2 * self.threshold, 2 * self.threshold)

    def steepest(self, reach: float) -> float:
        """2·threshold, or less where nothing is that far apart."""
        return 2 * min(self.threshold, 2 * reach)


LOSSES: dict[str, Loss] = {"squared": Squared(), "logistic": Logistic(), "huber": Huber()}


def loss_of(choice: Any) -> Loss:
    """The loss of a name, or the given one."""
    if isinstance(choice, str) and choice in LOSSES:
        return LOSSES[choice]
    if isinstance(choice, type) or not isinstance(choice, Loss):
        names = ", ".join(repr(name) for name in LOSSES)
        raise InputError(f"Expected a loss among {names}, or an object with value and derivative, got {choice!r}.")
    return choice
