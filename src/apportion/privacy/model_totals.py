"""The sum of the tasks' models, each clipped to a norm: what model averaging releases."""

from __future__ import annotations

import numpy as np

from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import ObservationRows, Rows
from apportion.privacy.neighbours import ADD_REMOVE_TASK


def model_total(models: Rows) -> BoundedSum:
    """Seal Σ_i w_i over tasks, one model per row. Adding or removing a task moves it by the bound on a model's norm."""
    if isinstance(models, ObservationRows):
        raise InputError("Expected one model per task, got rows of observations.", argument="models")
    value = np.asarray(models._values, np.float64).sum(axis=0)
    return BoundedSum(_KEY, value, models.norm, f"model norm {models.norm:g}", neighbours=ADD_REMOVE_TASK)
