"""Joint learning without privacy: trace norm, group l1 and task relations. The goal of private joint learning.

Task relations (Zhang and Yeung 2010) minimise the loss + λ/2 tr(W Ω⁻¹ Wᵀ) over models W and relations Ω ⪰ 0 of trace 1.
The best Ω for a W is (WᵀW)^½ / tr (WᵀW)^½, which leaves half the squared trace norm. That is minimised here directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from apportion.errors import InputError
from apportion.published.model_protection import proximal
from apportion.published.model_protection.rows import Floats, JointObjective, LossName, TaskLists, held_out_loss

Structure = Literal["trace norm", "group l1", "relations"]
STRUCTURES: tuple[Structure, ...] = ("trace norm", "group l1", "relations")
_STEPS, _FOLDS = {"squared": 1000, "logistic": 200}, 5

_SHRINK: dict[Structure, Callable[[Floats, float], Floats]] = {
    "trace norm": proximal.shrink_singular_values,
    "group l1": proximal.shrink_features,
    "relations": proximal.shrink_squared_trace,
}


def joint(
    rows: TaskLists, structure: Structure, penalty: float, loss: LossName = "squared", start: Floats | None = None
) -> Floats:
    """Return the models of all tasks under one penalty, one row per task. Not private.

    Args:
        rows: the rows of all tasks.
        structure: what the tasks share.
        penalty: the weight of the penalty.
        loss: squared or logistic.
        start: models to start from; 0 if there are none.
    """
    if structure not in _SHRINK:
        raise InputError(f"Expected a structure of {', '.join(_SHRINK)}, got {structure!r}.", argument="structure")
    shrink = _SHRINK[structure]
    begin = np.zeros((rows.n_tasks, rows.n_features)) if start is None else start
    return proximal.descended(
        JointObjective(rows, loss), lambda point, step: shrink(point, step * penalty), begin, _STEPS[loss]
    )


def chosen_penalty(rows: TaskLists, structure: Structure, loss: LossName = "squared", n_penalties: int = 12) -> float:
    """Return the penalty with the least loss over five folds of all tasks' rows. Not private."""
    tried = penalties(rows, structure, loss, n_penalties)
    errors = np.zeros(n_penalties)
    for kept, held_out in rows.folds(_FOLDS):
        models = None
        for at, penalty in enumerate(tried):
            models = joint(kept, structure, penalty, loss, models)
            errors[at] += float(held_out_loss(held_out, models, loss) @ held_out.sizes)
    return float(tried[int(errors.argmin())])


def penalties(rows: TaskLists, structure: Structure, loss: LossName, n_penalties: int) -> Floats:
    """Return a descending sequence from about the least penalty at which all models are 0."""
    slope = JointObjective(rows, loss).gradient(np.zeros((rows.n_tasks, rows.n_features)))
    if structure == "group l1":
        return np.asarray(np.linalg.norm(slope, axis=0).max() * np.geomspace(0.5, 2e-5, n_penalties))
    largest = float(np.linalg.norm(slope, 2))
    if structure == "trace norm":
        return np.asarray(largest * np.geomspace(0.5, 2e-5, n_penalties))
    fitted = np.linalg.norm(joint(rows, "trace norm", 0.1 * largest, loss), "nuc")
    return np.asarray(largest / max(float(fitted), 1e-12) * np.geomspace(1.0, 1e-5, n_penalties))


def relations_of(models: Floats) -> Floats:
    """Return the relations Ω of tasks that fit their models best: (WᵀW)^½, of trace 1."""
    values, vectors = np.linalg.eigh(models @ models.T)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray(root / max(float(np.trace(root)), 1e-300))
