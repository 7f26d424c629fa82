"""Learning alone: each task by itself, with an l2 or l1 penalty that the task chooses on its own rows.

Nothing leaves a task, so nothing needs protection: this is the baseline for joint learning. A common penalty, as papers
choose it, depends on all tasks' rows; it is included as the stronger baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apportion.published.model_protection.proximal import descended
from apportion.published.model_protection.rows import Floats, JointObjective, LossName, TaskLists, held_out_loss

PENALTIES: tuple[float, ...] = tuple(float(p) for p in np.geomspace(1e-5, 30.0, 26))
LOGISTIC_PENALTIES = (0.1, 1.0, 10.0)
_FOLDS = 5
_LOGISTIC_FOLDS = 3
_STEPS = 150


def alone_l2(rows: TaskLists, loss: LossName = "squared", penalties: Sequence[float] | None = None) -> Floats:
    """Fit ridge or logistic ridge regression to each task; each task chooses its penalty on its own rows.

    With squared loss, the penalty is chosen by the evidence: the likelihood of the targets if models are drawn from the
    prior that corresponds to the penalty. With logistic loss, it is chosen by three folds.
    """
    if loss == "squared":
        tasks = [_Turned(x, y) for x, y in zip(rows.features, rows.targets, strict=True)]
        return np.stack([task.model(max(penalties or PENALTIES, key=task.evidence)) for task in tasks])
    tried = penalties or LOGISTIC_PENALTIES
    if len(tried) == 1:
        return _logistic_ridge(rows, tried[0])
    errors = np.zeros((len(tried), rows.n_tasks))
    for kept, held_out in rows.folds(_LOGISTIC_FOLDS):
        for at, penalty in enumerate(tried):
            errors[at] += held_out_loss(held_out, _logistic_ridge(kept, penalty), loss)
    best = errors.argmin(axis=0)
    fitted = np.stack([_logistic_ridge(rows, penalty) for penalty in tried])
    return np.asarray(fitted[best, np.arange(rows.n_tasks)])


def alone_common(rows: TaskLists, penalties: Sequence[float] = PENALTIES) -> Floats:
    """Fit ridge regression to each task with one common penalty, chosen by all tasks' held-out errors. Not private."""
    tasks = [_Turned(x, y) for x, y in zip(rows.features, rows.targets, strict=True)]
    best = min(penalties, key=lambda penalty: sum(task.left_out_error(penalty) for task in tasks))
    return np.stack([task.model(best) for task in tasks])


def alone_l1(rows: TaskLists, loss: LossName = "squared", n_penalties: int = 6) -> Floats:
    """Fit a lasso to each task, with the penalty of least error over five folds of the task's own rows."""
    largest = np.abs(JointObjective(rows, loss).gradient(np.zeros((rows.n_tasks, rows.n_features)))).max(axis=1)
    parts = np.geomspace(0.5, 0.005, n_penalties)
    errors = np.zeros((n_penalties, rows.n_tasks))
    for kept, held_out in rows.folds(_FOLDS):
        for at, models in enumerate(_l1_path(kept, loss, largest, parts)):
            errors[at] += held_out_loss(held_out, models, loss)
    fitted = np.stack(_l1_path(rows, loss, largest, parts))
    return np.asarray(fitted[errors.argmin(axis=0), np.arange(rows.n_tasks)])


def _l1_path(rows: TaskLists, loss: LossName, largest: Floats, parts: Floats) -> list[Floats]:
    """Return models for descending penalties, each started from the previous one."""
    smooth, models, path = JointObjective(rows, loss), np.zeros((rows.n_tasks, rows.n_features)), []
    for part in parts:
        threshold = part * largest[:, None]

        def shrunk(point: Floats, step: float, threshold: Floats = threshold) -> Floats:
            return np.asarray(np.sign(point) * np.maximum(np.abs(point) - step * threshold, 0.0))

        models = descended(smooth, shrunk, models, _STEPS)
        path.append(models)
    return path


class _Turned:
    """One task's least-squares problem in the coordinates of its singular vectors."""

    def __init__(self, features: Floats, targets: Floats) -> None:
        self._left, self._strengths, self._right = np.linalg.svd(features, full_matrices=False)
        self._seen = self._left.T @ targets
        self._targets = targets

    def model(self, penalty: float) -> Floats:
        """Return the ridge regression model."""
        return np.asarray(self._right.T @ (self._strengths / (self._strengths**2 + penalty) * self._seen))

    def evidence(self, penalty: float) -> float:
        """Return the log likelihood of the targets under models from N(0, σ²/λ I), at the best σ², up to a constant."""
        growth = 1 + self._strengths**2 / penalty
        unseen = float(self._targets @ self._targets - self._seen @ self._seen)
        squares = float((self._seen**2 / growth).sum()) + max(unseen, 0.0)
        return float(-0.5 * len(self._targets) * np.log(max(squares, 1e-300)) - 0.5 * np.log(growth).sum())

    def left_out_error(self, penalty: float) -> float:
        """Return the sum of squared leave-one-out errors: each residual over one minus its leverage."""
        kept = self._strengths**2 / (self._strengths**2 + penalty)
        leverage = np.square(self._left) @ kept
        residuals = self._targets - self._left @ (kept * self._seen)
        return float(np.square(residuals / np.maximum(1 - leverage, 1e-9)).sum())


def _logistic_ridge(rows: TaskLists, penalty: float) -> Floats:
    """Fit logistic regression to every task with the same penalty, all at once."""
    start = np.zeros((rows.n_tasks, rows.n_features))
    return descended(JointObjective(rows, "logistic"), lambda point, step: point / (1 + step * penalty), start, _STEPS)
