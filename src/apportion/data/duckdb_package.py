"""The package duckdb: imported where it is used, and refused in one sentence if it is missing or too old."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_reader", "imported_duckdb"]


def imported_duckdb(need: str, *, extra: str, oldest: tuple[int, int], argument: str | None = None) -> Any:
    """Return the package duckdb.

    Args:
        need: what needs it, as the beginning of a sentence: "A query needs".
        extra: the extra of this package that brings it.
        oldest: the oldest version that will do.
        argument: the argument that asked for it, for the error.
    """
    wanted = ".".join(map(str, oldest))
    remedy = f"install it with: pip install 'apportion[{extra}]'."
    try:
        duckdb = import_module("duckdb")
    except ImportError:
        raise InputError(f"{need} duckdb {wanted} or later; {remedy}", argument=argument) from None
    found = tuple(int(number) for number in re.findall(r"\d+", duckdb.__version__)[:2])
    if found < oldest:
        problem = f"{need} duckdb {wanted} or later, and {duckdb.__version__} is installed; {remedy}"
        raise InputError(problem, argument=argument)
    return duckdb


def arrow_reader(relation: Any, n_rows: int) -> pa.RecordBatchReader:
    """Return the rows of a query in batches; before version 1.5 of DuckDB, the method has its other name."""
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return read(n_rows)
