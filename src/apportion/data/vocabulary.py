"""The ids of users and tasks, and their codes: the positions under which they are stored.

A `Vocabulary` holds n distinct ids, all integers or all text; the code of an id is its position, 0 to n-1. If there is
no list, the ids are sorted, so that codes do not depend on the order of the rows. A public list keeps its own order, so
that features given in that order stay aligned.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import EmptyCellError, InputError

TEXT: Final = np.dtypes.StringDType(coerce=False)
"""NumPy's variable-width text, without a Python object per id. It keeps every character, but compares only up to the
first NUL (and long text wrongly), so ids are compared, sorted and looked up as Python strings."""

Ids = NDArray[Any]
"""One-dimensional ids: int64 or `TEXT`."""

ENCODABLE: Final = "text that UTF-8 can encode, without half of a surrogate pair"

_NUMBERS = (int, float, np.number)
_LONGEST_SHOWN = 160  # characters of a cell in a message
_SPAN_PER_ID = 8  # a lookup table may be this many times longer than the vocabulary ...
_SPAN_ALWAYS = 1 << 16  # ... or this long in any case


class Vocabulary:
    """Distinct ids, looked up by code and by id.

    Args:
        ids: distinct integers or distinct text; the order is kept.
        name: what the ids are called in error messages.
        declared: whether the list was given as public, rather than found in data.

    Example:
        >>> titles = Vocabulary(["Alien", "Brazil", "Casablanca"], name="movie")
        >>> titles.codes_of(["Casablanca", "Alien"])
        array([2, 0], dtype=int32)
        >>> titles.id_of(1)
        'Brazil'
    """

    def __init__(self, ids: ArrayLike, *, name: str = "id", declared: bool = False) -> None:
        self.name = name
        self.declared = declared
        self._ids = as_ids(ids, name).copy()
        self._ids.flags.writeable = False
        self._lookup: _Lookup | None = None
        self._refuse_repeated()

    @classmethod
    def of_range(cls, size: int, *, name: str = "id") -> Vocabulary:
        """Return the integers 0 to size-1, each its own code."""
        return cls(np.arange(size, dtype=np.int64), name=name, declared=True)

    @property
    def ids(self) -> Ids:
        """All ids in the order of their codes; write-protected."""
        return self._ids

    @property
    def holds_text(self) -> bool:
        """Whether ids are text; otherwise they are integers."""
        return self._ids.dtype != np.int64

    def id_of(self, code: int) -> int | str:
        """Return the id of one code, as a Python value."""
        if not 0 <= code < len(self):
            raise InputError(
                f"Expected the code of one {self.name} from 0 to {len(self) - 1}, got {code}.", argument="code"
            )
        id_: int | str = self._ids[code : code + 1].tolist()[0]
        return id_

    def ids_of(self, codes: ArrayLike) -> Ids:
        """Return the ids of many codes."""
        positions = np.asarray(codes)
        outside = (positions < 0) | (positions >= len(self))
        if outside.any():
            self.id_of(int(positions[outside][0]))
        ids: Ids = self._ids[positions]
        return ids

    def codes_of(self, ids: ArrayLike) -> NDArray[np.int32]:
        """Return the codes of many ids. An unknown id is refused with an `InputError` that names it."""
        wanted = as_ids(ids, self.name)
        codes = self.find(wanted)
        if (codes < 0).any():
            position = int(np.argmax(codes < 0))
            unknown = wanted[position : position + 1].tolist()[0]
            raise InputError(f"There is no {self.name} {unknown!r} among the {len(self)} known ones.", argument="ids")
        return codes

    def code_of(self, id_: int | str) -> int:
        """Return the code of one id."""
        return int(self.codes_of([id_])[0])

    def find(self, ids: ArrayLike) -> NDArray[np.int32]:
        """Return the codes of many ids, -1 for unknown ids."""
        wanted = as_ids(ids, self.name)
        if not len(wanted) or not len(self):
            return np.full(len(wanted), -1, np.int32)
        if (wanted.dtype == np.int64) == self.holds_text:
            kind, got = ("text" if self.holds_text else "integers"), wanted[:1].tolist()[0]
            raise InputError(f"The ids of {self.name}s are {kind} here, got {got!r}.", argument="ids")
        if self._lookup is None:
            self._lookup = _Lookup(self._ids)
        return self._lookup(wanted)

    def match(self, others: Vocabulary) -> NDArray[np.int32]:
        """Return the codes of another vocabulary's ids, -1 for unknown ids; 7 and "7" match, 7 and "07" do not."""
        if self.holds_text == others.holds_text:
            return self.find(others.ids)
        return _Lookup(self._ids.astype(TEXT))(others.ids.astype(TEXT))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int | str]:
        return iter(self._ids.tolist())

    def __contains__(self, id_: object) -> bool:
        if self.holds_text:
            return isinstance(id_, str) and encodable(id_) and bool(self.find([id_])[0] >= 0)
        fits = isinstance(id_, int | np.integer) and not isinstance(id_, bool)
        return fits and -(2**63) <= int(id_) < 2**63 and bool(self.find([int(id_)])[0] >= 0)  # type: ignore[call-overload]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        if self.holds_text and other.holds_text:
            return bool(self._ids.tolist() == other._ids.tolist())
        return self.holds_text == other.holds_text and np.array_equal(self._ids, other._ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} {self.name}s, {'text' if self.holds_text else 'integers'})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._ids, self.name, self.declared)

    def _refuse_repeated(self) -> None:
        if self.holds_text:
            counts = Counter(self._ids.tolist()) if len(set(self._ids.tolist())) < len(self) else {}
            repeated = sorted(text for text, count in counts.items() if count > 1)
        else:
            ordered = np.sort(self._ids)
            repeated = ordered[1:][ordered[1:] == ordered[:-1]].tolist()
        if repeated:
            raise InputError(f"Expected distinct {self.name}s, got {repeated[0]!r} more than once.", argument="ids")


