"""Each user's tasks must be in ascending order without repeats: two rows for one task would exceed the user's norm."""

from __future__ import annotations

from apportion.errors import InputError
from apportion.linalg.task_counts import tasks_in_order
from apportion.privacy.contributions.base import UserRun

_ROWS_AT_ONCE = 1 << 22  # a batch small enough to need no memory worth mentioning


def require_distinct_tasks(users: UserRun, wanted: bool = True) -> None:
    """Refuse users who have a task twice, if sums by task are wanted."""
    if wanted:
        users.remembered(require_distinct_tasks, _check)


def _check(users: UserRun) -> None:
    for run in users.runs(_ROWS_AT_ONCE):
        if not tasks_in_order(run.indptr, run.column("tasks")):
            raise InputError("Expected the tasks of every user in ascending order, each once.", argument=None)
