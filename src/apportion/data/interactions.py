"""Interactions: who did what, with what value. This is the one form in which private data enter the library.

Observations are stored user-major, sorted by user and then by task, one per (user, task) pair, under int32 codes. The
vocabularies translate codes to the original ids. Nothing is ever changed in place: arrays are write-protected, and
every operation returns a new object that shares the vocabularies. So codes mean the same in all parts of a split and in
a data set with one user removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.encoding import (
    EncodedIds,
    as_timestamps,
    as_values,
    checked_codes,
    encode_ids,
    finite_float32,
    match_public_list,
    refuse_single_user,
)
from apportion.data.ordering import refuse_other_order, sort_user_major
from apportion.data.segments import Segments, protected, segments_by_task, segments_by_user
from apportion.data.user_keys import sampling_keys
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary, as_array
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.columns import ColumnChoice
    from apportion.data.row_rules import RowRules
    from apportion.data.sources import Place
    from apportion.data.splits import UserSplit


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Observations (user, task, value, optional timestamp) with their vocabularies, immutable.

    Build it with `from_arrays`, `from_frame`, `read` or `from_codes`; the constructor itself expects arrays
    that are already sorted by user and task, and refuses others.

    Attributes:
        users: int32 code of the user of each observation, ascending.
        tasks: int32 code of the task, ascending within a user.
        values: float32, finite; all ones for clicks.
        timestamps: int64 seconds, or `None`.
        user_ids: what user codes stand for.
        task_ids: what task codes stand for; may hold tasks that nobody has.

    Example:
        >>> data = Interactions.from_arrays(["ann", "ann", "bob"], [10, 20, 10], [4.0, 2.5, 5.0])
        >>> data
        Interactions(n_users=2, n_tasks=2, n_observations=3)
        >>> data.without(0).by_task.counts
        array([1, 0])
    """

    users: NDArray[np.int32]
    tasks: NDArray[np.int32]
    values: NDArray[np.float32]
    timestamps: NDArray[np.int64] | None
    user_ids: Vocabulary
    task_ids: Vocabulary

    def __post_init__(self) -> None:
        self._check_shapes()
        checked_codes(self.users, self.user_ids)
        checked_codes(self.tasks, self.task_ids)
        refuse_other_order(self.users, self.tasks)
        for name in ("users", "tasks", "values", "timestamps"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, protected(getattr(self, name)))

    @cached_property
    def as_users(self) -> Users:
        """The same rows as a run of users for engines. The arrays are shared."""
        columns = {"tasks": self.tasks, "values": self.values}
        keys = partial(sampling_keys, self.user_ids)
        return Users(self.by_user.indptr, columns, n_tasks=self.n_tasks, keys=keys)

    # -- ways in --

    @classmethod
    def from_arrays(
        cls,
        users: ArrayLike,
        tasks: ArrayLike,
        values: ArrayLike | None = None,
        timestamps: ArrayLike | None = None,
        *,
        task_ids: ArrayLike | Vocabulary | None = None,
        single_user: bool = False,
    ) -> Interactions:
        """Build from parallel arrays of ids (integers or text) in any order.

        Args:
            users: id of the user of each observation.
            tasks: id of its task.
            values: its value; by default all ones.
            timestamps: seconds since 1970 or `datetime64`.
            task_ids: the public list of tasks; by default the tasks that occur.
            single_user: whether a single user is allowed, as in a history; otherwise it is refused.
        """
        encoded = encode_ids(users, "users", name="user")
        n_rows = len(encoded.codes)
        given = as_array(tasks)
        if given.shape != (n_rows,):
            raise InputError(
                f"Expected tasks to have {n_rows} rows, one per user, got shape {given.shape}.", argument="tasks"
            )
        return cls.from_encoded(
            encoded,
            encode_ids(given, "tasks", name="item"),
            None if values is None else as_values(values, "values", n_rows=n_rows),
            None if timestamps is None else as_timestamps(timestamps, "timestamps", n_rows=n_rows),
            task_ids=task_ids,
            single_user=single_user,
        )

    @classmethod
    def from_encoded(
        cls,
        users: EncodedIds,
        tasks: EncodedIds,
        values: NDArray[np.float32] | None,
        timestamps: NDArray[np.int64] | None,
        *,
        task_ids: ArrayLike | Vocabulary | None = None,
        single_user: bool = False,
        by_text: bool = False,
    ) -> Interactions:
        """Build from encoded columns, in the order of their rows; the readers end here.

        Rows of a file match a list of tasks by text, because a file may have no schema.
        """
        if not single_user:
            refuse_single_user(users, allowed_by="single_user")
        tasks = match_public_list(tasks, task_ids, by_text=by_text)
        return cls.from_codes(
            users.codes, tasks.codes, values, timestamps, user_ids=users.vocabulary, task_ids=tasks.vocabulary
        )

    @classmethod
    def from_codes(
        cls,
        users: ArrayLike,
        tasks: ArrayLike,
        values: ArrayLike | None = None,
        timestamps: ArrayLike | None = None,
        *,
        user_ids: Vocabulary,
        task_ids: Vocabulary,
    ) -> Interactions:
        """Build from codes into given vocabularies, in any order; users and tasks may have no rows."""
        user_codes = checked_codes(users, user_ids)
        task_codes = checked_codes(tasks, task_ids)
        n_rows = len(user_codes)
        if len(task_codes) != n_rows:
            raise InputError(
                f"Expected tasks to have {n_rows} rows, one per user, got {len(task_codes)}.", argument="tasks"
            )
        columns: list[NDArray[Any] | None] = [
            user_codes,
            task_codes,
            np.ones(n_rows, np.float32) if values is None else as_values(values, "values", n_rows=n_rows),
            None if timestamps is None else as_timestamps(timestamps, "timestamps", n_rows=n_rows),
        ]
        del user_codes, task_codes, users, tasks, values, timestamps  # with 25M rows, nothing may be held twice
        sort_user_major(columns, user_ids, task_ids)
        return cls(*columns, user_ids=user_ids, task_ids=task_ids)  # type: ignore[arg-type,misc]

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: str | None = None,
        task: str | None = None,
        value: ColumnChoice = None,
        timestamp: ColumnChoice = None,
        task_ids: ArrayLike | Vocabulary | None = None,
        single_user: bool = False,
        rules: RowRules | None = None,
        left_out: dict[str, int] | None = None,
    ) -> Interactions:
        """Build from any frame that supports Arrow: polars, pandas, DuckDB, pyarrow.

        Args:
            frame: an object with the Arrow C stream protocol.
            user: name of the user column; by default guessed from the usual names, like the others.
            task: name of the task (item) column.
            value: name of the value column, or `IGNORE`; without one every value is 1.
            timestamp: name of the timestamp column, or `IGNORE`.
            task_ids: the public list of tasks; by default the tasks that occur.
            single_user: whether one user is enough; see `from_arrays`.
            rules: which rows are kept, and what becomes of empty cells and repeated pairs; by default both are refused.
            left_out: receives the number of rows that each rule left out; it is private.
        """
        from apportion.data.readers import read_frame

        choices = {"user": user, "task": task, "value": value, "timestamp": timestamp}
        finish = partial(cls.from_encoded, task_ids=task_ids, single_user=single_user)
        return read_frame(frame, choices, finish, rules=rules, left_out=left_out)

    @classmethod
    def read(
        cls,
        path: Place,
        *,
        user: str | None = None,
        task: str | None = None,
        value: ColumnChoice = None,
        timestamp: ColumnChoice = None,
        task_ids: ArrayLike | Vocabulary | None = None,
        columns: list[str] | tuple[str, ...] | None = None,
        separator: str | None = None,
        table: str | None = None,
        single_user: bool = False,
        rules: RowRules | None = None,
        left_out: dict[str, int] | None = None,
    ) -> Interactions:
        """Read a table: text (CSV, TSV, MovieLens .dat, JSON lines; also .gz), Parquet, Arrow or a database.

        Args:
            path: a file, a folder or pattern of files, several of them, or the URL of a PostgreSQL database.
            user: as in `from_frame`, and so are `task`, `value`, `timestamp` and `task_ids`.
            task: see `user`.
            value: see `user`.
            timestamp: see `user`.
            task_ids: see `user`.
            columns: names of all columns, for a text file without a header line.
            separator: the separator of columns; by default guessed from the first line.
            table: a table of a database, or a query; by default the only table.
            single_user: whether one user is enough; see `from_arrays`.
            rules: see `from_frame`, and so is `left_out`.
            left_out: see `rules`.
        """
        from apportion.data.readers import read_file

        choices = {"user": user, "task": task, "value": value, "timestamp": timestamp}
        finish = partial(cls.from_encoded, task_ids=task_ids, single_user=single_user, by_text=True)
        return read_file(
            path, choices, finish, columns=columns, separator=separator, table=table, rules=rules, left_out=left_out
        )

    # -- what it holds --

    @property
    def n_users(self) -> int:
        """Size of the user vocabulary, including users without observations."""
        return len(self.user_ids)

    @property
    def n_tasks(self) -> int:
        """Size of the task vocabulary, including tasks without observations."""
        return len(self.task_ids)

    @property
    def n_observations(self) -> int:
        """The number of observed (user, task) pairs."""
        return len(self.users)

    @property
    def digest(self) -> str:
        """A digest of all rows and ids. It is private, like the data."""
        made = sha256()
        for column in (self.users, self.tasks, self.values, self.timestamps):
            made.update(b"-" if column is None else np.ascontiguousarray(column).data)
        for ids in (self.user_ids, self.task_ids):
            held = repr(ids.ids.tolist()).encode() if ids.holds_text else np.ascontiguousarray(ids.ids).data
            made.update(held)
        return made.hexdigest()

    @cached_property
    def by_user(self) -> Segments:
        """One segment per user; indices are tasks."""
        return segments_by_user(self.users, self.tasks, self.values, self.n_users)

    @cached_property
    def by_task(self) -> Segments:
        """One segment per task; indices are users, ascending, and `order` points to the user-major arrays."""
        return segments_by_task(self.users, self.tasks, self.values, self.n_tasks)

    # -- other data sets made from it --

    def without(self, user: int) -> Interactions:
        """Return the neighbouring data set without one user: same vocabularies, every other row unchanged."""
        if not 0 <= user < self.n_users:
            raise InputError(f"Expected a user code from 0 to {self.n_users - 1}, got {user}.", argument="user")
        return self.where(self.users != user)

    def select_users(self, users: ArrayLike) -> Interactions:
        """Return only the rows of some users, given as codes or as a mask over all users; vocabularies stay."""
        chosen = np.asarray(users)
        if chosen.dtype != bool:
            codes = checked_codes(chosen, self.user_ids)
            chosen = np.zeros(self.n_users, bool)
            chosen[codes] = True
        if chosen.shape != (self.n_users,):
            raise InputError(f"Expected a mask over {self.n_users} users, got shape {chosen.shape}.", argument="users")
        return self.where(chosen[self.users])

    def where(self, mask: ArrayLike) -> Interactions:
        """Return only the observations where a mask is true; vocabularies stay."""
        kept = np.asarray(mask)
        if kept.dtype != bool or kept.shape != (self.n_observations,):
            raise InputError(
                f"Expected a boolean mask over {self.n_observations} observations, "
                f"got {kept.dtype} of shape {kept.shape}.",
                argument="mask",
            )
        timestamps = None if self.timestamps is None else self.timestamps[kept]
        return self._like(self.users[kept], self.tasks[kept], self.values[kept], timestamps)

    def recoded(self, codes: NDArray[np.int32], task_ids: Vocabulary) -> Interactions:
        """Return the rows on another list of tasks; codes[i] is the new code of task i, -1 if the list lacks it."""
        moved = codes[self.tasks]
        kept = self.where(moved >= 0)
        return Interactions.from_codes(
            kept.users, moved[moved >= 0], kept.values, kept.timestamps, user_ids=self.user_ids, task_ids=task_ids
        )

    def first_task(self, among: NDArray[np.bool_]) -> int | None:
        """Return the task of the first row whose task is among these; None if no row has one of them."""
        found = among[self.tasks]
        return int(self.tasks[int(np.argmax(found))]) if found.any() else None

    def with_public_tasks(self) -> Interactions:
        """The same data, with their list of tasks declared public: which tasks occur is then not protected."""
        listed = Vocabulary(self.task_ids.ids, name=self.task_ids.name, declared=True)
        return Interactions(self.users, self.tasks, self.values, self.timestamps, self.user_ids, listed)

    def with_values(self, values: ArrayLike) -> Interactions:
        """Return the same pairs with other values: one per observation, user-major, or one number for all."""
        if np.ndim(values) == 0:
            values = np.full(self.n_observations, values)
        new_values = as_values(values, "values", n_rows=self.n_observations)
        return self._like(self.users, self.tasks, new_values, self.timestamps)

    def split_by_value(
        self, rng: np.random.Generator, fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
    ) -> tuple[Interactions, ...]:
        """Partition the observations at random; see `apportion.data.splits.split_by_value`."""
        from apportion.data.splits import split_by_value

        return split_by_value(self, rng, fractions)

    def split_by_time(self, fractions: tuple[float, ...] = (0.8, 0.1, 0.1)) -> tuple[Interactions, ...]:
        """Partition the observations by time; see `apportion.data.splits.split_by_time`."""
        from apportion.data.splits import split_by_time

        return split_by_time(self, fractions)

    def split_by_users(
        self, rng: np.random.Generator, n_validation: int, n_test: int, history: float = 0.8, *, by_time: bool = False
    ) -> UserSplit:
        """Hold out whole users; see `apportion.data.splits.split_by_users`."""
        from apportion.data.splits import split_by_users

        return split_by_users(self, rng, n_validation, n_test, history, by_time=by_time)

    # -- manners --

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interactions):
            return NotImplemented
        if (self.timestamps is None) != (other.timestamps is None):
            return False
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("users", "tasks", "values", "timestamps")]
        same_rows = all(mine is None or np.array_equal(mine, theirs) for mine, theirs in pairs)
        return same_rows and self.user_ids == other.user_ids and self.task_ids == other.task_ids

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = f"n_users={self.n_users}, n_tasks={self.n_tasks}, n_observations={self.n_observations}"
        return f"Interactions({sizes})"

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = (self.users, self.tasks, self.values, self.timestamps)
        return Interactions, (*arrays, self.user_ids, self.task_ids)

    def _like(
        self,
        users: NDArray[np.int32],
        tasks: NDArray[np.int32],
        values: NDArray[np.float32],
        timestamps: NDArray[np.int64] | None,
    ) -> Interactions:
        return Interactions(users, tasks, values, timestamps, self.user_ids, self.task_ids)

    def _check_shapes(self) -> None:
        expected = {"users": np.int32, "tasks": np.int32, "values": np.float32, "timestamps": np.int64}
        for name, dtype in expected.items():
            array = getattr(self, name)
            if array is None and name == "timestamps":
                continue
            if array.dtype != dtype or array.shape != self.users.shape or array.ndim != 1:
                raise InputError(
                    f"Expected {name} as {np.dtype(dtype)} of shape {self.users.shape}, "
                    f"got {array.dtype} of shape {array.shape}.",
                    argument=name,
                )
        finite_float32(self.values, "values", first_row=1)
