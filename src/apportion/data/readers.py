"""Readers: frames that speak Arrow, Parquet files and text files become `Interactions`, batch by batch.

Each reader finds the columns, streams their record batches into the gatherers of `arrow_columns`, and ends in
`Interactions.from_encoded`. No reader holds the file as text or as Python objects, and errors raised while
reading a file begin with its name.
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
from apportion.data.text_files import TextFile, see_layout
from apportion.data.vocabulary import bad_cell
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET_MAGIC = b"PAR1"
_PARQUET_BATCH_ROWS = 1 << 18

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
    """Read a Parquet or a text file; see `Interactions.read`."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    try:
        if _is_parquet(file):
            return _read_parquet(file, choices, finish)
        return _read_text(file, choices, finish, columns, separator)
    except InputError as error:
        raise error.inside(file.name) from None


def read_frame(frame: Any, choices: Choices, finish: Finish) -> Interactions:
    """Read any frame that speaks Arrow; see `Interactions.from_frame`."""
    import pyarrow as pa

    if not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            "Expected a frame that speaks Arrow (polars, pandas, DuckDB, pyarrow), "
            f"got {type(frame).__module__}.{type(frame).__name__}."
        )
    if hasattr(frame, "iloc"):  # pandas converts on export: only the columns that are wanted
        frame = frame[choose_columns([str(name) for name in frame.columns], choices).names]
    try:
        reader = pa.RecordBatchReader.from_stream(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _mixed_column(frame, error) from None
    chosen = choose_columns(reader.schema.names, choices)
    return _gather(reader, chosen, finish)


def _read_parquet(file: Path, choices: Choices, finish: Finish) -> Interactions:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        source = parquet.ParquetFile(file)
        chosen = choose_columns(source.schema_arrow.names, choices)
        return _gather(source.iter_batches(_PARQUET_BATCH_ROWS, columns=chosen.names), chosen, finish)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"The Parquet file cannot be read: {str(error).splitlines()[0]}") from None


def _read_text(
    file: Path,
    choices: Choices,
    finish: Finish,
    columns: list[str] | tuple[str, ...] | None,
    separator: str | None,
) -> Interactions:
    import pyarrow as pa

    layout = see_layout(file, columns, separator)
    text = TextFile(file, layout, choose_columns(layout.names, choices))
    types: dict[str, Any] = {}
    while True:  # at most three times: each id column may turn out to be text
        try:
            types = types or text.first_types()
            return _gather(text.open(types), text.columns, finish, untyped=True)
        except pa.ArrowInvalid as error:
            types = text.corrected_types(types, error)


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
        raise InputError(f"There are no rows; expected at least two in columns {', '.join(columns.names)}.")
    return finish(
        user.finish(),
        task.finish(),
        None if value is None else value.finish(),
        None if timestamp is None else timestamp.finish(),
    )


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


def _mixed_column(frame: Any, error: Exception) -> InputError:
    """The error for a frame whose export failed: name the first cell that does not fit its column."""
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
    return InputError(f"The frame cannot be read as Arrow: {str(error).splitlines()[0]}")
