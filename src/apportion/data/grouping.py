"""Grouping of rows by user (or party): from a column of ids to user-major order and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.encoding import EncodedIds, encode_ids, refuse_single_user
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary, as_array
from apportion.errors import InputError
from apportion.linalg.orders import stable_order


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which rows belong to one user.

    Attributes:
        indptr: the rows of user l lie between indptr[l] and indptr[l + 1], once they are in order.
        order: original positions of the rows, in user-major order; None if they were already in it.
        ids: the ids of the users, in the order of the offsets.
    """

    indptr: NDArray[np.int64]
    order: NDArray[np.int64] | None
    ids: Vocabulary

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each user."""
        return np.diff(self.indptr)

    def users(self, user_columns: Mapping[str, NDArray[Any]] | None = None, **columns: NDArray[Any]) -> Users:
        """Return users with these columns of rows, which come in the original order."""
        arranged = {name: self.arranged(np.asarray(column)) for name, column in columns.items()}
        return Users(self.indptr, arranged, user_columns=user_columns)

    def arranged(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows in user-major order; rows of one user keep their order."""
        return rows if self.order is None else rows[self.order]


def group_rows(
    users: ArrayLike, n_rows: int, *, single_user: bool = False, column: str = "users", name: str = "user"
) -> Grouping:
    """Group rows by a column of ids, integers or text, one per row.

    Args:
        users: the ids.
        n_rows: the number of ids that there must be.
        single_user: whether one user may have all rows; if participation is private, a refusal would reveal it.
        column: the name of the argument, for messages.
        name: what one id stands for.
    """
    owners = encode_column(users, n_rows, column, name=name)
    if not single_user:
        refuse_single_user(owners)
    n_users = len(owners.vocabulary)
    sizes = np.bincount(owners.codes, minlength=n_users)
    ordered = bool((np.diff(owners.codes) >= 0).all())
    order = None if ordered else stable_order(owners.codes, n_users)
    return Grouping(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), order, owners.vocabulary)


def encode_column(ids: ArrayLike, n_rows: int, column: str, *, name: str) -> EncodedIds:
    """Return codes of a column of ids that must have this many rows."""
    refuse_name(ids, column)
    given = as_array(ids)
    if given.shape != (n_rows,):
        raise InputError(
            f"Expected {column} to have {n_rows} rows, one per row of data, got {given.shape}.", argument=column
        )
    return encode_ids(given, column, name=name)


def refuse_name(ids: object, column: str) -> None:
    """Refuse the name of a column in place of the column."""
    if isinstance(ids, str):
        raise InputError(
            f"Expected {column} as a column with a value for every row, got the text {ids!r}; give the column itself, "
            f"such as frame[{ids!r}].",
            argument=column,
        )


def one_of(users: ArrayLike | None, groups: ArrayLike | None, column: str = "users") -> ArrayLike:
    """Return the column of ids: `users`, or `groups` if a scikit-learn tool uses that name."""
    if (users is None) == (groups is None):
        given = "neither" if users is None else "both"
        raise InputError(
            f"Expected either {column} or groups (scikit-learn's name for it), got {given}.", argument=column
        )
    return users if groups is None else groups  # type: ignore[return-value]
