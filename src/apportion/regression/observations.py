"""Features and labels of (user, task) pairs: what a regression with many tasks is fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.encoding import encode_ids, match_public_list, refuse_single_user
from apportion.data.numbers import finite_column, finite_matrix
from apportion.data.ordering import user_major_order
from apportion.data.vocabulary import as_array
from apportion.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Observations:
    """Who took part in which task, with what features and which label.

    Rows are in the order of `data`, user-major; a user has at most one row for a task. All of it is private.

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
                f"got shapes {self.features.shape} and {self.labels.shape}."
            )

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        tasks: ArrayLike,
        groups: ArrayLike,
        task_ids: ArrayLike | Vocabulary | None = None,
    ) -> Observations:
        """Build from parallel arrays in any order.

        Args:
            features: one row per observation.
            labels: one number per observation.
            tasks: id of the task of each observation, integers or text.
            groups: id of its user.
            task_ids: the public list of tasks; by default the tasks that occur.
        """
        x = finite_matrix(features, "X")
        y = finite_column(labels, "y", len(x))
        given = {"tasks": as_array(tasks), "groups": as_array(groups)}
        for name, column in given.items():
            if column.shape != (len(x),):
                raise InputError(f"Expected {name} to have {len(x)} rows, one per row of X, got {column.shape}.")
        users = encode_ids(given["groups"], "groups", name="user")
        refuse_single_user(users)
        encoded = match_public_list(encode_ids(given["tasks"], "tasks", name="task"), task_ids)
        data = Interactions.from_codes(
            users.codes, encoded.codes, user_ids=users.vocabulary, task_ids=encoded.vocabulary
        )
        order = user_major_order(users.codes, encoded.codes, data.n_tasks)
        return cls(data, x, y) if order is None else cls(data, x[order], y[order])

    @property
    def dimension(self) -> int:
        """How many features a row has."""
        return int(self.features.shape[1])

    def __repr__(self) -> str:
        return f"Observations({self.data.n_tasks} tasks, {self.dimension} features, values hidden)"
