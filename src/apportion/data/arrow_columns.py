"""Columns that arrive as Arrow batches, gathered into NumPy arrays without a Python object per row.

Integer ids are kept as they are, in the narrowest type that holds a batch. Text ids are looked up batch by batch in a
growing list, so that only int32 codes are kept. Values become float32 (or float64) at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_texts import ArrowTexts, is_dictionary_of_texts, is_text
from apportion.data.encoding import (
    EncodedIds,
    distinct_integers,
    finite_float32,
    in_sorted_order,
    refuse_where,
    whole_seconds,
)
from apportion.data.time_texts import UNREADABLE, Parts, times_of_texts
from apportion.data.vocabulary import Vocabulary, bad_cell, ids_of_texts, largest_exact, refuse_inexact
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# three digits after a comma may be thousands, so such numbers are refused
_DECIMAL_COMMA = r"^([+-]?\d+),(\d{1,2}|\d{4,})$"
_UNCLEAR_COMMA = r"^[+-]?\d+,\d{3}$"
_TRUTHS = ("true", "false")
_ZONE = r"Z?|[+-]\d{4}"  # after a time, as Arrow writes it

EMPTY_WORDS = ("", "na", "n/a", "nan", "null", "none", "-", "?")
"""Cells of a column of numbers that say that there is none, in lower case."""


class IdColumn:
    """Gathers one column of ids.

    Args:
        column: the name of the column.
        name: what an id is called (user, task).
        untyped: whether the cells come from a text file, whose ids are text. If every id is written as Python writes
            integers, the ids are kept as integers, in their order. So no id loses a character, and no two ids become
            one.
    """

    def __init__(self, column: str, *, name: str, untyped: bool = False) -> None:
        self.column, self.name = column, name
        self._untyped = untyped
        self._integers: list[NDArray[Any]] = []
        self._codes: list[NDArray[np.int32]] = []
        self._texts = ArrowTexts(column)

    def append(self, cells: pa.Array, first_row: int) -> None:
        """Add one batch, whose first row has the given number."""
        if not is_dictionary_of_texts(cells):
            cells = _decoded(cells)
        cells = refuse_nulls(cells, self.column, first_row, "an id")
        if is_text(cells.type) or is_dictionary_of_texts(cells):
            self._codes.append(self._texts.codes_of(cells))
        else:
            self._append_integers(_as_integers(cells, self.column, first_row))

    def finish(self) -> EncodedIds:
        """Return the codes of all rows and the vocabulary, sorted by id. The batches are freed."""
        if self._integers and self._codes:
            raise InputError(f"Column {self.column!r} holds integers in some rows and text in others.", argument=None)
        return self._finish_text() if self._codes else self._finish_integers()

    def _append_integers(self, ids: NDArray[np.int64]) -> None:
        narrow = np.int32 if len(ids) and ids.min() >= -(2**31) and ids.max() < 2**31 else np.int64
        self._integers.append(ids.astype(narrow))

    def _finish_integers(self) -> EncodedIds:
        distinct = distinct_integers(np.concatenate([distinct_integers(ids) for ids in self._integers if len(ids)]))
        vocabulary = Vocabulary(distinct, name=self.name)
        codes = np.empty(sum(map(len, self._integers)), np.int32)
        end = len(codes)
        while self._integers:  # from the back, so that each batch can be freed
            ids = self._integers.pop()
            codes[end - len(ids) : end] = vocabulary.find(ids)
            end -= len(ids)
        return EncodedIds(self.column, codes, vocabulary)

    def _finish_text(self) -> EncodedIds:
        encoded = in_sorted_order(self._texts.texts, self._codes, self.column, name=self.name)
        return _plain_integers(encoded) if self._untyped else encoded


class ValueColumn:
    """Gathers a column of values as float32, or as float64 if every digit matters."""

    def __init__(self, column: str, dtype: type[np.floating[Any]] = np.float32) -> None:
        self.column = column
        self._dtype = dtype
        self._chunks: list[NDArray[Any]] = []

    def append(self, cells: pa.Array, first_row: int) -> None:
        """Add one batch, whose first row has the given number."""
        cells = refuse_nulls(_decoded(cells), self.column, first_row, "a number")
        numbers = _as_floats(cells, self.column, first_row)
        if self._dtype == np.float32:
            numbers = finite_float32(numbers, self.column, first_row=first_row)
        else:
            refuse_where(~np.isfinite(numbers), numbers, self.column, first_row=first_row, expected="a finite number")
        self._chunks.append(numbers.astype(self._dtype, copy=False))

    def finish(self) -> NDArray[Any]:
        """Return the values of all rows."""
        return joined(self._chunks, self._dtype)


class TimeColumn:
    """Gathers a column of timestamps as int64 seconds. What is left of a second tells which of two rows is later.

    Args:
        column: the name of the column.
        loose: whether a cell that is empty or holds no time counts as before all others; else it is refused.
    """

    def __init__(self, column: str, *, loose: bool = False) -> None:
        self.column = column
        self._loose = loose
        self._chunks: list[NDArray[np.int64]] = []
        self._rests: list[NDArray[np.int32] | None] = []
        self._form: str | None = None

    def append(self, cells: pa.Array, first_row: int) -> None:
        """Add one batch, whose first row has the given number. All must be of one form, as several files may not be."""
        import pyarrow as pa

        cells = _decoded(cells)
        form = time_form(cells.type)
        if None not in (form, self._form) and form != self._form:
            problem = (
                f"Column {self.column!r} holds {self._form} in some rows and {form} in others; write all in one form."
            )
            raise InputError(problem, argument=None)
        self._form = self._form or form
        if not self._loose or not cells.null_count:
            seconds, rest = self._parts(refuse_nulls(cells, self.column, first_row, "a time"), first_row)
        else:
            held = ~cells.is_null().to_numpy(zero_copy_only=False)
            seconds, rest = np.full(len(held), UNREADABLE, np.int64), np.zeros(len(held), np.int32)
            filled = (cells.cast(pa.large_string()) if is_text(cells.type) else cells).drop_null()
            seconds[held], left = self._parts(filled, first_row)
            rest[held] = 0 if left is None else left
        self._chunks.append(seconds)
        self._rests.append(rest if rest is not None and rest.any() else None)

    def _parts(self, cells: pa.Array, first_row: int) -> Parts:
        """Return seconds, and what is left of them in nanoseconds, of cells without nulls."""
        import pyarrow as pa

        seconds: NDArray[np.int64]
        rest: NDArray[np.int32] | None
        if not len(cells):  # a column without any time has no type
            return np.zeros(0, np.int64), None
        if is_text(cells.type):
            seconds, rest = times_of_texts(cells, self.column, first_row, loose=self._loose)
        elif pa.types.is_date(cells.type) or pa.types.is_timestamp(cells.type):
            seconds, rest = _of_timestamps(cells)
        elif pa.types.is_integer(cells.type):
            whole = cells.to_numpy(zero_copy_only=False)
            seconds, rest = whole_seconds(whole, self.column, first_row=first_row), None
        else:
            numbers = _as_floats(cells, self.column, first_row)
            seconds = whole_seconds(numbers, self.column, first_row=first_row)
            rest = ((numbers - np.trunc(numbers)) * 1e9).astype(np.int32)
        return seconds, rest

    def nanoseconds(self) -> NDArray[np.int32] | None:
        """Return what is left of the seconds of all rows; None if nothing is. To be called before `finish`."""
        if all(rest is None for rest in self._rests):
            return None
        pairs = zip(self._rests, self._chunks, strict=True)
        return np.concatenate([np.zeros(len(whole), np.int32) if rest is None else rest for rest, whole in pairs])

    def finish(self) -> NDArray[np.int64]:
        """Return the timestamps of all rows."""
        return joined(self._chunks, np.int64)


def time_form(arrow_type: pa.DataType) -> str | None:
    """Return the form in which a column of a type with a schema holds times; None for a column without cells.

    >>> import pyarrow as pa
    >>> [time_form(each) for each in (pa.int64(), pa.date32(), pa.timestamp("s", "UTC"), pa.string(), pa.null())]
    ['numbers', 'times without a zone', 'times with a zone', 'text', None]
    """
    import pyarrow as pa

    held = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    if pa.types.is_null(held):
        return None
    if is_text(held):
        return "text"
    if pa.types.is_date(held) or pa.types.is_timestamp(held):
        return "times with a zone" if getattr(held, "tz", None) else "times without a zone"
    return "numbers"


def _of_timestamps(cells: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int32] | None]:
    """Return seconds, and what is left of them in nanoseconds."""
    import pyarrow as pa

    seconds = cells.cast(pa.timestamp("s", getattr(cells.type, "tz", None)), safe=False).cast(pa.int64()).to_numpy()
    if not pa.types.is_timestamp(cells.type) or cells.type.unit == "s":
        return seconds, None
    steps = {"ms": 10**3, "us": 10**6, "ns": 10**9}[cells.type.unit]
    left = cells.cast(pa.int64()).to_numpy() - seconds * steps
    return seconds, (left * (10**9 // steps)).astype(np.int32)


def joined(chunks: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """Join many arrays into one. The chunks are freed one by one."""
    whole = np.empty(sum(map(len, chunks)), dtype)
    end = len(whole)
    while chunks:
        chunk = chunks.pop()
        whole[end - len(chunk) : end] = chunk
        end -= len(chunk)
    return whole


def texts_of(cells: pa.Array, column: str, first_row: int) -> pa.Array:
    """Return cells as text. A number reads the same in a column of any type: 12345678901, not 1.2e+10; 5, not 5.00.

    So does a time: 2026-11-16 09:30:00, without zeros after a point.

    Integers as floats that may have been rounded are refused, so another row's fraction cannot change a text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_text(cells.type):
        return cells
    if pa.types.is_decimal(cells.type):
        return _decimals_as_texts(cells)
    if pa.types.is_timestamp(cells.type):  # frames have as many digits of a second as the longest time of the column
        digits = pc.replace_substring_regex(cells.cast(pa.string()), rf"(\.\d*?)0+({_ZONE})$", r"\1\2")
        return pc.replace_substring_regex(digits, rf"\.({_ZONE})$", r"\1")
    if not pa.types.is_floating(cells.type):
        return _cast_to_text(cells, column, first_row)
    numbers = cells.to_numpy(zero_copy_only=False)
    whole = np.trunc(numbers) == numbers
    refuse_where(
        whole & (np.abs(numbers) >= largest_exact(64)),
        numbers, column, first_row=first_row, expected="text, or an integer below 2**53",
    )  # fmt: skip
    integers = pa.array(
        np.where(whole, numbers, 0).astype(np.int64), mask=cells.is_null().to_numpy(zero_copy_only=False)
    )
    return pc.if_else(pa.array(whole), integers.cast(pa.string()), cells.cast(pa.string()))


