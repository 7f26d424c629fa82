"""Drawing distinct tasks for many users at once, by successive sampling.

User u draws one task after another with the probabilities p_u(i), without repeats, until degree_u tasks are drawn. Two
equivalent ways are combined: draw with replacement and keep the first distinct tasks (cheap while a user takes few of
the tasks), and take the largest of log p_u(i) + Gumbel noise (exact at any number, one draw per user and task; for the
few users who take many).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_DRAWS_AT_ONCE = 1 << 20
_CELLS_AT_ONCE = 1 << 22
_HEAVY_FRACTION = 0.1
_MAX_ROUNDS = 6


class TaskChoice(Protocol):
    """How users choose among tasks."""

    @property
    def n_tasks(self) -> int:
        """The number of tasks."""
        ...

    def draw(self, users: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return one task for each entry of `users`, independently and with replacement."""
        ...

    def log_probabilities(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return one row per user, one column per task."""
        ...


def draw_distinct(
    degrees: NDArray[np.int64], choice: TaskChoice, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return users and tasks of all observations, sorted by user and task; user u has exactly degrees[u] of them."""
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    tasks = np.empty(indptr[-1], np.int32)
    for users in _user_blocks(degrees):
        tasks[indptr[users[0]] : indptr[users[-1] + 1]] = _draw_block(users, degrees[users], choice, rng)
    return np.repeat(np.arange(len(degrees), dtype=np.int32), degrees), tasks


def _user_blocks(degrees: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Yield consecutive users, about `_DRAWS_AT_ONCE` observations in a block."""
    block = np.cumsum(degrees) // _DRAWS_AT_ONCE
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    return np.split(np.arange(len(degrees)), starts[1:])


def _draw_block(
    users: NDArray[np.int64], degrees: NDArray[np.int64], choice: TaskChoice, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return tasks of a block of users, user-major."""
    n_tasks = choice.n_tasks
    light = degrees <= _HEAVY_FRACTION * n_tasks
    accepted = np.empty(0, np.int64)  # sorted keys: position in the block times n_tasks, plus task
    short, missing = np.flatnonzero(light), degrees[light]
    for _ in range(_MAX_ROUNDS):
        if not len(short):
            break
        accepted, short, missing = _one_round(users, short, missing, accepted, choice, rng)
    rest = np.concatenate([short, np.flatnonzero(~light)])
    missing = np.concatenate([missing, degrees[~light]])
    exact = _draw_exactly(users, rest, missing, accepted, choice, rng)
    return np.sort(np.concatenate([accepted, exact])) % n_tasks


def _one_round(
    users: NDArray[np.int64],
    short: NDArray[np.int64],
    missing: NDArray[np.int64],
    accepted: NDArray[np.int64],
    choice: TaskChoice,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw with replacement for users who need more tasks, and keep the first distinct new ones."""
    position = np.repeat(short, missing + missing // 2 + 4)
    keys = position * choice.n_tasks + choice.draw(users[position], rng)
    _, first = np.unique(keys, return_index=True)
    keys = keys[np.sort(first)]  # distinct, in the order in which they were drawn
    keys = keys[~_is_in(keys, accepted)]
    owner = np.searchsorted(short, keys // choice.n_tasks)
    n_new = np.bincount(owner, minlength=len(short))
    rank = np.arange(len(keys)) - (np.cumsum(n_new) - n_new)[owner]
    accepted = np.sort(np.concatenate([accepted, keys[rank < missing[owner]]]))
    left = np.maximum(missing - n_new, 0)
    return accepted, short[left > 0], left[left > 0]


def _draw_exactly(
    users: NDArray[np.int64],
    positions: NDArray[np.int64],
    missing: NDArray[np.int64],
    accepted: NDArray[np.int64],
    choice: TaskChoice,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the tasks still missing, by the largest log p + Gumbel noise among the tasks not yet drawn."""
    n_tasks = choice.n_tasks
    rows_at_once = max(1, _CELLS_AT_ONCE // n_tasks)
    taken_position, taken_task = np.divmod(accepted, n_tasks)
    keys = [np.empty(0, np.int64)]
    for start in range(0, len(positions), rows_at_once):
        rows = positions[start : start + rows_at_once]
        wanted = missing[start : start + rows_at_once]
        score = choice.log_probabilities(users[rows]) + rng.gumbel(size=(len(rows), n_tasks)).astype(np.float32)
        row_of = np.full(len(users), -1)
        row_of[rows] = np.arange(len(rows))
        here = row_of[taken_position] >= 0
        score[row_of[taken_position[here]], taken_task[here]] = -np.inf
        ranked = np.argsort(-score, axis=1, kind="stable")
        row, rank = np.nonzero(np.arange(n_tasks) < wanted[:, None])
        keys.append(rows[row] * n_tasks + ranked[row, rank])
    return np.concatenate(keys)


def _is_in(keys: NDArray[np.int64], sorted_keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which keys occur among sorted keys, by binary search. NumPy's hash table is slow on such keys."""
    if not len(sorted_keys):
        return np.zeros(len(keys), bool)
    position = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    found: NDArray[np.bool_] = sorted_keys[position] == keys
    return found
