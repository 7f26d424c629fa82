"""Rows of users who may have many: from a column of ids to user-major order and offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.encoding import encode_ids, refuse_single_user
from apportion.data.ordering import stable_order
from apportion.data.vocabulary import as_array
from apportion.errors import InputError


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which rows belong to one user.

    Attributes:
        indptr: the rows of user l lie between indptr[l] and indptr[l + 1], once they are in order.
        order: positions of the rows as they were given, in user-major order; None if they were in it.
    """

    indptr: NDArray[np.int64]
    order: NDArray[np.int64] | None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each user has."""
        return np.diff(self.indptr)

    def arranged(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows in user-major order; rows of one user keep theirs."""
        return rows if self.order is None else rows[self.order]


def group_rows(groups: ArrayLike, n_rows: int, *, single_user: bool = False) -> Grouping:
    """Group rows by a column of user ids, integers or text, one per row.

    Args:
        groups: the ids.
        n_rows: how many there must be.
        single_user: whether one user may have all rows; where who takes part is private, a refusal would tell.
    """
    given = as_array(groups)
    if given.shape != (n_rows,):
        raise InputError(f"Expected groups to have {n_rows} rows, one per row of data, got {given.shape}.")
    users = encode_ids(given, "groups", name="user")
    if not single_user:
        refuse_single_user(users)
    n_users = len(users.vocabulary)
    sizes = np.bincount(users.codes, minlength=n_users)
    ordered = bool((np.diff(users.codes) >= 0).all())
    order = None if ordered else stable_order(users.codes, n_users)
    return Grouping(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), order)