class _Lookup:
    """Maps ids to codes: a table if integers lie close together, binary search for other integers, a dict for text.

    Vocabularies are small compared with the data, so text goes through Python.
    """

    def __init__(self, ids: Ids) -> None:
        self._table: NDArray[np.int32] | None = None
        self._codes: dict[str, int] | None = None
        if ids.dtype != np.int64:
            self._codes = {name: code for code, name in enumerate(ids.tolist())}
            return
        if len(ids):
            self._lowest = int(ids.min())
            span = int(ids.max()) - self._lowest + 1
            if span <= max(_SPAN_PER_ID * len(ids), _SPAN_ALWAYS):
                self._table = np.full(span, -1, np.int32)
                self._table[ids - self._lowest] = np.arange(len(ids), dtype=np.int32)
                return
        self._order = np.argsort(ids, kind="stable").astype(np.int32)
        self._sorted = ids[self._order]

    def __call__(self, wanted: Ids) -> NDArray[np.int32]:
        if self._codes is not None:
            return np.array([self._codes.get(name, -1) for name in wanted.tolist()], np.int32)
        if self._table is not None:
            return self._from_table(self._table, wanted)
        position = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        found = self._sorted[position] == wanted
        codes: NDArray[np.int32] = np.where(found, self._order[position], np.int32(-1))
        return codes

    def _from_table(self, table: NDArray[np.int32], wanted: Ids) -> NDArray[np.int32]:
        inside = (wanted >= self._lowest) & (wanted <= self._lowest + len(table) - 1)
        if inside.all():
            found: NDArray[np.int32] = table[wanted - self._lowest]
            return found
        codes = np.full(len(wanted), -1, np.int32)
        codes[inside] = table[wanted[inside] - self._lowest]
        return codes


def _restored(ids: Ids, name: str, declared: bool) -> Vocabulary:
    return Vocabulary(ids, name=name, declared=declared)


def as_ids(ids: ArrayLike, name: str) -> Ids:
    """Return ids as int64 or `TEXT`. Refuse anything else, and name the first id that does not fit.

    Args:
        ids: a one-dimensional array or list.
        name: the column or argument, for the message.
    """
    array = checked_ids(ids, name)
    if array.dtype == np.int64 or array.dtype == TEXT:
        return array
    return as_text(plain_texts(array), name)


def checked_ids(ids: ArrayLike, name: str) -> NDArray[Any]:
    """Return ids as int64, or as text in the form in which it came. Refuse anything else."""
    array = as_array(ids)
    if array.ndim != 1:
        got = f"shape {array.shape}" if array.ndim else type(ids).__name__
        raise InputError(f"Expected {name} as a one-dimensional array, got {got}.", argument=name)
    if array.dtype == np.int64 or array.dtype.kind in "UT":
        return array
    if array.dtype.kind in "iu":
        return _narrowed_integers(array, name)
    if array.dtype.kind == "f":
        return _whole_numbers(array, name)
    if array.dtype.kind == "O":
        return _from_objects(array, name)
    if not array.size:
        return array.astype(np.int64)
    raise bad_cell(name, array[:1].tolist()[0], 1, "integers or text")


def as_array(ids: ArrayLike) -> NDArray[Any]:
    """Return ids as an array that holds exactly what was given.

    NumPy drops NULs at the end of text, rounds integers among floats and treats True as 1. So a list becomes an array
    of numbers only if all its elements have one numeric type, and of Python objects otherwise.
    """
    if not _is_list(ids):
        array = np.asarray(ids)
        may_be_missing = np.ma.isMaskedArray(ids) or hasattr(array.dtype, "na_object")
        return np.array(ids.tolist(), dtype=object) if may_be_missing else array  # type: ignore[union-attr]
    elements = list(ids)  # type: ignore[arg-type]
    kinds = set(map(type, elements))
    if len(kinds) == 1 and all(issubclass(kind, _NUMBERS) and kind is not bool for kind in kinds):
        with contextlib.suppress(OverflowError):
            return np.array(elements, dtype=np.int64 if isinstance(elements[0], int) else None)
    return np.array(elements, dtype=object)


