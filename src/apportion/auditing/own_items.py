"""Do the written files reveal who holds an item that nobody else holds?

Users with items of their own are removed, one at a time, and the data are read again as if these users had never
existed: the list of items is that of the others. Given the same releases, both fits must write the same files, byte for
byte, including ids, shapes and sizes. If the list was taken from the data, they do not, and the statement must say so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.replay import AuditError, RecordingSession, ReplayingSession
from apportion.auditing.statements import Check
from apportion.data import Interactions
from apportion.privacy import Budget, SeededNoise, Statement
from apportion.recommend import save

_NAME = "items of one user alone"


def users_with_own_items(data: Interactions) -> NDArray[np.int32]:
    """Return the codes of the users who hold an item that nobody else holds."""
    alone = data.by_task.counts == 1
    return np.unique(data.users[alone[data.tasks]])


def without_trace(data: Interactions, user: int) -> Interactions:
    """Return the data as they would be read without this user, including the list of items."""
    kept = data.users != user
    return Interactions.from_arrays(
        data.user_ids.ids_of(data.users[kept]),
        data.task_ids.ids_of(data.tasks[kept]),
        data.values[kept],
        task_ids=data.task_ids if data.task_ids.declared else None,
        single_user=True,
    )


def audit_own_items(make: Callable[[], Any], data: Interactions, budget: Budget, users: int, seed: int) -> Check | None:
    """Compare all written files with and without users who have items of their own; None if nobody has any.

    Args:
        make: makes the recommender.
        data: data with the items that occur, or with a public list.
        budget: the claimed budget.
        users: how many users to remove, one at a time.
        seed: the seed of the noise and of the choice of users.
    """
    holders = users_with_own_items(data)
    if not len(holders) or not users:
        return None
    chosen = np.random.default_rng(seed).choice(holders, size=min(users, len(holders)), replace=False)
    first = RecordingSession(budget, noise=SeededNoise(seed))
    model = make().fit(data, session=first).model_
    written = _files(model)
    for user in chosen.tolist():
        try:
            second = make().fit(without_trace(data, user), session=_replaying(first, budget, seed)).model_
            told = _difference(written, _files(second))
        except (AuditError, ValueError) as error:  # arrays of another length: the leak itself
            told = str(error)
        if told:
            return _judged(model.statement, len(holders), told)
    words = f"{len(chosen)} of {len(holders)} users who have some were taken out; nothing that is written changed"
    return Check(_NAME, True, words)


def _judged(statement: Statement, holders: int, told: str) -> Check:
    stated = bool(statement.unprotected)
    words = f"what is written tells of {holders} users that they took part ({told})"
    return Check(_NAME, stated, words + ("; the statement says that this is not protected" if stated else ""))


def _replaying(first: RecordingSession, budget: Budget, seed: int) -> ReplayingSession:
    return ReplayingSession(first, budget, noise=SeededNoise(seed))


def _files(model: Any) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "model")
        return {path.name: path.read_bytes() for path in sorted((Path(folder) / "model").iterdir())}


def _difference(one: dict[str, bytes], other: dict[str, bytes]) -> str:
    """Return the first difference, in words; empty if there is none."""
    if one.keys() != other.keys():
        return f"files {sorted(one)} and {sorted(other)}"
    for name, held in one.items():
        if len(held) != len(other[name]):
            return f"{name} has {len(held)} bytes with and {len(other[name])} without"
        if held != other[name]:
            return f"{name} differs"
    return ""
