"""A user's tasks are in ascending order, each once: two rows for one task would add up before their norm is taken."""

from __future__ import annotations

import numpy as np

from apportion.errors import InputError
from apportion.privacy.contributions.base import UserRun


def require_distinct_tasks(users: UserRun, wanted: bool = True) -> None:
    """Refuse users with a task twice, where sums by task are wanted of them."""
    if wanted:
        users.remembered(require_distinct_tasks, _check)


def _check(users: UserRun) -> None:
    starts = np.zeros(users.n_rows + 1, bool)
    starts[users.indptr] = True
    if not (starts[1:-1] | (np.diff(users.column("tasks")) > 0)).all():
        raise InputError("Expected the tasks of every user in ascending order, each once.")
