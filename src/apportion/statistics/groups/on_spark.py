"""Rows by group on a cluster: what `RowsByGroup` is in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apportion.data.users import UserParts
from apportion.engines.spark.numbers import NumbersOnSpark


@dataclass(frozen=True, eq=False, repr=False)
class GroupsOnSpark:
    """Users with their rows, which are on a cluster.

    Attributes:
        rows: all rows, with whatever groups occur.
        users: the users, with rows of listed groups if there is a list.
        texts: of the listed groups, by code, in text order; none while there is no list.
    """

    rows: NumbersOnSpark
    users: UserParts
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: NumbersOnSpark) -> GroupsOnSpark:
        """All rows, before there is a list of groups."""
        return cls(rows, rows.as_users)

    def on_list(self, texts: Sequence[str]) -> GroupsOnSpark:
        """The rows of listed groups alone; the list must be in text order."""
        return GroupsOnSpark(self.rows, self.rows.on_list(texts), tuple(texts))

    def on_own_list(self) -> GroupsOnSpark:
        """The rows with the list of groups that occur, which the caller declared public."""
        return self.on_list(self.rows.own_texts())

    def __repr__(self) -> str:
        return "GroupsOnSpark(rows hidden)"
