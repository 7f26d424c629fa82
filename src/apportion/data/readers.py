"""Readers: frames that support Arrow, and files of any format, become `Interactions`, batch by batch.

Each reader finds the columns, streams their record batches into the gatherers of `arrow_columns`, and ends in
`Interactions.from_encoded`. No reader holds the file as text or as Python objects. Errors raised while reading a file
begin with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import IdColumn, TimeColumn, ValueColumn
from apportion.data.columns import ColumnChoice, Columns, choose_columns, refuse_uneven_guess
from apportion.data.encoding import EncodedIds
from apportion.data.frames import batches_of
from apportion.data.interactions import Interactions
from apportion.data.repeats import Rows, combine_repeats
from apportion.data.row_rules import RowRules, among_kept
from apportion.data.sources import CellKind, Place, naming, open_table
from apportion.errors import InputError
from apportion.linalg.threads import side_by_side

if TYPE_CHECKING:
    import pyarrow as pa

Choices = Mapping[str, ColumnChoice]
Gatherers = Sequence[IdColumn | ValueColumn | TimeColumn]
Finish = Callable[..., Interactions]
_ROWS_FOR_THREADS = 1 << 16  # rows of a batch; smaller batches are not worth a thread
"""`Interactions.from_encoded` with everything but the columns given."""


def read_file(
    path: Place,
    choices: Choices,
    finish: Finish,
    *,
    columns: list[str] | tuple[str, ...] | None = None,
    separator: str | None = None,
    table: str | None = None,
    rules: RowRules | None = None,
    left_out: dict[str, int] | None = None,
) -> Interactions:
    """Read a file; see `Interactions.read`."""
    with naming(path):
        source = open_table(path, columns=columns, separator=separator, table=table)
        chosen = choose_columns(source.names, choices)
        refuse_uneven_guess(source, choices)
        reading = _Reading(chosen, rules or RowRules(), finish, untyped=source.untyped, ordered=source.ordered)
        kinds = reading.rules.kinds(_kinds(chosen), source.names, untyped=source.untyped)
        return source.scan(kinds, lambda batches, _: reading.gather(batches, left_out))


def read_frame(
    frame: Any,
    choices: Choices,
    finish: Finish,
    *,
    rules: RowRules | None = None,
    left_out: dict[str, int] | None = None,
) -> Interactions:
    """Read any frame that supports Arrow; see `Interactions.from_frame`."""
    rules = rules or RowRules()
    reader = batches_of(frame, lambda names: _wanted(names, choices, rules))
    _wanted(tuple(reader.schema.names), choices, rules)
    return _Reading(choose_columns(reader.schema.names, choices), rules, finish).gather(reader, left_out)


def _wanted(found: tuple[str, ...], choices: Choices, rules: RowRules) -> list[str]:
    """Return the columns to read: those of the roles, then those of the rules."""
    roles = _kinds(choose_columns(found, choices))
    return list(roles | rules.kinds(roles, found, untyped=False))


def _kinds(columns: Columns) -> dict[str, CellKind]:
    """Return what the columns of interactions hold."""
    kinds: dict[str, CellKind] = {columns.user: "id", columns.task: "id"}
    if columns.value is not None:
        kinds[columns.value] = "number"
    if columns.timestamp is not None:
        kinds[columns.timestamp] = "time"
    return kinds


@dataclass(frozen=True)
class _Reading:
    """How batches become interactions."""

    columns: Columns
    rules: RowRules
    finish: Finish
    untyped: bool = False
    ordered: bool = True

    def __post_init__(self) -> None:
        needs_order = self.rules.repeats in ("last", "first") and self.columns.value is not None
        if needs_order and not self.ordered and self.columns.timestamp is None:
            problem = f"The {self.rules.repeats} of several rows is not known, because these rows have no order"
            raise InputError(problem, argument="timestamp", remedy="name the column of their times with")

    def gather(self, batches: Iterable[pa.RecordBatch], left_out: dict[str, int] | None) -> Interactions:
        """Stream batches into one gatherer per column, then encode."""
        user = IdColumn(self.columns.user, name="user", untyped=self.untyped)
        task = IdColumn(self.columns.task, name="item", untyped=self.untyped)
        value = None if self.columns.value is None else ValueColumn(self.columns.value)
        timestamp = None if self.columns.timestamp is None else self._times(self.columns.timestamp)
        counted: dict[str, int] = {}
        self._stream(batches, [each for each in (user, task, value, timestamp) if each is not None], counted)
        parts = None if timestamp is None else timestamp.nanoseconds()
        rows = (None if value is None else value.finish(), None if timestamp is None else timestamp.finish(), parts)
        return self._joined(user.finish(), task.finish(), *rows, counted, left_out)

    def _times(self, column: str) -> TimeColumn:
        return TimeColumn(column, loose=self.rules.loose_times)

    def _stream(self, batches: Iterable[pa.RecordBatch], gatherers: Gatherers, counted: dict[str, int]) -> None:
        self.rules.pass_on(batches, _kinds(self.columns), counted, partial(_append, gatherers))

    def _joined(
        self,
        users: EncodedIds,
        tasks: EncodedIds,
        values: NDArray[np.float32] | None,
        timestamps: NDArray[np.int64] | None,
        nanoseconds: NDArray[np.int32] | None,
        counted: dict[str, int],
        left_out: dict[str, int] | None,
    ) -> Interactions:
        """Join repeated pairs and encode the columns. Also count the rows that were left out."""
        if self.untyped:
            with among_kept(any(counted.values())):
                _refuse_repeated_names(self.columns, users, tasks)
        rows = Rows(users.codes, tasks.codes, values, timestamps, nanoseconds)
        sizes = (len(users.vocabulary), len(tasks.vocabulary))
        one_each = combine_repeats(rows, self.rules.repeats, *sizes, by_row=self.ordered)
        if left_out is not None:
            left_out.update(counted, repeats=len(rows.users) - len(one_each.users))
        return self.finish(
            replace(users, codes=one_each.users),
            replace(tasks, codes=one_each.tasks),
            one_each.values,
            one_each.timestamps,
        )


def _refuse_repeated_names(columns: Columns, users: EncodedIds, tasks: EncodedIds) -> None:
    """Refuse a file in which the line of column names comes again, as in files that were joined end to end."""
    if not (users.vocabulary.holds_text and tasks.vocabulary.holds_text):
        return
    again = (users.codes == users.vocabulary.find([columns.user])[0]) & (
        tasks.codes == tasks.vocabulary.find([columns.task])[0]
    )
    if again.any():
        row = int(np.argmax(again)) + 1
        problem = f"Row {row} (counting data rows from 1) holds the column names again; remove such lines."
        raise InputError(problem, argument=None)


def _append(gatherers: Gatherers, batch: pa.RecordBatch, first_row: int) -> None:
    """Append a batch to every column, large batches in parallel.

    Of several bad cells, name the one of the first column.
    """
    if not batch.num_rows:
        return
    threads = None if batch.num_rows >= _ROWS_FOR_THREADS else 1
    for _ in side_by_side(lambda each: each.append(batch.column(each.column), first_row), gatherers, threads):
        pass
