"""Frames of other libraries as batches of Arrow: polars (also lazy), pandas, DuckDB, pyarrow.

A frame that its library cannot hand over is refused in one sentence, which names the first bad cell if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.data.arrow_columns import first_failing
from apportion.data.vocabulary import bad_cell
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Wanted = Callable[[tuple[str, ...]], list[str]]
"""Given the names of all columns, returns those to read."""


def batches_of(frame: Any, wanted: Wanted) -> pa.RecordBatchReader:
    """Return the batches of a frame that supports Arrow. Of lazy and pandas frames, only the wanted columns."""
    import pyarrow as pa

    if hasattr(frame, "collect_schema") and hasattr(frame, "lazy"):
        frame = _collected(frame, wanted)
    if not hasattr(frame, "__arrow_c_stream__") or not (hasattr(frame, "columns") or hasattr(frame, "schema")):
        raise InputError(
            "Expected a frame that supports Arrow (polars, pandas, DuckDB, pyarrow), got "
            f"{type(frame).__module__}.{type(frame).__name__}.",
            argument="frame",
        )
    if hasattr(frame, "iloc"):
        frame = _with_text_names(frame, wanted)
    try:
        return pa.RecordBatchReader.from_stream(frame)
    except InputError:
        raise
    except Exception as error:  # whatever another library raises about cells that Arrow does not have
        raise _refusal(frame, error) from None


def _collected(frame: Any, wanted: Wanted) -> Any:
    """Return a lazy frame's wanted columns, computed."""
    try:
        names = tuple(frame.collect_schema().names())
    except Exception as error:
        raise InputError(f"The lazy frame cannot be computed: {_first_line(error)}.", argument="frame") from None
    columns = wanted(names)
    try:
        return frame.select(columns).lazy().collect()
    except Exception as error:
        raise InputError(f"The lazy frame cannot be computed: {_first_line(error)}.", argument="frame") from None


def _with_text_names(frame: Any, wanted: Wanted) -> Any:
    """Return the wanted columns of a pandas frame, which may call them by numbers. Its export converts every column."""
    names = tuple(str(name) for name in frame.columns)
    columns = wanted(names)
    chosen = frame.iloc[:, [names.index(name) for name in columns]]
    return chosen.set_axis(columns, axis=1)


def _refusal(frame: Any, error: Exception) -> InputError:
    """Return the error for a frame whose export failed: name the first cell that does not fit its column."""
    import pyarrow as pa

    def converts(cells: Any) -> bool:
        try:
            pa.array(cells, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):
            return False
        return True

    for name in _names(frame):
        position = None
        with suppress(Exception):  # columns that NumPy does not have either
            cells = np.asarray(frame[name], dtype=object)
            position = first_failing(cells, converts)
        if position is not None:
            return bad_cell(str(name), cells[position], position + 1, "a cell of the same type as those before it")
    return InputError(f"The frame cannot be read as Arrow: {_first_line(error)}.", argument="frame")


def _names(frame: Any) -> Sequence[Any]:
    return tuple(getattr(frame, "columns", ()))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
