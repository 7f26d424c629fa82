"""Times that are written as text, as whole seconds and nanoseconds.

Each cell is read by itself, to the last digit. What another row of the column holds never changes what a cell means:
else one user's cell would change which row of another user is the last (docs/proofs/row_rules.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.data.vocabulary import bad_cell

if TYPE_CHECKING:
    import pyarrow as pa

UNREADABLE: Final = -(2**63)
"""Stands for the time of a cell that holds none: it is before all others."""

_PLAIN: Final = r"^[+-]?(\d{1,18}(\.\d*)?|\.\d+)$"
_NUMBER: Final = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?$"
_DAY: Final = r"^(\d{3}[1-9]|\d{2}[1-9]0|\d[1-9]00|[1-9]000)-\d{2}-\d{2}"  # not of the year 0, which only Arrow knows
_CLOCK: Final = r"[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
_DATE: Final = rf"{_DAY}({_CLOCK})?$"
_WITH_ZONE: Final = rf"{_DAY}{_CLOCK}(Z|[+-]\d{{2}}(:?\d{{2}})?)$"
_EXPECTED: Final = "a time in seconds or as 2026-11-16 09:30"
_ALIKE: Final = np.array([0, 0, 1, 2, 3])  # of each kind: both kinds of numbers may be in one column
_NANO: Final = 10**9

Parts = tuple[NDArray[np.int64], NDArray[np.int32] | None]
"""Whole seconds of all rows, and what is left of them in nanoseconds; None if nothing is."""


def times_of_texts(cells: pa.Array, column: str, first_row: int, *, loose: bool) -> Parts:
    """Return times: numbers of seconds, or dates in ISO 8601, with or without a zone.

    Args:
        cells: texts without nulls.
        column: their column, for errors.
        first_row: the number of the first row, for errors.
        loose: whether a cell that holds no time is `UNREADABLE` and numbers and dates may be mixed; else refused.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells.cast(pa.large_string()))
    whole = _integers(cells)
    if whole is not None:
        return whole, None
    kinds = _kinds(cells)
    seconds, rest = np.full(len(cells), UNREADABLE, np.int64), np.zeros(len(cells), np.int32)
    readers: Sequence[Callable[[Any], Parts]] = (_decimals, _odd_numbers, _dates, _dates)
    for kind, read in enumerate(readers):
        chosen = kinds == kind
        if chosen.any():
            seconds[chosen], left = read(cells.filter(pa.array(chosen)))
            rest[chosen] = 0 if left is None else left
    if not loose:
        _refuse_unlike(cells, seconds, _ALIKE[kinds], column, first_row)
    return seconds, rest if rest.any() else None


def _integers(cells: pa.Array) -> NDArray[np.int64] | None:
    """Return all cells as integers; None if one is something else."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.match_substring(cells, "x", ignore_case=True)).as_py():  # Arrow reads 0x1F, which is no time
        return None
    try:
        found: NDArray[np.int64] = cells.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return found if not len(found) or found.min() > UNREADABLE else None


def _kinds(cells: pa.Array) -> NDArray[np.int64]:
    """Return 0 for plain numbers, 1 for other numbers, 2 for dates, 3 for those with a zone, 4 for all else."""
    import pyarrow.compute as pc

    found = [
        pc.match_substring_regex(cells, pattern).to_numpy(zero_copy_only=False)
        for pattern in (_PLAIN, _NUMBER, _DATE, _WITH_ZONE)
    ]
    return np.asarray(np.select(found, range(4), default=4), np.int64)


def _refuse_unlike(
    cells: pa.Array, seconds: NDArray[np.int64], kinds: NDArray[np.int64], column: str, first_row: int
) -> None:
    """Refuse a cell that holds no time, and one of another kind than the first; name the first of them."""
    bad = (seconds == UNREADABLE) | (kinds != kinds[0])
    if bad.any():
        position = int(np.argmax(bad))
        raise bad_cell(column, cells[position].as_py(), first_row + position, _EXPECTED)


def _decimals(cells: pa.Array) -> Parts:
    """Read numbers of at most 18 digits before the point; digits beyond nanoseconds are cut off."""
    import pyarrow as pa
    import pyarrow.compute as pc

    exact = pc.replace_substring_regex(cells, r"(\.\d{9})\d+$", r"\1").cast(pa.decimal128(28, 9))
    truncated = pc.CastOptions(target_type=pa.int64(), allow_decimal_truncate=True)
    seconds = exact.cast(options=truncated)
    left = pc.subtract(exact, seconds.cast(pa.decimal128(19, 0))).cast(pa.float64())
    return seconds.to_numpy(), np.rint(left.to_numpy() * _NANO).astype(np.int32)


def _odd_numbers(cells: pa.Array) -> Parts:
    """Read other numbers, such as 1e9, one text at a time."""
    return _one_by_one(cells, _odd_number)


def _odd_number(text: str) -> tuple[int, int]:
    number = Decimal(text)
    seconds = int(number)
    if not -(2**63) < seconds < 2**63:
        raise ValueError(text)
    return seconds, int((number - seconds) * _NANO)


def _dates(cells: pa.Array) -> Parts:
    """Read dates, to the microsecond."""
    import pyarrow as pa
    import pyarrow.compute as pc

    short = pc.replace_substring_regex(cells, r"(\.\d{6})\d+", r"\1")
    zone = "UTC" if pc.match_substring_regex(cells, _WITH_ZONE)[0].as_py() else None
    try:
        micros = short.cast(pa.timestamp("us", zone)).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return _one_by_one(short, _date)
    seconds = micros // 10**6
    return seconds, ((micros - seconds * 10**6) * 1000).astype(np.int32)


def _date(text: str) -> tuple[int, int]:
    found = datetime.fromisoformat(text)
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    since = found - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86400 + since.seconds, since.microseconds * 1000


def _one_by_one(cells: pa.Array, read: Callable[[str], tuple[int, int]]) -> Parts:
    """Read each distinct text by a function that raises if it holds no time."""
    coded = cells.dictionary_encode()
    pairs = [_or_unreadable(read, text) for text in coded.dictionary.to_pylist()]
    found = np.array(pairs, np.int64).reshape(-1, 2)[coded.indices.to_numpy()]
    return found[:, 0], found[:, 1].astype(np.int32)


def _or_unreadable(read: Callable[[str], tuple[int, int]], text: str) -> tuple[int, int]:
    try:
        return read(text)
    except (ValueError, InvalidOperation, OverflowError):
        return UNREADABLE, 0
