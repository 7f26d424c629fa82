"""Sorting observations: user-major order, the order by task, and the search for repeated pairs.

Codes are small integers, so the order by task is a radix sort in digits of 16 bits (NumPy's stable sort of
uint16 is one), linear in the number of observations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError

_DIGIT_BITS = 16


def user_major_order(users: NDArray[np.int32], tasks: NDArray[np.int32], n_tasks: int) -> NDArray[np.int64] | None:
    """Return the stable order by user and then task; `None` if the rows are already in that order."""
    key = users.astype(np.int64)
    key *= max(n_tasks, 1)
    key += tasks
    if bool((key[1:] >= key[:-1]).all()):
        return None
    return np.argsort(key, kind="stable")


def stable_order(codes: NDArray[np.int32], n_codes: int) -> NDArray[np.int64]:
    """Return the stable order by code, with one radix pass per 16 bits of the largest code."""
    order = np.argsort(codes.astype(np.uint16), kind="stable")  # the cast keeps the low digit
    if n_codes > 1 << _DIGIT_BITS:
        high_digit = (codes[order] >> _DIGIT_BITS).astype(np.uint16)
        order = order[np.argsort(high_digit, kind="stable")]
    return order


def refuse_repeated_pairs(
    users: NDArray[np.int32],
    tasks: NDArray[np.int32],
    order: NDArray[np.int64] | None,
    user_ids: Vocabulary,
    task_ids: Vocabulary,
) -> None:
    """Refuse a row that repeats the user and the task of an earlier one, and name it."""
    sorted_users = users if order is None else users[order]
    sorted_tasks = tasks if order is None else tasks[order]
    repeats = (sorted_users[1:] == sorted_users[:-1]) & (sorted_tasks[1:] == sorted_tasks[:-1])
    if not repeats.any():
        return
    positions = np.flatnonzero(repeats) + 1
    row = int((positions if order is None else order[positions]).min())
    user, task = users[row], tasks[row]
    earlier = int(np.argmax((users == user) & (tasks == task)))
    user_id, task_id = user_ids.id_of(int(user)), task_ids.id_of(int(task))
    raise InputError(
        f"User {user_id!r} has {task_ids.name} {task_id!r} in row {earlier + 1} "
        f"and again in row {row + 1} (counting data rows from 1); expected each pair once."
    )
