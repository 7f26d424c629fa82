"""Features and labels of (user, task) pairs: the input of a multi-task regression, in memory or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.encoding import match_public_list, refuse_single_user
from apportion.data.grouping import encode_column
from apportion.data.item_lists import texts_of
from apportion.data.numbers import finite_column, finite_matrix
from apportion.data.ordering import user_major_order
from apportion.data.user_data import UserData
from apportion.data.users import UserParts, Users
from apportion.data.vocabulary import as_text
from apportion.engines import Engine
from apportion.engines.spark.interactions import InteractionsOnSpark
from apportion.engines.spark.numbers import NumbersOnSpark
from apportion.errors import InputError
from apportion.estimators.frames import cluster_of, holds_text, numbers_beside


@dataclass(frozen=True, eq=False, repr=False)
class Observations:
    """Which users took part in which tasks, with which features and labels.

    Rows are in the order of `data`, user-major. A user has one row per task. All of it is private.

    Attributes:
        data: the pairs.
        features: float64, one row per pair.
        labels: float64, one per pair.
    """

    data: Interactions
    features: NDArray[np.float64]
    labels: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", np.ascontiguousarray(self.features))
        n_rows = self.data.n_observations
        if self.features.ndim != 2 or self.features.shape[0] != n_rows or self.labels.shape != (n_rows,):
            raise InputError(
                f"Expected features and a label for each of {n_rows} pairs, "
                f"got shapes {self.features.shape} and {self.labels.shape}.",
                argument=None,
            )

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        tasks: ArrayLike,
        users: ArrayLike,
        task_ids: ArrayLike | Vocabulary | None = None,
    ) -> Observations:
        """Build from parallel arrays in any order. Several rows of a user for one task are replaced by their mean.

        Args:
            features: one row per observation.
            labels: one number per observation.
            tasks: id of the task of each observation, integers or text.
            users: id of its user.
            task_ids: the public list of tasks; by default the tasks that occur.
        """
        x = finite_matrix(features, "X")
        y = finite_column(labels, "y", len(x))
        coded_tasks = encode_column(tasks, len(x), "tasks", name="task")
        owners = encode_column(users, len(x), "users", name="user")
        refuse_single_user(owners)
        matched = match_public_list(coded_tasks, task_ids)
        x, y, kept = _one_row_a_pair(x, y, owners.codes.astype(np.int64) * len(matched.vocabulary) + matched.codes)
        owner_codes, task_codes = owners.codes[kept], matched.codes[kept]
        data = Interactions.from_codes(owner_codes, task_codes, user_ids=owners.vocabulary, task_ids=matched.vocabulary)
        order = user_major_order(owner_codes, task_codes, len(owners.vocabulary), data.n_tasks)
        return cls(data, x, y) if order is None else cls(data, x[order], y[order])

    @property
    def users(self) -> Users:
        """The users with their rows, for engines."""
        return self.data.as_users.with_columns(features=self.features, labels=self.labels)

    @property
    def dimension(self) -> int:
        """The number of features of a row."""
        return int(self.features.shape[1])

    def __repr__(self) -> str:
        return f"Observations({self.data.n_tasks} tasks, {self.dimension} features, values hidden)"


@dataclass(frozen=True, eq=False, repr=False)
class ObservationsOnSpark:
    """The same on a cluster. The workers replace several rows of a user for one task by their mean.

    Attributes:
        data: the list of tasks.
        users: the users with their rows.
        dimension: the number of features of a row.
    """

    data: UserData
    users: UserParts
    dimension: int

    def __repr__(self) -> str:
        return f"ObservationsOnSpark({self.data.n_tasks} tasks, {self.dimension} features, values hidden)"


Observed = Observations | ObservationsOnSpark


@contextmanager
def observed_on_spark(
    engine: Engine | None, frame: Any, label: Any, task: Any, users: Any, task_ids: ArrayLike | Vocabulary | None
) -> Iterator[ObservationsOnSpark]:
    """Read a frame on the engine's cluster. All columns except labels, tasks and users are features."""
    cluster = cluster_of(engine, users, task, label)
    names = numbers_beside(frame, users, label, task)
    with cluster.read_numbers(frame, users, {"features": names, "labels": label}, [task]) as rows:
        listed = _listed(task_ids, rows, texts=holds_text(frame, task))
        on_list = rows.on_list(texts_of(listed), drop=False)
        yield ObservationsOnSpark(InteractionsOnSpark(on_list.frame, listed), on_list.mapped(mean_of_pairs), len(names))


def mean_of_pairs(users: Users) -> Users:
    """Return users with one row for each of their tasks: the mean of their rows for it."""
    pairs = users.owner.astype(np.int64) * max(users.n_tasks, 1) + users.column("tasks")
    x, y, kept = _one_row_a_pair(users.column("features"), users.column("labels"), pairs)
    if len(kept) == users.n_rows:
        return users
    sizes = np.bincount(users.owner[kept], minlength=users.n_users)
    columns = {"tasks": users.column("tasks")[kept], "features": np.ascontiguousarray(x), "labels": y}
    return Users(np.append(0, np.cumsum(sizes)), columns, n_tasks=users.n_tasks, keys=users.keys)


def _listed(task_ids: ArrayLike | Vocabulary | None, rows: NumbersOnSpark, *, texts: bool) -> Vocabulary:
    """Return the public list of tasks, or the tasks that occur."""
    if task_ids is None:
        found = rows.own_texts()
        return Vocabulary(as_text(found, "task") if texts else sorted(map(int, found)), name="task")
    return task_ids if isinstance(task_ids, Vocabulary) else Vocabulary(task_ids, name="task", declared=True)


def _one_row_a_pair(
    features: NDArray[np.float64], labels: NDArray[np.float64], pairs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the mean row of every pair of user and task, and the position of its first row; unchanged if none repeats.

    A user's means follow from its own rows, in the order in which they are given.
    """
    first = np.unique(pairs, return_index=True)[1]
    if len(first) == len(pairs):
        return features, labels, np.arange(len(pairs))
    order = np.argsort(pairs, kind="stable")
    starts = np.flatnonzero(np.diff(pairs[order], prepend=pairs[order[0]] - 1))
    sizes = np.diff(np.append(starts, len(pairs)))
    mean_features = np.add.reduceat(features[order], starts, axis=0) / sizes[:, None]
    return mean_features, np.add.reduceat(labels[order], starts) / sizes, order[starts]
