"""Readers: frames that support Arrow, and files of any format, become `Interactions`, batch by batch.

Each reader finds the columns, streams their record batches into the gatherers of `arrow_columns`, and ends in
`Interactions.from_encoded`. No reader holds the file as text or as Python objects. Errors raised while reading a file
begin with its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.data.arrow_columns import IdColumn, TimeColumn, ValueColumn, first_failing
from apportion.data.columns import ColumnChoice, Columns, choose_columns
from apportion.data.interactions import Interactions
from apportion.data.sources import CellKind, naming, open_table
from apportion.data.vocabulary import bad_cell
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Choices = Mapping[str, ColumnChoice]
Finish = Callable[..., Interactions]
"""`Interactions.from_encoded` with everything but the columns given."""


def read_file(
    path: str | os.PathLike[str],
    choices: Choices,
    finish: Finish,
    *,
    columns: list[str] | tuple[str, ...] | None = None,
    separator: str | None = None,
) -> Interactions:
    """Read a file; see `Interactions.read`."""
    file = Path(path)
    with naming(file):
        source = open_table(file, columns=columns, separator=separator)
        chosen = choose_columns(source.names, choices)
        return source.scan(_kinds(chosen), lambda batches, _: _gather(batches, chosen, finish, untyped=source.untyped))


def read_frame(frame: Any, choices: Choices, finish: Finish) -> Interactions:
    """Read any frame that supports Arrow; see `Interactions.from_frame`."""
    import pyarrow as pa

    if not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            "Expected a frame that supports Arrow (polars, pandas, DuckDB, pyarrow), got "
            f"{type(frame).__module__}.{type(frame).__name__}.",
            argument="frame",
        )
    if hasattr(frame, "iloc"):  # pandas converts on export: only the columns that are needed
        frame = frame[choose_columns([str(name) for name in frame.columns], choices).names]
    try:
        reader = pa.RecordBatchReader.from_stream(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _mixed_column(frame, error) from None
    chosen = choose_columns(reader.schema.names, choices)
    return _gather(reader, chosen, finish)


def _kinds(columns: Columns) -> dict[str, CellKind]:
    """Return what the columns of interactions hold."""
    kinds: dict[str, CellKind] = {columns.user: "id", columns.task: "id"}
    if columns.value is not None:
        kinds[columns.value] = "number"
    if columns.timestamp is not None:
        kinds[columns.timestamp] = "time"
    return kinds


def _gather(
    batches: Iterable[pa.RecordBatch], columns: Columns, finish: Finish, *, untyped: bool = False
) -> Interactions:
    """Stream batches into one gatherer per column, then encode."""
    user = IdColumn(columns.user, name="user", untyped=untyped)
    task = IdColumn(columns.task, name="task", untyped=untyped)
    value = None if columns.value is None else ValueColumn(columns.value)
    timestamp = None if columns.timestamp is None else TimeColumn(columns.timestamp)
    gatherers = [each for each in (user, task, value, timestamp) if each is not None]
    n_rows = 0
    for batch in batches:
        for gatherer in gatherers if batch.num_rows else ():
            gatherer.append(batch.column(gatherer.column), n_rows + 1)
        n_rows += batch.num_rows
    if not n_rows:
        raise InputError(
            f"There are no rows; expected at least two in columns {', '.join(columns.names)}.", argument=None
        )
    return finish(
        user.finish(),
        task.finish(),
        None if value is None else value.finish(),
        None if timestamp is None else timestamp.finish(),
    )


def _mixed_column(frame: Any, error: Exception) -> InputError:
    """Return the error for a frame whose export failed: name the first cell that does not fit its column."""
    import pyarrow as pa

    def converts(cells: Any) -> bool:
        try:
            pa.array(cells, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return False
        return True

    for name in getattr(frame, "columns", ()):
        cells = np.asarray(frame[name], dtype=object)
        position = first_failing(cells, converts)
        if position is not None:
            return bad_cell(str(name), cells[position], position + 1, "a cell of the same type as those before it")
    return InputError(f"The frame cannot be read as Arrow: {str(error).splitlines()[0]}", argument="frame")