def _cast_to_text(cells: pa.Array, column: str, first_row: int) -> pa.Array:
    """Return cells as text. Lists, records, and bytes that are no text are refused."""
    import pyarrow as pa

    try:
        return cells.cast(pa.string())
    except pa.ArrowNotImplementedError:
        raise _wrong_type(cells, column, first_row, "text") from None
    except pa.ArrowInvalid:
        position = first_failing(cells, casts_to(pa.string())) or 0
        raise bad_cell(column, cells[position].as_py(), first_row + position, "text in UTF-8") from None


def _decimals_as_texts(cells: pa.Array) -> pa.Array:
    """Return decimals without zeros at the end: how many there are depends on the longest number of the column."""
    import pyarrow as pa

    coded = cells.dictionary_encode()
    shortest = [format(each.normalize() + 0, "f") for each in coded.dictionary.to_pylist()]
    return pa.array(shortest, pa.string()).take(coded.indices)


def refuse_nulls(cells: pa.Array, column: str, first_row: int, expected: str) -> pa.Array:
    """Refuse a missing cell, and name the first one."""
    if cells.null_count:
        position = int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
        raise bad_cell(column, None, first_row + position, expected)
    return cells


def first_failing(cells: Any, converts: Callable[[Any], bool]) -> int | None:
    """Return the position of the first cell that does not convert, by bisection; `None` if all do."""
    if converts(cells):
        return None
    good, bad = 0, len(cells)  # the first `good` cells convert, the first `bad` do not
    while bad - good > 1:
        middle = (good + bad) // 2
        if converts(cells[:middle]):
            good = middle
        else:
            bad = middle
    return good


