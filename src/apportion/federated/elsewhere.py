"""Data that are not here: what the server of a federated fit has in place of rows.

An estimator is fitted to `DataElsewhere` as to any other data. It gets the public list of items and users without rows;
what it wants to do to users, such as leaving out rows that vote, is written down and done by each client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError

Change = Callable[[Users], Users]
"""Returns the same users with other rows, each user's from that user's rows alone."""


@dataclass(frozen=True, eq=False)
class UsersElsewhere:
    """Users whose rows are at clients.

    Attributes:
        n_tasks: length of the public list of tasks.
        changes: what each client does to its own users first, in order.
    """

    n_tasks: int
    changes: tuple[Change, ...] = ()

    def parts(self) -> Iterator[Users]:
        """Refuse: no rows are here."""
        _refuse()

    def nobody(self) -> Users:
        """Return no users, with the columns that clients' users have."""
        return reduce(lambda users, change: change(users), self.changes, no_users(self.n_tasks))

    def mapped(self, change: Change) -> UsersElsewhere:
        """Return the users with one more change, which clients make."""
        return replace(self, changes=(*self.changes, change))


@dataclass(frozen=True, eq=False)
class DataElsewhere:
    """Ratings or clicks that clients keep, of items on a public list.

    Attributes:
        task_ids: the public list of items, declared.

    Example:
        >>> DataElsewhere.of_items(["rice", "milk", "tea"]).n_tasks
        3
    """

    task_ids: Vocabulary

    def __post_init__(self) -> None:
        if not self.task_ids.declared:
            raise InputError(
                "Expected a public list of items, because clients must have the same one; declare it.",
                argument="task_ids",
            )

    @classmethod
    def of_items(cls, items: ArrayLike) -> DataElsewhere:
        """Return the data on a list of ids."""
        return cls(Vocabulary(items, name="item", declared=True))

    @property
    def n_tasks(self) -> int:
        """Length of the list of items."""
        return len(self.task_ids)

    @property
    def as_users(self) -> UsersElsewhere:
        """The users, whose rows are at clients."""
        return UsersElsewhere(self.n_tasks)

    def first_task(self, among: NDArray[np.bool_]) -> int | None:
        """Return None: clients drop rows of other items themselves."""
        return None

    def recoded(self, codes: NDArray[np.int32], task_ids: Vocabulary) -> Self:
        """Refuse another list: every client has this one."""
        raise InputError(
            "Expected the public list of items that all clients have; a private list cannot be released over clients.",
            argument="items",
        )


def no_users(n_tasks: int) -> Users:
    """Return no users, with the columns of ratings."""
    columns = {"tasks": np.zeros(0, np.int32), "values": np.zeros(0, np.float32)}
    return Users([0], columns, n_tasks=n_tasks, keys=np.zeros((0, 2), np.uint64))


def _refuse() -> NoReturn:
    raise InputError(
        "The rows of a federated fit are at clients, and this step needs them here; it has no federated form.",
        argument=None,
    )
