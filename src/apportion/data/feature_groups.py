"""Feature groups: how one column of item features becomes sparse numbers, for these items and for later ones.

A group is learned once, from the items at hand: the words that occur, a mean and a spread, or knots. After that it
encodes any frame with the same columns; words that it does not know are ignored.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import casts_to, with_decimal_points
from apportion.data.arrow_texts import is_text
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

FeatureKind = Literal["categorical", "multivalent", "number", "binned", "text"]
"""What a column holds: one word, several words, a number (standardised, or between knots), or running text."""

KINDS: tuple[FeatureKind, ...] = ("categorical", "multivalent", "number", "binned", "text")
_CROSS = "cross"
_BETWEEN = " & "


@dataclass(frozen=True)
class Entries:
    """Entries of a group: row, column within the group, value."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class FeatureGroup:
    """One group of features.

    Attributes:
        name: the name of the column, or of the crossed columns.
        kind: one of `KINDS`, or "cross".
        columns: the columns it reads.
        separator: what separates words in a cell of text.
        words: the words it knows, in the order of their columns; none for numbers and hashed text.
        numbers: mean, spread, minimum and maximum of a number, or the knots of a binned one; values beyond are clipped.
        buckets: the number of columns of hashed text.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    separator: str = "|"
    words: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    buckets: int = 0

    @property
    def size(self) -> int:
        """The number of columns that the group makes."""
        by_kind = {"number": 1, "binned": len(self.numbers), "text": self.buckets}
        return by_kind.get(self.kind, len(self.words))

    def encode(self, table: pa.Table) -> Entries:
        """Return entries for the rows of a table; rows are numbered from 0."""
        for column in self.columns:
            if column not in table.column_names:
                found = ", ".join(repr(name) for name in table.column_names)
                raise InputError(f"There is no column {column!r} of features; the columns are {found}.", argument=None)
        if self.kind == "number":
            rows, numbers = _numbers(table, self.columns[0])
            mean, spread, low, high = self.numbers
            return Entries(rows, np.zeros(len(rows), np.int64), (np.clip(numbers, low, high) - mean) / spread)
        if self.kind == "binned":
            rows, numbers = _numbers(table, self.columns[0])
            return _between_knots(rows, numbers, np.array(self.numbers))
        rows, words = self._words_of(table)
        columns = _hashed(words, self.buckets) if self.kind == "text" else _positions(words, self.words)
        known = columns >= 0
        return Entries(rows[known], columns[known], np.ones(int(known.sum())))

    def _words_of(self, table: pa.Table) -> tuple[NDArray[np.int64], Any]:
        return _crossed(table, self.columns, self.separator) if self.kind == _CROSS else _of_column(self, table)


def learn_group(
    table: pa.Table, column: str, kind: FeatureKind | None, *, separator: str, bins: int, buckets: int
) -> FeatureGroup:
    """Return the group of a column of the given kind, or of the kind that its cells suggest."""
    chosen = kind or _suggested(table, column, separator)
    if chosen not in KINDS:
        raise InputError(
            f"Expected one of the feature kinds {', '.join(KINDS)} or ignore, got {chosen!r} for {column!r}.",
            argument="kinds",
        )
    empty = FeatureGroup(column, chosen, (column,), separator)
    if chosen in ("number", "binned"):
        _, numbers = _numbers(table, column)
        if not len(numbers):
            raise InputError(f"Column {column!r} of features has no number.", argument=None)
        learned = _knots(numbers, bins) if chosen == "binned" else _spread(numbers)
        return FeatureGroup(column, chosen, (column,), separator, numbers=tuple(float(x) for x in learned))
    if chosen == "text":
        return FeatureGroup(column, chosen, (column,), separator, buckets=buckets)
    return FeatureGroup(column, chosen, (column,), separator, _distinct(_of_column(empty, table)[1]))


def learn_cross(table: pa.Table, columns: tuple[str, ...], *, separator: str) -> FeatureGroup:
    """Return the group of all pairs (or triples) of words that occur together in a row."""
    if len(columns) < 2:
        raise InputError(f"Expected at least two columns to cross, got {columns}.", argument="crosses")
    for column in columns:
        if column not in table.column_names:
            raise InputError(f"There is no column {column!r} to cross.", argument="crosses")
    _, words = _crossed(table, columns, separator)
    return FeatureGroup(" x ".join(columns), _CROSS, columns, separator, _distinct(words))


# -- words --


def _of_column(group: FeatureGroup, table: pa.Table) -> tuple[NDArray[np.int64], Any]:
    """Return the words of a column and the row of each, in the order of rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _cells(table, group.columns[0])
    if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type):
        rows, words = pc.list_parent_indices(cells), pc.list_flatten(cells)
        words = _as_text(words, group.columns[0])
    else:
        rows, words = pa.array(np.arange(len(cells))), _as_text(cells, group.columns[0])
    if group.kind == "text":
        split = pc.split_pattern_regex(pc.utf8_lower(words), r"[^\p{L}\p{N}]+")
    elif group.kind == "multivalent":
        split = pc.split_pattern(words, group.separator)
    else:
        split = None
    if split is not None:
        rows, words = rows.take(pc.list_parent_indices(split)), pc.list_flatten(split)
    words = pc.utf8_trim_whitespace(words)
    kept = pc.fill_null(pc.greater(pc.utf8_length(words), 0), False)
    return rows.filter(kept).to_numpy(zero_copy_only=False).astype(np.int64), words.filter(kept)


