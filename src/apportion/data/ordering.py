"""Sorting observations: user-major order, and the search for repeated pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError
from apportion.linalg.orders import stable_order, take


def sort_user_major(columns: list[NDArray[Any] | None], user_ids: Vocabulary, task_ids: Vocabulary) -> None:
    """Sort the rows of all columns, in place in the list, one column after another, so that only one is held twice."""
    users, tasks = columns[0], columns[1]
    assert users is not None
    assert tasks is not None
    order = user_major_order(users, tasks, len(user_ids), len(task_ids))
    del users, tasks
    for position, column in enumerate(columns):
        if column is not None:
            columns[position] = column.copy() if order is None else take(column, order)
        if position == 1:
            refuse_repeated_pairs(columns[0], columns[1], order, user_ids, task_ids)  # type: ignore[arg-type]


def user_major_order(
    users: NDArray[np.int32], tasks: NDArray[np.int32], n_users: int, n_tasks: int
) -> NDArray[np.int64] | None:
    """Return the stable order by user and then task; `None` if the rows are already in that order."""
    ordered = users[1:] > users[:-1]
    ordered |= (users[1:] == users[:-1]) & (tasks[1:] >= tasks[:-1])
    if bool(ordered.all()):
        return None
    del ordered
    return stable_order(users, n_users, tasks, n_tasks)


def refuse_repeated_pairs(
    users: NDArray[np.int32],
    tasks: NDArray[np.int32],
    order: NDArray[np.int64] | None,
    user_ids: Vocabulary,
    task_ids: Vocabulary,
) -> None:
    """Refuse a row that repeats the user and the task of an earlier row, and name it.

    Args:
        users: codes, sorted.
        tasks: codes, sorted within each user.
        order: the original rows, with equal pairs in the order of their rows; None if the order is the same.
        user_ids: what codes of users stand for.
        task_ids: what codes of tasks stand for.
    """
    repeats = (users[1:] == users[:-1]) & (tasks[1:] == tasks[:-1])
    if not repeats.any():
        return
    positions = np.flatnonzero(repeats) + 1
    rows = positions if order is None else order[positions]
    row, place = int(rows.min()), int(positions[rows.argmin()])
    earlier = place - 1 if order is None else int(order[place - 1])  # the repetition comes second
    user_id, task_id = user_ids.id_of(int(users[place])), task_ids.id_of(int(tasks[place]))
    raise InputError(
        f"User {user_id!r} has {task_ids.name} {task_id!r} in row {earlier + 1} "
        f"and again in row {row + 1} (counting data rows from 1); expected each pair once.",
        argument=None,
    )


def refuse_other_order(users: NDArray[np.int32], tasks: NDArray[np.int32]) -> None:
    """Refuse rows that are not sorted by user and task, or that hold a pair twice."""
    ascending = (users[1:] > users[:-1]) | ((users[1:] == users[:-1]) & (tasks[1:] > tasks[:-1]))
    if not ascending.all():
        row = int(np.argmin(ascending)) + 2
        raise InputError(
            f"Expected rows sorted by user and task, each pair once, got row {row} out of order.", argument=None
        )