def casts_to(arrow_type: pa.DataType) -> Callable[[Any], bool]:
    """Return a test whether Arrow cells can be cast to a type without loss."""
    import pyarrow as pa

    def casts(cells: Any) -> bool:
        try:
            cells.cast(arrow_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    return casts


def _plain_integers(encoded: EncodedIds) -> EncodedIds:
    """Return ids as integers if all are texts of integers, such as 7 and -1 but not 07; otherwise unchanged."""
    integers = ids_of_texts(encoded.vocabulary.ids.tolist())
    if isinstance(integers, list):
        return encoded
    order = np.argsort(integers)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return EncodedIds(encoded.column, rank[encoded.codes], Vocabulary(integers[order], name=encoded.vocabulary.name))


def _decoded(cells: pa.Array) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_dictionary(cells.type):
        return cells
    entries = cells.dictionary.cast(pa.large_string()) if is_text(cells.type.value_type) else cells.dictionary
    return entries.take(cells.indices)


def _as_integers(cells: pa.Array, column: str, first_row: int) -> NDArray[np.int64]:
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if not any(is_kind(cells.type) for is_kind in kinds):
        raise _wrong_type(cells, column, first_row, "integers or text")
    if pa.types.is_floating(cells.type):
        refuse_inexact(cells.to_numpy(zero_copy_only=False), column, first_row=first_row)
    try:
        ids = cells.cast(pa.int64())
    except pa.ArrowInvalid:
        position = first_failing(cells, casts_to(pa.int64())) or 0
        raise bad_cell(
            column, cells[position].as_py(), first_row + position, "an id that is an integer below 2**63 or text"
        ) from None
    array: NDArray[np.int64] = ids.to_numpy()
    return array


def _as_floats(cells: pa.Array, column: str, first_row: int) -> NDArray[Any]:
    import pyarrow as pa

    if is_text(cells.type):
        cells = _floats_of_texts(cells, column, first_row)
    if pa.types.is_decimal(cells.type):
        cells = cells.cast(pa.string()).cast(pa.float64())  # as written: a direct cast rounds by the column's digits
    elif pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.int8())
    if not (pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type)):
        raise _wrong_type(cells, column, first_row, "a number")
    numbers: NDArray[Any] = cells.to_numpy(zero_copy_only=False)
    return numbers