def _crossed(table: pa.Table, columns: tuple[str, ...], separator: str) -> tuple[NDArray[np.int64], Any]:
    """Return every combination of the columns' words within a row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    between = pa.scalar(_BETWEEN, pa.large_string())
    rows, words = _of_column(FeatureGroup(columns[0], _several(table, columns[0]), columns[:1], separator), table)
    for column in columns[1:]:
        group = FeatureGroup(column, _several(table, column), (column,), separator)
        other_rows, other_words = _of_column(group, table)
        counts = np.bincount(other_rows, minlength=table.num_rows)
        first = np.cumsum(counts) - counts
        repeats = counts[rows]
        within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        partners = np.repeat(first[rows], repeats) + within
        ours = np.repeat(np.arange(len(rows)), repeats)
        words = pc.binary_join_element_wise(words.take(ours), other_words.take(partners), between)
        rows = rows[ours]
    return rows, words


def _several(table: pa.Table, column: str) -> str:
    return "multivalent" if is_text(_cells(table, column).type) else "categorical"


def _distinct(words: Any) -> tuple[str, ...]:
    import pyarrow.compute as pc

    return tuple(sorted(pc.unique(words).to_pylist()))


def _positions(words: Any, known: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the position of each word among the known ones, -1 if it is unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(words, value_set=pa.array(known, words.type))
    positions: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return positions


def _hashed(words: Any, buckets: int) -> NDArray[np.int64]:
    """Return a bucket for each word, by a checksum that is the same everywhere."""
    encoded = words.dictionary_encode()
    entries = [zlib.crc32(word.encode()) % buckets for word in encoded.dictionary.to_pylist()]
    codes: NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
    return np.array(entries, np.int64)[codes]


# -- numbers --


def _numbers(table: pa.Table, column: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the finite numbers of a column and their rows; empty cells have none."""
    import pyarrow as pa

    cells = _cells(table, column)
    if pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.int8())
    if is_text(cells.type):
        cells = _pointed(cells)
    try:
        numbers = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"Column {column!r} of features holds {cells.type}; expected numbers.", argument=None
        ) from None
    if np.isinf(numbers).any():
        raise InputError(
            f"Column {column!r} of features holds an infinite number; expected finite ones.", argument=None
        )
    rows = np.flatnonzero(~np.isnan(numbers))
    return rows, numbers[rows]


def _spread(numbers: NDArray[np.float64]) -> tuple[float, ...]:
    """Return mean, standard deviation, minimum and maximum."""
    return float(numbers.mean()), max(float(numbers.std()), 1e-9), float(numbers.min()), float(numbers.max())


def _knots(numbers: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return distinct quantiles, at least two."""
    if bins < 2:
        raise InputError(f"Expected at least 2 bins, got {bins}.", argument="bins")
    knots = np.unique(np.quantile(numbers, np.linspace(0, 1, bins)))
    return knots if len(knots) > 1 else np.array([knots[0], knots[0] + 1.0])


def _between_knots(rows: NDArray[np.int64], numbers: NDArray[np.float64], knots: NDArray[np.float64]) -> Entries:
    """Return each number as shares of the two knots around it; beyond the ends it is the last knot."""
    inside = np.clip(numbers, knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    share = (inside - knots[left]) / (knots[left + 1] - knots[left])
    values = np.concatenate([1 - share, share])
    kept = values > 0
    return Entries(np.concatenate([rows, rows])[kept], np.concatenate([left, left + 1])[kept], values[kept])


# -- cells --


def _cells(table: pa.Table, column: str) -> Any:
    """Return a column as one array, without dictionaries."""
    import pyarrow as pa

    cells = table.column(column)
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if is_text(cells.type):  # some forms of text support few operations
        cells = cells.cast(pa.large_string())
    joined = cells.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def _pointed(cells: Any) -> Any:
    """Return texts, of which numbers with a decimal comma have a point."""
    import pyarrow.compute as pc

    return with_decimal_points(pc.utf8_trim_whitespace(cells))


def _as_text(cells: Any, column: str) -> Any:
    import pyarrow as pa

    try:
        return cells.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"Column {column!r} of features holds {cells.type}; expected words or numbers.", argument=None
        ) from None


def _suggested(table: pa.Table, column: str, separator: str) -> FeatureKind:
    """Return the kind that a column's type and cells suggest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _cells(table, column)
    if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type):
        return "multivalent"
    if pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_decimal(cells.type):
        return "number"
    if not is_text(cells.type):
        return "categorical"
    text = cells.drop_null()
    if pc.any(pc.match_substring(text, ",")).as_py() and casts_to(pa.float64())(_pointed(text)):
        return "number"  # with decimal commas; text that reads as a number, such as 01234, is text
    if pc.any(pc.match_substring(text, separator)).as_py():
        return "multivalent"
    spaced = pc.sum(pc.match_substring(text, " ")).as_py() or 0
    running = 2 * spaced > len(text) and 2 * pc.count_distinct(text).as_py() > len(text)
    return "text" if running else "categorical"
