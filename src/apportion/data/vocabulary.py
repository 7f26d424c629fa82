"""Ids and codes: the names under which users and tasks come, and the positions under which they are stored.

A `Vocabulary` holds n distinct ids, all integers or all text; the code of an id is its position, 0 to n-1.
Data that arrive without a list get sorted ids, so that codes do not depend on the order of the rows; a public
list keeps its own order, so that features given in that order stay aligned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError

TEXT: Final = np.dtypes.StringDType(coerce=False)
"""NumPy's variable-width text, without a Python object per id."""

Ids = NDArray[Any]
"""One-dimensional ids: int64 or `TEXT`."""

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
        """The integers 0 to size-1, each its own code."""
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
        """The id of one code, as a Python value."""
        if not 0 <= code < len(self):
            raise InputError(f"Expected a {self.name} code from 0 to {len(self) - 1}, got {code}.")
        id_: int | str = self._ids[code : code + 1].tolist()[0]
        return id_

    def ids_of(self, codes: ArrayLike) -> Ids:
        """The ids of many codes."""
        positions = np.asarray(codes)
        outside = (positions < 0) | (positions >= len(self))
        if outside.any():
            self.id_of(int(positions[outside][0]))
        ids: Ids = self._ids[positions]
        return ids

    def codes_of(self, ids: ArrayLike) -> NDArray[np.int32]:
        """The codes of many ids; an id that is not here is an `InputError` that names it."""
        wanted = as_ids(ids, self.name)
        codes = self.find(wanted)
        if (codes < 0).any():
            position = int(np.argmax(codes < 0))
            unknown = wanted[position : position + 1].tolist()[0]
            raise InputError(f"There is no {self.name} {unknown!r} among the {len(self)} known ones.")
        return codes

    def code_of(self, id_: int | str) -> int:
        """The code of one id."""
        return int(self.codes_of([id_])[0])

    def find(self, ids: ArrayLike) -> NDArray[np.int32]:
        """The codes of many ids, -1 where an id is not here."""
        wanted = as_ids(ids, self.name)
        if not len(wanted) or not len(self):
            return np.full(len(wanted), -1, np.int32)
        if (wanted.dtype == np.int64) == self.holds_text:
            kind, got = ("text" if self.holds_text else "an integer"), wanted[:1].tolist()[0]
            raise InputError(f"Expected {kind} for a {self.name}, got {got!r}.")
        if self._lookup is None:
            self._lookup = _Lookup(self._ids)
        return self._lookup(wanted)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int | str]:
        return iter(self._ids.tolist())

    def __contains__(self, id_: object) -> bool:
        fits = isinstance(id_, str) if self.holds_text else isinstance(id_, int | np.integer)
        return fits and bool(self.find(np.array([id_]))[0] >= 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.holds_text == other.holds_text and np.array_equal(self._ids, other._ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} {self.name}s, {'text' if self.holds_text else 'integers'})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._ids, self.name, self.declared)

    def _refuse_repeated(self) -> None:
        ordered = np.sort(self._ids)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            raise InputError(f"Expected distinct {self.name}s, got {repeated[:1].tolist()[0]!r} more than once.")


class _Lookup:
    """From ids to codes: a table where integers lie close together, binary search for others, a dict for text.

    NumPy's binary search compares long text of two arrays wrongly (seen in 2.4), and vocabularies are small beside the
    data, so text goes through Python.
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
    """Ids as int64 or `TEXT`; anything else is refused with the first id that does not fit.

    Args:
        ids: a one-dimensional array or list.
        name: the column or argument, for the message.
    """
    array = np.asarray(ids)
    if array.ndim != 1:
        raise InputError(f"Expected {name} as a one-dimensional array, got shape {array.shape}.")
    if array.dtype == np.int64 or isinstance(array.dtype, np.dtypes.StringDType):
        return array
    if array.dtype.kind in "iu":
        return _narrowed_integers(array, name)
    if array.dtype.kind == "f":
        return _whole_numbers(array, name)
    if array.dtype.kind == "U" and not isinstance(ids, np.ndarray):  # a list may mix numbers and text
        return _from_objects(np.array(list(ids), dtype=object), name)  # type: ignore[arg-type]
    if array.dtype.kind == "U":
        return array.astype(TEXT)
    if array.dtype.kind == "O":
        return _from_objects(array, name)
    if not array.size:
        return array.astype(np.int64)
    raise bad_cell(name, array[:1].tolist()[0], 1, "integers or text")


def bad_cell(
    column: str, value: object, row: int, expected: str, argument: str | None = None, remedy: str | None = None
) -> InputError:
    """The one sentence about one cell, and what to do about it; rows of data are counted from 1."""
    holds = "is empty" if value is None else f"holds {value!r}"
    problem = f"Column {column!r} {holds} in row {row} (counting data rows from 1); expected {expected}"
    if remedy is None:
        return InputError(f"{problem}.", argument=argument)
    return InputError(problem, argument=argument, remedy=remedy)


def _narrowed_integers(array: NDArray[Any], name: str) -> Ids:
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        row = int(np.argmax(array > np.iinfo(np.int64).max))
        raise bad_cell(name, int(array[row]), row + 1, "integers below 2**63")
    return array.astype(np.int64)


def _whole_numbers(array: NDArray[Any], name: str) -> Ids:
    """Floats that stand for integers, as frames with a gap in them hold; no other float is an id."""
    whole = (array == np.trunc(array)) & (np.abs(array) < 2**53)  # NaN and infinities compare false
    if not whole.all():
        row = int(np.argmax(~whole))
        raise bad_cell(name, float(array[row]), row + 1, "an id that is an integer or text")
    return array.astype(np.int64)


def _from_objects(array: NDArray[np.object_], name: str) -> Ids:
    """Python objects: all integers or all text."""
    is_text = _is_instance(array, str)
    if is_text.all() and array.size:
        return array.astype(TEXT)
    is_integer = _is_instance(array, int | np.integer) & ~_is_instance(array, bool)
    if is_integer.all():
        return _integers_from_objects(array, name)
    fits, kind = (is_text, "text") if is_text[0] else (is_integer, "an integer")
    row = int(np.argmax(~fits))
    raise bad_cell(name, array[row], row + 1, f"{kind}, as in the rows before" if row else "integers or text")


def _integers_from_objects(array: NDArray[np.object_], name: str) -> Ids:
    outside = ((array >= 2**63) | (array < -(2**63))).astype(bool)
    if outside.any():
        row = int(np.argmax(outside))
        raise bad_cell(name, array[row], row + 1, "integers below 2**63")
    return array.astype(np.int64)


def _is_instance(array: NDArray[np.object_], kind: Any) -> NDArray[np.bool_]:
    matches: NDArray[np.object_] = np.frompyfunc(lambda element: isinstance(element, kind), 1, 1)(array)
    return matches.astype(bool)
