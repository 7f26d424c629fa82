"""Each user's tasks must be in ascending order without repeats: two rows for one task would exceed the user's norm."""

from __future__ import annotations

import numpy as np

from apportion.errors import InputError
from apportion.privacy.contributions.base import UserRun

_ROWS_AT_ONCE = 1 << 20  # a batch small enough to need no memory worth mentioning


def require_distinct_tasks(users: UserRun, wanted: bool = True) -> None:
    """Refuse users who have a task twice, if sums by task are wanted."""
    if wanted:
        users.remembered(require_distinct_tasks, _check)


def _check(users: UserRun) -> None:
    for run in users.runs(_ROWS_AT_ONCE):
        starts = np.zeros(run.n_rows + 1, bool)
        starts[run.indptr] = True
        if not (starts[1:-1] | (np.diff(run.column("tasks")) > 0)).all():
            raise InputError("Expected the tasks of every user in ascending order, each once.", argument=None)
