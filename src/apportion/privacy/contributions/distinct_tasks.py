"""Each user's tasks must be in ascending order without repeats: two rows for one task would exceed the user's norm."""

from __future__ import annotations

import numpy as np

from apportion.errors import InputError
from apportion.privacy.contributions.base import UserRun


def require_distinct_tasks(users: UserRun, wanted: bool = True) -> None:
    """Refuse users who have a task twice, if sums by task are wanted."""
    if wanted:
        users.remembered(require_distinct_tasks, _check)


def _check(users: UserRun) -> None:
    starts = np.zeros(users.n_rows + 1, bool)
    starts[users.indptr] = True
    if not (starts[1:-1] | (np.diff(users.column("tasks")) > 0)).all():
        raise InputError("Expected every user's tasks in ascending order, each once.")
