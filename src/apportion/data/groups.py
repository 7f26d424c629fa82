"""Rows of users by group. Groups are identified by their texts, and the rows of one user are ordered by group.

A group is the text of one column, or of several columns together, written as a JSON list. Codes are in the order of the
texts. If the list of groups is private, the codes may reveal nothing but the texts and their order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.encoding import EncodedIds
from apportion.data.grouping import encode_column
from apportion.data.item_lists import Priorities, texts_of
from apportion.data.ordering import user_major_order
from apportion.data.user_keys import sampling_keys
from apportion.data.users import Users
from apportion.errors import InputError

Codes = NDArray[np.int32]

ALL = ""  # the only group, if no column divides the rows
_FEW_CODES = 1 << 16


@dataclass(frozen=True, eq=False)
class RowsByGroup:
    """Users with their rows.

    Attributes:
        users: the users, with the codes of groups in the column "tasks", ascending within a user, and columns of
            values.
        texts: the texts of the groups, by code, in text order.
    """

    users: Users
    texts: tuple[str, ...]

    def on_list(self, texts: Sequence[str]) -> RowsByGroup:
        """Return only the rows of listed groups. Codes are positions in the list, which must be in text order."""
        place = {text: code for code, text in enumerate(texts)}
        codes = np.array([place.get(text, -1) for text in self.texts] or [-1], np.int32)
        return RowsByGroup(self.users.recoded(codes, len(texts)), tuple(texts))

    def held(self) -> Users:
        """Return the users with each of their groups once, and a priority from the user's id and the group's text."""
        return Priorities.of(self.texts)(each_group_once(self.users))


def each_group_once(users: Users) -> Users:
    """Return the users with only the first row of each group. The rows of a user are ordered by group."""
    tasks = users.column("tasks")
    first = np.zeros(len(tasks) + 1, bool)
    first[users.indptr] = True
    first[1:-1] |= np.diff(tasks) != 0
    return users.with_rows(first[:-1])


def rows_by_group(
    users: ArrayLike | EncodedIds, by: Sequence[ArrayLike | EncodedIds], n_rows: int, **columns: NDArray[Any]
) -> RowsByGroup:
    """Sort rows by user and then by group.

    Args:
        users: the user of each row: ids, or codes of ids.
        by: the columns that divide rows into groups. Without columns, all rows are one group.
        n_rows: how many rows there must be.
        columns: further columns, with one entry per row.

    >>> rows = rows_by_group(["ann", "bob", "ann"], [["north", "south", "east"]], 3)
    >>> rows.texts, rows.users.column("tasks")
    (('east', 'north', 'south'), array([0, 1, 2], dtype=int32))
    """
    owners = users if isinstance(users, EncodedIds) else encode_column(users, n_rows, "users", name="user")
    groups, texts = grouped([_encoded(column, n_rows) for column in by], n_rows)
    order = user_major_order(owners.codes, groups, len(owners.vocabulary), len(texts))
    arranged = {
        name: column if order is None else column[order] for name, column in {**columns, "tasks": groups}.items()
    }
    sizes = np.bincount(owners.codes, minlength=len(owners.vocabulary))
    keys = partial(sampling_keys, owners.vocabulary)
    return RowsByGroup(Users(np.append(0, np.cumsum(sizes)), arranged, n_tasks=len(texts), keys=keys), texts)


def text_of(parts: Sequence[Any]) -> str:
    """Return the text of a group, from the cells of its columns.

    >>> text_of(["north"]), text_of(["north", 7])
    ('north', '["north", "7"]')
    """
    return str(parts[0]) if len(parts) == 1 else json.dumps([str(part) for part in parts], ensure_ascii=False)


def parts_of(text: str, n_columns: int) -> tuple[str, ...]:
    """Return the cells of a group's columns, from its text.

    >>> parts_of('["north", "7"]', 2)
    ('north', '7')
    """
    return (text,) if n_columns == 1 else tuple(json.loads(text)) if n_columns else ()


def _encoded(column: ArrayLike | EncodedIds, n_rows: int) -> EncodedIds:
    held = column if isinstance(column, EncodedIds) else encode_column(column, n_rows, "by", name="group")
    if len(held.codes) != n_rows:
        raise InputError(f"Expected {n_rows} entries of 'by', one per row, got {len(held.codes)}.", argument="by")
    return held


def grouped(columns: Sequence[EncodedIds], n_rows: int) -> tuple[Codes, tuple[str, ...]]:
    """Return the group of each row, and the texts of the groups in text order."""
    if not columns:
        return np.zeros(n_rows, np.int32), (ALL,)
    parts: list[tuple[str, ...]] = [()]
    codes = np.zeros(n_rows, np.int64)
    for column in columns:
        names = texts_of(column.vocabulary)
        found, codes = _distinct(codes * len(names) + column.codes, len(parts) * len(names))
        parts = [(*parts[k // len(names)], names[k % len(names)]) for k in found.tolist()]
    texts = [text_of(each) for each in parts]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), np.int32)
    rank[order] = np.arange(len(texts), dtype=np.int32)
    return rank[codes], tuple(texts[k] for k in order)


def _distinct(codes: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the codes that occur, ascending, and the position of each row's code among them.

    Few codes need no sort.
    """
    if most > max(len(codes), _FEW_CODES):
        found, places = np.unique(codes, return_inverse=True)
        return found, places.ravel()
    occurs = np.bincount(codes, minlength=most) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]
