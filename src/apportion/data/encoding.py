"""From raw columns to codes and numbers: the checks that all constructors of `Interactions` share.

Ids become int32 codes and a `Vocabulary`, values become finite float32, timestamps int64. Anything else is refused in
one sentence with the column, the value and the row (data rows are counted from 1).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.vocabulary import (
    ENCODABLE,
    Vocabulary,
    as_text,
    bad_cell,
    checked_ids,
    encodable,
    largest_exact,
    plain_texts,
)
from apportion.errors import InputError
from apportion.linalg.orders import take

_COMPACT_SPAN_PER_ROW = 2
_COMPACT_SPAN_ALWAYS = 1 << 16
_TEXTS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class EncodedIds:
    """One column of ids: a code per row, and what the codes stand for."""

    column: str
    codes: NDArray[np.int32]
    vocabulary: Vocabulary


def encode_ids(ids: ArrayLike, column: str, *, name: str) -> EncodedIds:
    """Give every distinct id of a column a code, in sorted order."""
    array = checked_ids(ids, column)
    if not len(array):
        raise InputError(f"Column {column!r} is empty; expected at least two rows.", argument=None)
    if array.dtype == np.int64:
        vocabulary = Vocabulary(distinct_integers(array), name=name)
        return EncodedIds(column, vocabulary.find(array), vocabulary)
    seen, codes = TextCodes(), np.empty(len(array), np.int32)
    for first in range(0, len(array), _TEXTS_AT_ONCE):
        rows = slice(first, first + _TEXTS_AT_ONCE)
        codes[rows] = seen.codes_of(plain_texts(array[rows]))
    return in_sorted_order(seen.texts, [codes], column, name=name)


class TextCodes:
    """Gives each distinct text a code when it first occurs.

    Two texts are one id if and only if Python calls them equal. The loop over texts runs in C, by `map` over a
    dictionary's lookup.
    """

    def __init__(self) -> None:
        self._code_of: defaultdict[str, int] = defaultdict()
        self._code_of.default_factory = self._code_of.__len__

    def codes_of(self, texts: list[str]) -> NDArray[np.int32]:
        """Return a code for each text, of Python's own type `str`; new texts get the next codes."""
        return np.fromiter(map(self._code_of.__getitem__, texts), np.int32, len(texts))

    @property
    def texts(self) -> list[str]:
        """The distinct texts, in the order of their codes."""
        return list(self._code_of)


def in_sorted_order(texts: list[str], codes: list[NDArray[np.int32]], column: str, *, name: str) -> EncodedIds:
    """Return a column with codes in sorted order instead of order of appearance.

    Args:
        texts: the distinct texts, in the order of their codes.
        codes: the codes of all rows, in several arrays, which are freed one by one.
        column: the name of the column.
        name: what an id is called.
    """
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), np.int32)
    rank[order] = np.arange(len(texts), dtype=np.int32)
    texts = [texts[code] for code in order]
    ranks = np.empty(sum(map(len, codes)), np.int32)
    end = len(ranks)
    while codes:
        some = codes.pop()
        take(rank, some, out=ranks[end - len(some) : end])
        end -= len(some)
    plain = all(map(str.isascii, texts))
    unfit = [] if plain else [code for code, text in enumerate(texts) if not encodable(text)]
    if unfit:
        row = int(np.argmax(np.isin(ranks, unfit)))
        raise bad_cell(column, texts[ranks[row]], row + 1, ENCODABLE)
    return EncodedIds(column, ranks, Vocabulary(as_text(texts, column), name=name))