def _floats_of_texts(cells: pa.Array, column: str, first_row: int) -> pa.Array:
    """Return numbers that are written as text, possibly with a decimal comma; true is 1 and false is 0.

    Name the first text that is not a number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells.cast(pa.large_string()))
    lower = pc.utf8_lower(cells)
    if len(cells) and pc.all(pc.is_in(lower, value_set=pa.array(_TRUTHS, pa.large_string()))).as_py():
        return pc.equal(lower, _TRUTHS[0]).cast(pa.float64())
    cells = with_decimal_points(cells)
    position = first_failing(cells, casts_to(pa.float64()))
    if position is not None:
        cell = cells[position].as_py()
        raise bad_cell(column, cell, first_row + position, expected_number(cell, "a number, not text"))
    return cells.cast(pa.float64())


def expected_number(cell: Any, words: str = "a number") -> str:
    """What is expected instead of a cell that was not read as a number.

    >>> expected_number("4,500")
    'a number with a decimal point, or without a comma: three digits after a comma may be decimals or thousands'
    >>> expected_number("four")
    'a number'
    """
    if not (isinstance(cell, str) and re.match(_UNCLEAR_COMMA, cell)):
        return words
    return "a number with a decimal point, or without a comma: three digits after a comma may be decimals or thousands"


def with_decimal_points(cells: pa.Array) -> pa.Array:
    """Return texts, of which numbers with a decimal comma have a point."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(cells, _DECIMAL_COMMA, r"\1.\2")


def is_truth(cell: str) -> bool:
    """Whether a cell is a truth value in words.

    >>> [is_truth(cell) for cell in ("true", "False", "yes")]
    [True, True, False]
    """
    return cell.strip().lower() in _TRUTHS


def has_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number with a decimal comma.

    >>> [has_decimal_comma(cell) for cell in ("4,5", "4.5", "4,500")]
    [True, False, False]
    """
    return re.match(_DECIMAL_COMMA, cell) is not None


def _wrong_type(cells: pa.Array, column: str, first_row: int, expected: str) -> InputError:
    position = int(np.argmax(cells.is_valid().to_numpy(zero_copy_only=False)))  # a null may be of any type
    return bad_cell(column, cells[position].as_py(), first_row + position, f"{expected}, not {cells.type}")
