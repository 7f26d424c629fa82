"""Dates as bins of time: a day, a week, a month, a quarter or a year is a group like any other.

Dates are texts in ISO 8601, with or without a time of day, or Unix time. Each text is read by itself: its number of
digits says what is Unix time, never another row. All other texts are in one further bin, so that no row is refused
because of what one user wrote.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final, Literal, get_args

import numpy as np

from apportion.data.encoding import EncodedIds
from apportion.data.item_lists import texts_of
from apportion.data.vocabulary import Vocabulary, as_text

Bin = Literal["day", "week", "month", "quarter", "year"]
BINS: Final[tuple[Bin, ...]] = get_args(Bin)
NO_DATE: Final = "no date"
# Seconds of 1973 to 2286; with three further digits, milliseconds.
_UNIX: Final = re.compile(r"([0-9]{9,10})([0-9]{3})?(\.[0-9]*)?")


def in_bins(column: EncodedIds, size: Bin) -> EncodedIds:
    """Return the bin of each row. The text order of bins is their order in time.

    Args:
        column: dates as text.
        size: the size of a bin.
    """
    names = [bin_of(text, size) for text in texts_of(column.vocabulary)]
    found = sorted(set(names))
    place = {name: code for code, name in enumerate(found)}
    codes = np.array([place[name] for name in names], np.int32)
    return EncodedIds(column.column, codes[column.codes], Vocabulary(as_text(found, "group"), name="group"))


def undated(column: EncodedIds) -> tuple[int, str]:
    """Return how many rows hold no date, and what one of them holds; nothing is released of this.

    >>> from apportion.data.encoding import encode_ids
    >>> undated(encode_ids(["2024-12-30", "30.12.2024", "30.12.2024"], "when", name="date"))
    (2, '30.12.2024')
    """
    texts = texts_of(column.vocabulary)
    unreadable = np.array([bin_of(text, "day") == NO_DATE for text in texts], bool)
    rows = np.flatnonzero(unreadable[column.codes])
    return (len(rows), texts[column.codes[rows[0]]]) if len(rows) else (0, "")


def bin_of(text: str, size: Bin) -> str:
    """Return the bin of one date.

    >>> [bin_of("2024-12-30T09:15", size) for size in BINS]
    ['2024-12-30', '2025-W01', '2024-12', '2024-Q4', '2024']
    >>> bin_of("yesterday", "week")
    'no date'
    >>> [bin_of(text, "month") for text in ("1735430400", "1735430400000", "1735430400.5", "20241229", "2024")]
    ['2024-12', '2024-12', '2024-12', '2024-12', 'no date']
    """
    cell = text.strip()
    if (unix := _UNIX.fullmatch(cell)) is not None:
        return _name(datetime.fromtimestamp(int(unix[1]), UTC).date(), size)
    try:
        day = datetime.fromisoformat(cell).date()
    except ValueError:
        return NO_DATE
    return _name(day, size)


def _name(day: date, size: Bin) -> str:
    if size == "week":
        year, week, _ = day.isocalendar()
        return f"{year:04}-W{week:02}"
    if size == "quarter":
        return f"{day.year:04}-Q{(day.month + 2) // 3}"
    return day.isoformat()[: {"day": 10, "month": 7, "year": 4}[size]]