def distinct_integers(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct integers of a column, sorted. If they lie close together, a presence table finds them."""
    lowest, highest = int(ids.min()), int(ids.max())
    span = highest - lowest + 1
    if span > max(_COMPACT_SPAN_PER_ROW * len(ids), _COMPACT_SPAN_ALWAYS):
        ordered = np.sort(ids)  # NumPy's hash-based unique can be far slower on ids with a pattern
        is_new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        distinct: NDArray[np.int64] = ordered[is_new].astype(np.int64, copy=False)
        return distinct
    present = np.zeros(span, bool)
    present[ids - lowest] = True
    return np.flatnonzero(present).astype(np.int64, copy=False) + np.int64(lowest)


def match_public_list(
    encoded: EncodedIds, public: ArrayLike | Vocabulary | None, *, by_text: bool = False
) -> EncodedIds:
    """Recode a column by a public list of ids. Refuse an id that the list lacks.

    Args:
        encoded: the column.
        public: the list; None to leave the column as it is.
        by_text: whether 7 and "7" are the same id, as for two files of which only one has a schema.
    """
    if public is None:
        return encoded
    name = encoded.vocabulary.name
    listed = public if isinstance(public, Vocabulary) else Vocabulary(public, name=name, declared=True)
    if listed.holds_text != encoded.vocabulary.holds_text and not by_text:
        first = encoded.vocabulary.id_of(int(encoded.codes[0]))
        kind = "text" if listed.holds_text else "an integer"
        raise bad_cell(encoded.column, first, 1, f"{kind}, as in the public list of {name}s")
    new_codes = listed.match(encoded.vocabulary)
    if (new_codes < 0).any():
        row = int(np.argmax(new_codes[encoded.codes] < 0))
        unlisted = encoded.vocabulary.id_of(int(encoded.codes[row]))
        some = f"one of the {len(listed)} {name}s" if len(listed) != 1 else f"the only {name}"
        raise bad_cell(encoded.column, unlisted, row + 1, f"{some} of the public list")
    return EncodedIds(encoded.column, new_codes[encoded.codes], listed)


def refuse_single_user(users: EncodedIds, *, allowed_by: str | None = None) -> None:
    """Refuse a single user: it is almost always the wrong column, and one user cannot be hidden.

    Args:
        users: the user of each row.
        allowed_by: the argument that allows a single user, if there is one.
    """
    if len(users.vocabulary) == 1:
        only, n_rows = users.vocabulary.id_of(0), len(users.codes)
        alone = "user" if n_rows == 1 else "the same user"
        found = "in its only row" if n_rows == 1 else f"in every row (rows 1 to {n_rows})"
        problem = f"Column {users.column!r} holds {alone} {only!r} {found}; expected at least two users"
        if allowed_by is None:
            raise InputError(f"{problem}.", argument=None)
        raise InputError(problem, argument=allowed_by, remedy="allow one, as in a history, with")


def as_values(values: ArrayLike, column: str, *, n_rows: int) -> NDArray[np.float32]:
    """Return values as finite float32, a copy. Name the first cell that is not a finite number."""
    array = _one_column(values, column, n_rows=n_rows)
    if array.dtype.kind not in "biuf":
        array = _numbers_from_objects(array, column)
    return finite_float32(array, column, first_row=1)


def finite_float32(array: NDArray[Any], column: str, *, first_row: int) -> NDArray[np.float32]:
    """Return a numeric array as float32. Refuse NaN, infinities and numbers that overflow float32.

    Integers go by way of float64, as they do where another row has a fraction: else large ones would round differently.
    """
    array = array.astype(np.float64) if array.dtype.kind in "iu" else array
    with np.errstate(over="ignore"):
        converted = array.astype(np.float32)
    finite = np.isfinite(converted)
    if not finite.all():
        position = int(np.argmax(~finite))
        raise bad_cell(column, float(array[position]), first_row + position, "a finite number (float32)")
    return converted


def as_timestamps(timestamps: ArrayLike, column: str, *, n_rows: int) -> NDArray[np.int64]:
    """Return timestamps as int64 seconds since 1970. `datetime64` is converted, and fractions are dropped."""
    array = _one_column(timestamps, column, n_rows=n_rows)
    if array.dtype.kind == "M":
        refuse_where(np.isnat(array), array, column, first_row=1, expected="a time")
        return array.astype("datetime64[s]").astype(np.int64)
    if array.dtype.kind not in "iuf":
        array = _numbers_from_objects(array, column)
    return whole_seconds(array, column, first_row=1)


def whole_seconds(array: NDArray[Any], column: str, *, first_row: int) -> NDArray[np.int64]:
    """Return a numeric array as int64, with fractions dropped. Refuse numbers that int64 cannot hold.

    Floats that may have been rounded are refused: integers are floats also where another row has a fraction or none.
    """
    if array.dtype.kind == "f":
        exact = np.abs(array) < largest_exact(64)
        expected = "a time in seconds, below 2**53 beside times with fractions or empty ones"
        refuse_where(~exact, array, column, first_row=first_row, expected=expected)
    if array.dtype == np.uint64:
        refuse_where(array >= 2**63, array, column, first_row=first_row, expected="a time in seconds")
    return array.astype(np.int64)


def refuse_where(bad: NDArray[np.bool_], array: NDArray[Any], column: str, *, first_row: int, expected: str) -> None:
    """Refuse cells where `bad` is true, and name the first one."""
    if bad.any():
        position = int(np.argmax(bad))
        raise bad_cell(column, array[position].item(), first_row + position, expected)


def _one_column(cells: ArrayLike, column: str, *, n_rows: int) -> NDArray[Any]:
    array = np.asarray(cells)
    if array.ndim != 1:
        raise InputError(f"Expected {column} as a one-dimensional array, got shape {array.shape}.", argument=column)
    if len(array) != n_rows:
        raise InputError(f"Expected {column} to have {n_rows} rows, one per user, got {len(array)}.", argument=column)
    return array


def _numbers_from_objects(array: NDArray[Any], column: str) -> NDArray[np.float64]:
    """Return numbers that came as Python objects. Refuse text, `None` and anything else."""
    is_number = np.frompyfunc(_is_number, 1, 1)(array).astype(bool)
    if not is_number.all():
        position = int(np.argmax(~is_number))
        raise bad_cell(column, array[position : position + 1].tolist()[0], position + 1, "a number")
    return array.astype(np.float64)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float | np.number)


def checked_codes(codes: ArrayLike, vocabulary: Vocabulary) -> NDArray[np.int32]:
    """Return codes as int32. Refuse codes that the vocabulary does not have."""
    array = np.asarray(codes)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InputError(
            f"Expected {vocabulary.name} codes as a one-dimensional integer array, "
            f"got {array.dtype} of shape {array.shape}.",
            argument="codes",
        )
    if array.size:
        for code in (int(array.min()), int(array.max())):
            vocabulary.id_of(code)  # refuses codes out of range
    return array.astype(np.int32, copy=False)
