"""The input of every baseline: the rows of each task, and a smooth loss over all tasks with its gradient.

Losses are sums over rows: half the squared error, or the logistic loss of labels 0 and 1. Models have one row per task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.losses import Logistic, Loss, Squared

Floats = NDArray[np.float64]
LossName = Literal["squared", "logistic"]
_LOSSES: dict[LossName, Loss] = {"squared": Squared(), "logistic": Logistic()}


@dataclass(frozen=True)
class TaskLists:
    """The rows of each task: features [n_i, d] and targets [n_i]."""

    features: Sequence[Floats]
    targets: Sequence[Floats]

    def __post_init__(self) -> None:
        if not len(self.features) or len(self.features) != len(self.targets):
            asked = f"{len(self.features)} and {len(self.targets)}"
            raise InputError(
                f"Expected as many arrays of features as of targets, and at least one, got {asked}.", argument="targets"
            )
        widths = {each.shape[1] for each in self.features}
        if len(widths) != 1:
            raise InputError(
                f"Expected the same features in every task, got {sorted(widths)} columns.", argument="features"
            )

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.features)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.features[0].shape[1])

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of rows of each task."""
        return np.array([len(each) for each in self.targets])

    @cached_property
    def grams(self) -> Floats:
        """XᵀX of every task."""
        return np.stack([each.T @ each for each in self.features])

    @cached_property
    def moments(self) -> Floats:
        """Xᵀy of every task."""
        return np.stack([each.T @ target for each, target in zip(self.features, self.targets, strict=True)])

    def folds(self, n_folds: int) -> Iterator[tuple[TaskLists, TaskLists]]:
        """Yield training and held-out rows. The rows of every task are dealt to the folds in turn."""
        for fold in range(n_folds):
            kept = [np.arange(size) % n_folds != fold for size in self.sizes]
            yield self._where(kept), self._where([~each for each in kept])

    def first(self, n_tasks: int) -> TaskLists:
        """Return the first tasks."""
        return TaskLists(self.features[:n_tasks], self.targets[:n_tasks])

    def _where(self, chosen: Sequence[NDArray[np.bool_]]) -> TaskLists:
        return TaskLists(
            [each[some] for each, some in zip(self.features, chosen, strict=True)],
            [each[some] for each, some in zip(self.targets, chosen, strict=True)],
        )

    def predicted(self, models: Floats) -> list[Floats]:
        """Return scores of each task's rows by its own model."""
        return [each @ model for each, model in zip(self.features, models, strict=True)]


class JointObjective:
    """The loss of all tasks together, as the proximal methods need it."""

    def __init__(self, rows: TaskLists, loss: LossName) -> None:
        if loss not in _LOSSES:
            raise InputError(f"Expected a loss of squared or logistic, got {loss!r}.", argument="loss")
        self._rows, self._loss = rows, loss
        largest = float(np.linalg.eigvalsh(rows.grams)[:, -1].max())
        self.curvature = largest if loss == "squared" else largest / 4
        if loss == "logistic":
            self._padded = _padded(rows)

    def gradient(self, models: Floats) -> Floats:
        """Return the gradient of the loss, one row per task."""
        if self._loss == "squared":
            return np.asarray((self._rows.grams @ models[:, :, None])[:, :, 0] - self._rows.moments)
        features, targets, held = self._padded
        margins = (features @ models[:, :, None])[:, :, 0]
        return np.asarray(((_LOSSES["logistic"].derivative(margins, targets) * held)[:, None, :] @ features)[:, 0])


def held_out_loss(rows: TaskLists, models: Floats, loss: LossName) -> Floats:
    """Return the mean loss of each task's rows under its own model."""
    pairs = zip(rows.predicted(models), rows.targets, strict=True)
    return np.array([_LOSSES[loss].value(scores, targets).mean() for scores, targets in pairs], np.float64)


def _padded(rows: TaskLists) -> tuple[Floats, Floats, Floats]:
    """Return rows, labels and a mask, every task padded to the longest."""
    longest = int(rows.sizes.max())
    features = np.zeros((rows.n_tasks, longest, rows.n_features))
    targets, held = np.zeros((rows.n_tasks, longest)), np.zeros((rows.n_tasks, longest))
    for k, size in enumerate(rows.sizes):
        features[k, :size], targets[k, :size], held[k, :size] = rows.features[k], rows.targets[k], 1.0
    return features, targets, held
