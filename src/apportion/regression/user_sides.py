"""What users compute from their own rows and released parameters: the parts of contributions.

Products of rows are added column by column, in one order on every processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.linalg.fixed_order import dot_rows
from apportion.losses import Loss
from apportion.privacy import Labels, ObservationRows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClippedFeatures:
    """The rows of a column, scaled down to a norm."""

    norm: float
    column: str = "features"

    def __call__(self, users: Users, kernels: Any) -> ObservationRows:
        """Return the rows of these users."""
        return ObservationRows.clipped(users.column(self.column), self.norm)


@dataclass(frozen=True, eq=False)
class ClippedLabels:
    """The numbers of a column, clipped to a bound."""

    bound: float
    column: str = "labels"

    def __call__(self, users: Users, kernels: Any) -> Labels:
        """Return the numbers of these users."""
        return Labels.clipped(users.column(self.column), self.bound)


def coded_labels(loss: Loss, labels: Floats) -> Floats:
    """Return labels as the loss codes them. Refuse labels without a meaning, before anything is spent."""
    coded: Any = getattr(loss, "coded", None)
    return labels if coded is None else np.asarray(coded(labels))


@dataclass(frozen=True, eq=False)
class CodedLabels:
    """Codes the labels of users who are not in memory, when their rows are read."""

    loss: Loss

    def __call__(self, users: Users) -> Users:
        """Return the users with coded labels."""
        return users.with_columns(labels=coded_labels(self.loss, users.column("labels")))


@dataclass(frozen=True, eq=False)
class Design:
    """Rows as a loss sees them: features scaled down to a norm, followed by a constant if there is an intercept.

    Attributes:
        feature_norm: the norm to which features are scaled down; 0 leaves them out, so that only the constant remains.
        constant: the last entry of every row; 0 for none.
        loss: the loss, which codes the labels.
    """

    feature_norm: float
    loss: Loss
    constant: float = 0.0

    def rows(self, users: Users) -> tuple[Floats, Floats, Floats]:
        """Return features, their lengths, and coded labels. They are kept, because every step needs them again."""
        made: tuple[Floats, Floats, Floats] = users.remembered(self, self._made)
        return made

    def _made(self, users: Users) -> tuple[Floats, Floats, Floats]:
        x = users.column("features")
        if not self.feature_norm:
            x = x[:, :0]
        with np.errstate(over="ignore"):  # a row of infinite length becomes zero
            lengths = np.sqrt(dot_rows(x, x))
            x = x * (self.feature_norm / np.maximum(lengths, self.feature_norm or 1.0))[:, None]
        if self.constant:
            x = np.column_stack([x, np.full(len(x), self.constant)])
        return x, np.sqrt(dot_rows(x, x)), coded_labels(self.loss, users.column("labels"))


@dataclass(frozen=True, eq=False)
class Directions:
    """The direction x/‖x‖ of every row."""

    design: Design
    norm: float = 1.0

    def __call__(self, users: Users, kernels: Any) -> ObservationRows:
        """Return the directions of these users' rows. They are kept, because every step needs them again."""
        made: ObservationRows = users.remembered(self, self._made)
        return made

    def _made(self, users: Users) -> ObservationRows:
        return ObservationRows.scaled(self.design.rows(users)[0], self.norm)


@dataclass(frozen=True, eq=False)
class Slopes:
    """ℓ'(θ · x, y) ‖x‖: the gradient's signed length along x/‖x‖, clipped.

    Attributes:
        design: the rows.
        theta: parameters, one row for each task or part of the users.
        bound: the bound to which slopes are clipped.
        by_task: whether a row's parameters are its task's; otherwise those of its user's part, or the only ones.
    """

    design: Design
    theta: Floats
    bound: float
    by_task: bool

    def __call__(self, users: Users, kernels: Any) -> Labels:
        """Return the slopes of these users' rows."""
        features, lengths, labels = self.design.rows(users)
        scores = dot_rows(features, parameters_of(self.theta, users, by_task=self.by_task))
        slopes = self.design.loss.derivative(scores, labels) * lengths
        return Labels.clipped(np.nan_to_num(slopes), self.bound)  # a refusal would reveal something about one row


def parameters_of(theta: Floats, users: Users, *, by_task: bool) -> Floats:
    """Return the parameters of every row: those of its task, of its user's part, or the only ones."""
    if by_task:
        return np.asarray(theta[users.column("tasks")])
    if len(theta) == 1:
        return np.broadcast_to(theta[0], (users.n_rows, theta.shape[1]))
    return np.asarray(theta[np.repeat(users.of_user("part"), users.sizes)])
