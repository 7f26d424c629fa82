"""The sum of the tasks' models themselves, each clipped to a norm: what averaging releases."""

from __future__ import annotations

import numpy as np

from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import ObservationRows, Rows
from apportion.privacy.neighbours import ADD_REMOVE_TASK


def model_total(models: Rows) -> BoundedSum:
    """Σ_i w_i over tasks, one model a row: adding or removing a task moves it by the bound of a model's norm."""
    if isinstance(models, ObservationRows):
        raise InputError("Expected one model per task, got rows of observations.")
    value = np.asarray(models._values, np.float64).sum(axis=0)
    return BoundedSum(_KEY, value, models.norm, f"model norm {models.norm:g}", neighbours=ADD_REMOVE_TASK)