def plain_texts(array: NDArray[Any]) -> list[str]:
    """Return the texts of any array as Python strings. NumPy's would lose NULs at the end when stored again."""
    return list(map(str.__str__, array.tolist()))


def ids_of_texts(texts: Sequence[str]) -> NDArray[np.int64] | list[str]:
    """Return integers if every text is a plainly written integer; otherwise return the texts.

    No id loses a character.
    """
    plain = all(map(is_plain_integer, texts))
    return np.array([int(text) for text in texts], np.int64) if plain else list(texts)


def is_plain_integer(text: str) -> bool:
    """Whether a text is an integer of 64 bits, written as Python writes it: 7 or -1, not 07, +7, 0x7 or 7.0."""
    short = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20
    return short and str(int(text)) == text and -(2**63) <= int(text) < 2**63


def as_text(texts: list[str], name: str) -> Ids:
    """Return Python strings as `TEXT`, which keeps every character. Refuse text that UTF-8 cannot encode."""
    try:
        return np.array(texts, dtype=TEXT)
    except UnicodeEncodeError:
        row = next(row for row, text in enumerate(texts) if not encodable(text))
        raise bad_cell(name, texts[row], row + 1, ENCODABLE) from None


def encodable(text: str) -> bool:
    """Whether UTF-8 can encode a text: it cannot encode half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def bad_cell(
    column: str, value: object, row: int, expected: str, argument: str | None = None, remedy: str | None = None
) -> InputError:
    """Return the sentence about one cell, and what to do about it; rows of data are counted from 1."""
    holds = "is empty" if value is None else f"holds {shortened(value)}"
    problem = f"Column {column!r} {holds} in row {row} (counting data rows from 1); expected {expected}"
    kind = EmptyCellError if value is None else InputError
    if remedy is None:
        return kind(f"{problem}.", argument=argument)
    return kind(problem, argument=argument, remedy=remedy)


def shortened(value: object) -> str:
    """Return how Python writes a value; the middle of a long one is left out.

    >>> shortened("x" * 1000) == "'" + "x" * 59 + "..." + "x" * 19 + "'"
    True
    """
    written = repr(value)
    return written if len(written) <= _LONGEST_SHOWN else f"{written[:60]}...{written[-20:]}"


def largest_exact(bits: int) -> int:
    """Return the limit up to which floats of this many bits hold every integer. Beyond it, two ids may become one."""
    return 1 << {16: 11, 32: 24}.get(bits, 53)


def refuse_inexact(array: NDArray[np.floating[Any]], name: str, *, first_row: int = 1) -> None:
    """Refuse floats that are not integers, or so large that they may have been rounded from several integers."""
    limit = largest_exact(8 * array.dtype.itemsize)
    whole = array == np.trunc(array)  # NaN compares false
    exact = whole & (np.abs(array) < limit)
    if exact.all():
        return
    position = int(np.argmax(~exact))
    expected = "an id that is an integer or text"
    if whole[position] and np.isfinite(array[position]):
        expected += f"; {array.dtype} holds integers exactly only below 2**{limit.bit_length() - 1}"
    raise bad_cell(name, float(array[position]), first_row + position, expected)


def _is_list(ids: Any) -> bool:
    """Whether to convert the elements one by one: those of a list, and texts in a column of another library."""
    if isinstance(ids, np.ndarray | str | bytes | Mapping):
        return False
    if not (hasattr(ids, "__len__") and hasattr(ids, "__iter__")):
        return False
    if hasattr(ids, "__array__") or hasattr(ids, "__array_interface__"):
        return getattr(ids, "ndim", 1) == 1 and isinstance(next(iter(ids), None), str)
    return hasattr(ids, "__getitem__")


def _narrowed_integers(array: NDArray[Any], name: str) -> Ids:
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        row = int(np.argmax(array > np.iinfo(np.int64).max))
        raise bad_cell(name, int(array[row]), row + 1, "integers below 2**63")
    return array.astype(np.int64)


def _whole_numbers(array: NDArray[Any], name: str) -> Ids:
    """Return floats that stand for integers, as in frames with missing cells. No other float is an id."""
    refuse_inexact(array, name)
    return array.astype(np.int64)


def _from_objects(array: NDArray[np.object_], name: str) -> NDArray[Any]:
    """Convert Python objects: all integers or all text."""
    kinds = set(map(type, array.tolist()))
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return array
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return _integers_from_objects(array, name)
    fits, kind = (str, "text") if isinstance(array[0], str) else (int | np.integer, "an integer")
    row = next(row for row, each in enumerate(array.tolist()) if not isinstance(each, fits) or isinstance(each, bool))
    raise bad_cell(name, array[row], row + 1, f"{kind}, as in the rows before" if row else "integers or text")


def _integers_from_objects(array: NDArray[np.object_], name: str) -> Ids:
    outside = ((array >= 2**63) | (array < -(2**63))).astype(bool)
    if outside.any():
        row = int(np.argmax(outside))
        raise bad_cell(name, array[row], row + 1, "integers below 2**63")
    return array.astype(np.int64)
