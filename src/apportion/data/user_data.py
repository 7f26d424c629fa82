"""What every form of private data offers to estimators: a list of tasks, and users in parts, in memory or on disk.

An estimator that asks for nothing else can be fitted to data that do not fit in memory.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import UserParts
from apportion.data.vocabulary import Vocabulary


class UserData(Protocol):
    """Observations of users on a list of tasks."""

    @property
    def n_tasks(self) -> int:
        """Length of the list of tasks."""

    @property
    def task_ids(self) -> Vocabulary:
        """What task codes stand for."""

    @property
    def as_users(self) -> UserParts:
        """The users with their rows, for engines."""

    def recoded(self, codes: NDArray[np.int32], task_ids: Vocabulary) -> Self:
        """Return the rows on another list of tasks; codes[i] is the new code of task i, -1 if the list lacks it."""

    def first_task(self, among: NDArray[np.bool_]) -> int | None:
        """Return the task of the first row whose task is among these; None if no row has one of them."""


@runtime_checkable
class UnlistedData(Protocol):
    """Observations of users on a cluster. No list of tasks is known before one is declared public or released."""

    @property
    def as_users(self) -> UserParts:
        """The users; engines can count them, but not by task."""

    def count_keys(self, form: Any) -> tuple[Any, list[str]]:
        """Return the hidden counts of all tasks that occur, and their texts in text order."""

    def with_own_list(self) -> UserData:
        """Return the data on the list of tasks that occur, which the caller declared public."""

    def on_list(self, listed: Vocabulary, *, drop: bool = False) -> UserData:
        """Return the rows of listed tasks; rows of others are left out, or refused."""
