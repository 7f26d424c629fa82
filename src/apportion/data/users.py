"""Users with all of their rows, in user-major order: the input of a contribution.

A run of users is the unit of work of every engine. It holds columns, one entry per row, and nothing that depends on
users outside the run.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.data.ordering import user_major_order
from apportion.data.segments import Segments, segments_by_task
from apportion.errors import InputError
from apportion.linalg.orders import chosen as rows_where
from apportion.linalg.orders import without as rows_without

Offsets = NDArray[np.int64]

_MOST_KEPT = 4  # number of results that a run in memory remembers


class UserParts(Protocol):
    """Users in one part or in several, which may be read only when they are asked for.

    Each user is in one part, with all rows.
    """

    @property
    def n_tasks(self) -> int:
        """Length of the public list of tasks."""

    def parts(self) -> Iterator[Users]:
        """Yield the parts, one after another."""

    def nobody(self) -> Users:
        """Return a part without users that has the same columns."""

    def mapped(self, change: Callable[[Users], Users]) -> UserParts:
        """Return the users with a change made to each part; each user's rows must depend on that user's rows alone."""


class Users:
    """A run of users, each with all rows.

    Args:
        indptr: the rows of user j lie between indptr[j] and indptr[j + 1].
        columns: one entry per row: "tasks", "values", "features", ...
        user_columns: one entry per user.
        n_tasks: length of the public list of tasks that "tasks" are codes of; 0 without one.
        keys: two numbers for each user from its id alone, or a function that makes them.

    Example:
        >>> users = Users([0, 2, 3], {"values": np.array([4.0, 2.0, 5.0])})
        >>> [run.column("values").tolist() for run in users.runs(2)]
        [[4.0, 2.0], [5.0]]
    """

    def __init__(
        self,
        indptr: Any,
        columns: Mapping[str, NDArray[Any]],
        *,
        user_columns: Mapping[str, NDArray[Any]] | None = None,
        n_tasks: int = 0,
        keys: NDArray[np.uint64] | Callable[[], NDArray[np.uint64]] | None = None,
    ) -> None:
        self.indptr: Offsets = np.asarray(indptr, np.int64)
        self._columns = dict(columns)
        self._user_columns = dict(user_columns or {})
        self.n_tasks = n_tasks
        self._keys = keys
        self._remembered: list[tuple[object, Any]] = []
        self._remembering = threading.RLock()  # several runs may be processed at the same time
        self._whole: tuple[Users, slice] | None = None
        self._notes: dict[Any, NDArray[Any]] | None = None
        self._check()

    def _check(self) -> None:
        offsets = self.indptr
        if not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise InputError("Expected offsets that start with 0 and do not decrease.", argument="indptr")
        for name, column in self._columns.items():
            if len(column) != offsets[-1]:
                raise InputError(
                    f"Expected {offsets[-1]} entries of {name!r}, one per row, got {len(column)}.", argument="columns"
                )
        for name, column in self._user_columns.items():
            if len(column) != self.n_users:
                raise InputError(
                    f"Expected {self.n_users} entries of {name!r}, one per user, got {len(column)}.",
                    argument="user_columns",
                )

    @property
    def n_users(self) -> int:
        """Number of users, including those without rows; private."""
        return len(self.indptr) - 1

    @property
    def n_rows(self) -> int:
        """Number of rows; private."""
        return int(self.indptr[-1])

    @property
    def sizes(self) -> Offsets:
        """The number of rows of each user."""
        return np.diff(self.indptr)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which users have rows; the others contribute nothing, as if absent."""
        return self.sizes > 0

    @cached_property
    def owner(self) -> NDArray[np.int32]:
        """The position of each row's user within the run."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.sizes)

    @cached_property
    def by_task(self) -> Segments:
        """The rows grouped by task, users in order within each."""
        tasks = self.column("tasks")
        return segments_by_task(self.owner, tasks, None, self.n_tasks)

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Two numbers for each user, from its id alone."""
        if callable(self._keys):
            self._keys = self._keys()
        if self._keys is None:
            raise InputError(
                "Expected users with ids, because samples of users or of their tasks need them.", argument="keys"
            )
        return self._keys

    def column(self, name: str) -> NDArray[Any]:
        """Return a column with one entry per row."""
        return self._columns[name]

    def has_column(self, name: str) -> bool:
        """Whether there is a column of this name, with one entry per row."""
        return name in self._columns

    def of_user(self, name: str) -> NDArray[Any]:
        """Return a column with one entry per user."""
        return self._user_columns[name]

    def with_columns(self, **columns: NDArray[Any]) -> Users:
        """Return the same users with further columns."""
        return self._like(self.indptr, {**self._columns, **columns}, self._user_columns, self._keys)

    def with_user_columns(self, **columns: NDArray[Any]) -> Users:
        """Return the same users with further columns that have one entry per user."""
        return self._like(self.indptr, self._columns, {**self._user_columns, **columns}, self._keys)

    def with_rows(self, chosen: NDArray[np.bool_]) -> Users:
        """Return the same users, each with only the chosen rows.

        >>> Users([0, 2, 3], {"values": np.array([4.0, 2.0, 5.0])}).with_rows(np.array([False, True, False])).sizes
        array([1, 0])
        """
        left_out = np.flatnonzero(~chosen)
        columns = {name: rows_where(column, chosen) for name, column in self._columns.items()}
        indptr = self.indptr - np.searchsorted(left_out, self.indptr)
        return self._like(indptr, columns, self._user_columns, self._keys)

    def without_rows(self, positions: NDArray[np.int64]) -> Users:
        """Return the same users without the rows at some positions, which ascend.

        >>> Users([0, 2, 3], {"values": np.array([4.0, 2.0, 5.0])}).without_rows(np.array([0, 2])).sizes
        array([1, 0])
        """
        columns = {name: rows_without(column, positions) for name, column in self._columns.items()}
        indptr = self.indptr - np.searchsorted(positions, self.indptr)
        return self._like(indptr, columns, self._user_columns, self._keys)

    def with_users(self, chosen: NDArray[np.bool_]) -> Users:
        """Return the chosen users, with all of their rows.

        >>> Users([0, 2, 3], {"values": np.array([4.0, 2.0, 5.0])}).with_users(np.array([False, True])).column("values")
        array([5.])
        """
        if chosen.all():
            return self
        rows = np.repeat(chosen, self.sizes)
        columns = {name: rows_where(column, rows) for name, column in self._columns.items()}
        of_users = {name: column[chosen] for name, column in self._user_columns.items()}
        keys = None if self._keys is None else self.keys[chosen]
        return self._like(np.append(0, np.cumsum(self.sizes[chosen])), columns, of_users, keys)

    def parts(self) -> Iterator[Users]:
        """Yield these users, who are one part."""
        yield self

    def nobody(self) -> Users:
        """Return a part without users that has the same columns."""
        columns = {name: column[:0] for name, column in self._columns.items()}
        of_users = {name: column[:0] for name, column in self._user_columns.items()}
        return self._like(np.zeros(1, np.int64), columns, of_users, np.zeros((0, 2), np.uint64))

    def mapped(self, change: Callable[[Users], Users]) -> Users:
        """Return the users with a change made to them."""
        return change(self)

    def recoded(self, codes: NDArray[np.int32], n_tasks: int) -> Users:
        """Return the users on another list of tasks: codes[i] is the new code of task i, -1 if the list lacks it.

        Rows of tasks that the list lacks are left out. Each user's rows are in the order of the new codes.

        >>> users = Users([0, 2, 3], {"tasks": np.array([0, 2, 1])}, n_tasks=3)
        >>> users.recoded(np.array([1, -1, 0], np.int32), 2).column("tasks")
        array([0, 1], dtype=int32)
        """
        moved = codes[self.column("tasks")]
        kept = self.with_rows(moved >= 0)
        tasks = moved[moved >= 0]
        order = user_major_order(kept.owner, tasks, max(kept.n_users, 1), max(n_tasks, 1))
        columns: dict[str, NDArray[Any]] = {**kept._columns, "tasks": tasks}
        if order is not None:
            columns = {name: column[order] for name, column in columns.items()}
        return Users(kept.indptr, columns, user_columns=self._user_columns, n_tasks=n_tasks, keys=self._keys)

    def run(self, first: int, last: int) -> Users:
        """Return users first to last; nothing is copied."""
        if first == 0 and last == self.n_users:
            return self
        made = self.apart(first, last)
        made._whole = (self, slice(first, last))
        return made

    def apart(self, first: int, last: int) -> Users:
        """Return users first to last without a copy. Results for them are computed without the other users."""
        rows = slice(int(self.indptr[first]), int(self.indptr[last]))
        indptr = self.indptr[first : last + 1] - self.indptr[first]
        columns = {name: column[rows] for name, column in self._columns.items()}
        of_users = {name: column[first:last] for name, column in self._user_columns.items()}
        keys = None if self._keys is None else self.keys[first:last]
        return self._like(indptr, columns, of_users, keys)

    def _like(
        self,
        indptr: Offsets,
        columns: Mapping[str, NDArray[Any]],
        user_columns: Mapping[str, NDArray[Any]],
        keys: Any,
    ) -> Users:
        return Users(indptr, columns, user_columns=user_columns, n_tasks=self.n_tasks, keys=keys)

    def runs(self, rows: int, users: int | None = None, counted: NDArray[np.bool_] | None = None) -> Iterator[Users]:
        """Yield runs of about this many rows and at most this many counted users. A user is never split."""
        before = np.arange(self.n_users + 1) if counted is None else np.concatenate([[0], np.cumsum(counted)])
        first = 0
        while first < self.n_users:
            reach = int(np.searchsorted(self.indptr, self.indptr[first] + rows, side="right")) - 1
            if users is not None:
                reach = min(reach, int(np.searchsorted(before, before[first] + users, side="right")) - 1)
            last = min(max(reach, first + 1), self.n_users)
            yield self.run(first, last)
            first = last

    def cut(self, number: int) -> list[Users]:
        """Return this many runs of about equally many users."""
        ends = np.linspace(0, self.n_users, number + 1).round().astype(int)
        return [self.run(first, last) for first, last in itertools.pairwise(ends)]

    def remembered(self, value: object, make: Callable[[Users], Any]) -> Any:
        """Return what `make` makes of these users; the last few results are kept in memory, by `value`."""
        with self._remembering:
            for k, (known, result) in enumerate(self._remembered):
                if known is value:
                    self._remembered.append(self._remembered.pop(k))  # results that are asked for often stay
                    return result
            result = make(self)
            self._remembered = [*self._remembered[1 - _MOST_KEPT :], (value, result)]
            return result

    def recalled(self, value: object) -> Any:
        """Return what is remembered of these users by `value`; None if nothing is."""
        with self._remembering:
            return next((result for known, result in self._remembered if known is value), None)

    def remembered_rows(self, value: object, make: Callable[[Users], NDArray[Any]]) -> NDArray[Any]:
        """Return the same for an array with a row per user; a run takes its part from the users it was cut from.

        So nothing is computed again in every pass, however users are cut.
        """
        if self._whole is None:
            held: NDArray[Any] = self.remembered(value, make)
            return held
        whole, part = self._whole
        return whole.remembered_rows(value, make)[part]

    def take_notes(self, notes: dict[Any, NDArray[Any]]) -> None:
        """Keep what `noted` returns in a place that outlives these rows, because they will be read again."""
        self._notes = notes

    def noted(self, value: Hashable, make: Callable[[Users], NDArray[Any]]) -> NDArray[Any]:
        """Return what `make` makes of these users; noted, by `value`, if it takes a bit a row at most.

        >>> users, notes = Users([0, 64], {"values": np.arange(64.0)}), {}
        >>> users.take_notes(notes)
        >>> users.noted("first", lambda users: np.array([0])), notes
        (array([0]), {'first': array([0])})
        """
        notes = {} if self._notes is None else self._notes
        if value not in notes:
            result = make(self)
            if 8 * result.nbytes > self.n_rows:
                return result
            notes[value] = result
        return notes[value]

    def __getstate__(self) -> dict[str, Any]:
        """Return only the rows: nothing about users outside the run, and nothing that was remembered."""
        keys = None if self._keys is None else self.keys  # not what makes them, which may know other users
        held = {name: self.__dict__[name] for name in ("indptr", "_columns", "_user_columns", "n_tasks")}
        return {**held, "_keys": keys, "_remembered": [], "_whole": None, "_notes": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the rows."""
        self.__dict__.update(state, _remembering=threading.RLock())

    def __repr__(self) -> str:
        return f"Users({', '.join(self._columns)}; values hidden)"


class UsersWithoutRows:
    """Many users in memory without some of their rows. The rows are left out again in every pass, one part at a time.

    A copy of all remaining rows would take 8 bytes per row.

    Args:
        users: all users, with all rows.
        kept: for each row, whether it stays.
        rows: the approximate number of rows to copy at a time.

    Example:
        >>> users = Users([0, 2, 3], {"values": np.array([4.0, 2.0, 5.0])})
        >>> fewer = UsersWithoutRows(users, np.array([False, True, True]), rows=1)
        >>> [part.column("values").tolist() for part in fewer.parts()]
        [[2.0], [5.0]]
    """

    def __init__(
        self,
        users: Users,
        kept: NDArray[np.bool_],
        rows: int = 1 << 23,
        changes: tuple[Callable[[Users], Users], ...] = (),
    ) -> None:
        self._users, self._kept, self._rows, self._changes = users, kept, rows, changes

    @property
    def n_tasks(self) -> int:
        """Length of the public list of tasks."""
        return self.nobody().n_tasks

    def parts(self) -> Iterator[Users]:
        """Yield the parts, one after another."""
        before = 0
        for run in self._users.runs(self._rows):
            yield self._changed(run.with_rows(self._kept[before : before + run.n_rows]))
            before += run.n_rows

    def nobody(self) -> Users:
        """Return a part without users that has the same columns."""
        return self._changed(self._users.nobody())

    def mapped(self, change: Callable[[Users], Users]) -> UsersWithoutRows:
        """Return the users with a change that is made to each part in every pass."""
        return UsersWithoutRows(self._users, self._kept, self._rows, (*self._changes, change))

    def _changed(self, part: Users) -> Users:
        for change in self._changes:
            part = change(part)
        return part

    def __repr__(self) -> str:
        return "UsersWithoutRows(values hidden)"


def in_memory(users: UserParts, what: str) -> Users:
    """Return users that are in memory. Refuse others, because `what` needs to see all of them at once."""
    if not isinstance(users, Users):
        raise InputError(
            f"{what} needs all users in memory at once; load the data with Interactions.read.", argument=None
        )
    return users
