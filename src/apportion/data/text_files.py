"""Text files with separated columns: their layout, how they are opened, and where they are malformed.

The first line shows the separator and the names. Ids are read as text, values as float64. Arrow reads single-byte
separators; the `::` of the MovieLens files is replaced on the way in.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from apportion.data.arrow_columns import (
    EMPTY_WORDS,
    casts_to,
    expected_number,
    first_failing,
    has_decimal_comma,
    is_truth,
)
from apportion.data.columns import usually
from apportion.data.sources import CellKind, HeldKind
from apportion.data.text_streams import SEPARATORS, SPACE, STAND_IN, open_bytes, opened_lines
from apportion.data.vocabulary import bad_cell, shortened
from apportion.errors import InputError

_BLOCK_BYTES = 8 << 20
_FIRST_LINE_BYTES = 1 << 16  # read first; if the line with the names is longer, up to ...
_LONGEST_FIRST_LINE = 1 << 24
LINE_END = re.compile(r"\r\n|\r|\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a]")  # bytes that no line of text has
_EXCEL_SEPARATOR = re.compile(rb"(\xef\xbb\xbf)?sep=[^\r\n]\r?\n", re.IGNORECASE)  # a first line for Excel alone
_ZIP = b"PK\x03\x04"
_XZ = b"\xfd7zXZ\x00"
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # UTF-32-LE begins as UTF-16-LE


@dataclass(frozen=True)
class Layout:
    """The layout of a text file, as its first line shows it.

    Attributes:
        separator: the separator of columns.
        names: names of all columns.
        lines_before: number of lines before the first row of data, including the header.
        separator_from_data: whether a row of data told the separator, so that no row may say another.
    """

    separator: str
    names: tuple[str, ...]
    lines_before: int
    separator_from_data: bool = False


def see_layout(path: Path, columns: list[str] | tuple[str, ...] | None, separator: str | None) -> Layout:
    """Read the first line: its separator, and the column names unless they are given.

    Args:
        path: the file.
        columns: names of all columns, for a file without a header line.
        separator: the separator of columns; by default the most frequent candidate.
    """
    first = _first_line(path)
    line = first.line
    guessed = separator is None and columns is not None
    if separator is None:
        if columns is not None:
            _refuse_several(line, len(columns))
        separator = max(SEPARATORS, key=line.count)
        separator = separator if separator in line or not line.split()[1:] else SPACE
    cells, n_lines = _cells(first.text, separator)
    if columns is not None:
        if len(columns) != len(cells):
            problem = f"Expected {len(columns)} columns, as named, got {len(cells)} in the line {shortened(line)}."
            raise InputError(problem, argument="columns")
        if tuple(columns) == cells or _are_names(cells):
            problem = f"The first line {shortened(line)} holds the names of the columns, not data"
            raise InputError(problem, argument="columns", remedy="leave out")
        return Layout(separator, tuple(columns), first.before, separator_from_data=guessed)
    if all(is_number(cell) for cell in cells):
        problem = f"The first line {shortened(line)} holds numbers, not column names"
        raise InputError(problem, argument="columns", remedy="name the columns with")
    return Layout(separator, cells, first.before + n_lines)


def _refuse_several(line: str, n_columns: int) -> None:
    """Refuse to guess a separator by a row of data where several give as many cells: another row might say another."""
    fitting = [each for each in SEPARATORS if line.count(each) == n_columns - 1] if n_columns > 1 else []
    if len(fitting) > 1:
        problem = f"It is not clear what separates the columns: {' or '.join(map(repr, fitting))}; "
        raise InputError(problem + "write a first line with their names.", argument=None)


def _cells(text: str, separator: str) -> tuple[tuple[str, ...], int]:
    """Return the cells of the first line, and how many lines of text it takes: a name in quotes may hold an end."""
    if len(separator) == 1 and separator != SPACE:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
        try:
            return tuple(cell.strip() for cell in next(lines)), lines.line_num
        except csv.Error:  # quotation marks that are no quotation
            pass
    line = LINE_END.split(text, maxsplit=1)[0]
    split = line.split() if separator == SPACE else line.split(separator)
    return tuple(cell.strip().strip('"') for cell in split), 1


def _are_names(cells: Sequence[str]) -> bool:
    """Whether cells are usual names of a user column and of an item column, so that they are no row of data."""
    return bool(usually("user", cells) and usually("task", cells))


@dataclass
class TextColumns:
    """Columns wanted from one text file, each with what its cells hold; can be opened any number of times.

    Attributes:
        path: the file.
        layout: the layout of its lines.
        kinds: the columns, and what their cells hold.
        in_threads: whether to read with several threads. The numbers of malformed rows are not known then.
    """

    path: Path
    layout: Layout
    kinds: Mapping[str, CellKind]
    in_threads: bool = False
    _malformed: Any = field(default=None, init=False)

    def open(self, types: Mapping[str, Any]) -> Any:
        """Return a reader of record batches with the wanted columns, of the given Arrow types."""
        import pyarrow.csv as csv

        separator = self.layout.separator
        return csv.open_csv(
            opened_lines(self.path, separator, alone=self.layout.separator_from_data),
            read_options=csv.ReadOptions(
                use_threads=self.in_threads,
                block_size=_BLOCK_BYTES,
                column_names=list(self.layout.names),
                skip_rows=self.layout.lines_before,
            ),
            parse_options=csv.ParseOptions(
                delimiter=separator if len(separator) == 1 else STAND_IN,
                newlines_in_values=True,  # else where a block ends would decide whether a cell with a line end is read
                invalid_row_handler=self._refuse_row,
            ),
            convert_options=csv.ConvertOptions(
                include_columns=list(self.kinds),
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    def n_blocks(self) -> int:
        """Return the approximate number of batches; 0 if unknown, as for a compressed file."""
        import pyarrow as pa

        with open_bytes(self.path) as stream:
            return math.ceil(self.path.stat().st_size / _BLOCK_BYTES) if isinstance(stream, pa.OSFile) else 0

    def first_types(self) -> dict[str, Any]:
        """Return Arrow types. Times are read from text, cell by cell, whatever the first one holds."""
        import pyarrow as pa

        return {name: pa.float64() if kind == "number" else pa.string() for name, kind in self.kinds.items()}

    def first_cells(self) -> dict[str, str | None]:
        """Return the first cell of each column that says something, within the first block, as text.

        Nothing if there is no row or the first block cannot be read.
        """
        import pyarrow as pa

        try:
            batch = next((batch for batch in self.open(dict.fromkeys(self.kinds, pa.string())) if batch.num_rows), None)
        except pa.ArrowInvalid:
            return {}
        return {} if batch is None else {name: _first_filled(batch.column(name)) for name in self.kinds}

    def corrected_types(self, types: dict[str, Any], error: Exception) -> dict[str, Any]:
        """Return other types after Arrow failed, or raise an error that names a bad number or a malformed row.

        A malformed row that was met by threads has no number yet. In that case the file is to be read once more, in
        order.
        """
        import pyarrow as pa

        if self.in_threads and self._malformed is not None:
            self.in_threads, self._malformed = False, None
            return types
        self.name_malformed_row()
        row, name, cell = self._first_mismatch_or_none(types)
        if name is None:
            raise InputError(f"The file cannot be read: {str(error).splitlines()[0]}.", argument=None) from None
        if self.kinds[name] == "number" and (has_decimal_comma(cell or "") or is_truth(cell or "")):
            return {**types, name: pa.string()}  # read such numbers from text
        raise bad_cell(name, cell, row, expected_number(cell))

    def _first_mismatch_or_none(self, types: dict[str, Any]) -> tuple[int, str | None, str | None]:
        """Return the same as `_first_mismatch`, and nothing if the rows cannot be told apart."""
        import pyarrow as pa

        try:
            return self._first_mismatch(types)
        except pa.ArrowInvalid:
            return 0, None, None

    def _first_mismatch(self, types: dict[str, Any]) -> tuple[int, str | None, str | None]:
        """Return row, column and cell of the first cell that is not of its column's type."""
        import pyarrow as pa
        import pyarrow.compute as pc

        first_row = 1
        for batch in self.open(dict.fromkeys(types, pa.binary())):
            found = []
            for name, arrow_type in types.items():
                cells = pc.utf8_trim_whitespace(_decoded(batch.column(name), name, first_row))
                position = first_failing(cells, casts_to(arrow_type))
                if position is not None:
                    found.append((first_row + position, name, cells[position].as_py()))
            if found:
                return min(found)
            first_row += batch.num_rows
        return 0, None, None

    def _refuse_row(self, row: Any) -> str:
        self._malformed = self._malformed or row
        return "error"

    def name_malformed_row(self) -> None:
        """Refuse the row that made Arrow fail, if it is one with too few or too many columns."""
        row = self._malformed
        if row is not None:
            where = "" if row.number is None else f" {row.number - self.layout.lines_before}"
            raise InputError(
                f"Row{where} (counting data rows from 1) has {_columns(row.actual_columns)} where "
                f"{row.expected_columns} were expected: {shortened(row.text)}{_why(row.text)}.",
                argument=None,
            )


def _first_filled(cells: Any) -> str | None:
    """Return the first cell that is not empty and no word for that; the first of all if there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pc.utf8_lower(pc.utf8_trim_whitespace(cells))
    empty = pc.fill_null(pc.is_in(words, pa.array(EMPTY_WORDS, words.type)), True)
    place = pc.index(empty, False).as_py()
    cell: str | None = cells[max(place, 0)].as_py()
    return cell


def _columns(number: int) -> str:
    return f"{number} column{'s' if number != 1 else ''}"


def _why(row: str) -> str:
    """Return a guess at why a row is malformed, to be added to the sentence."""
    return " (a quotation mark is not closed)" if row.count('"') % 2 else ""


def _decoded(cells: Any, column: str, first_row: int) -> Any:
    """Return bytes as text. Name the first cell that is not UTF-8."""
    import pyarrow as pa

    position = first_failing(cells, casts_to(pa.string()))
    if position is not None:
        shown = cells[position].as_py().decode("latin-1")
        raise bad_cell(column, shown, first_row + position, "text in UTF-8, not in another encoding")
    return cells.cast(pa.string())


def is_number(cell: str) -> bool:
    """Whether a cell of text reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def held_by(cell: str | None) -> HeldKind:
    """Return what a cell of text holds: a number, also with a decimal comma, unless it is a time or another text."""
    if cell is None or is_number(cell) or has_decimal_comma(cell.strip()):
        return "number"
    try:
        datetime.fromisoformat(cell.strip())
    except ValueError:
        return "text"
    return "time"


def refuse_other_encodings(beginning: bytes) -> None:
    """Refuse archives, UTF-16, UTF-32 and binary files by their first bytes.

    Arrow's threads may abort the process on them.
    """
    if beginning.startswith(_ZIP):
        raise InputError(
            "This is a ZIP archive or a spreadsheet (.xlsx); unpack it, or save the sheet as CSV in UTF-8.",
            argument=None,
        )
    if beginning.startswith(_XZ):
        raise InputError("The file is compressed in xz, which is not supported; unpack it.", argument=None)
    if beginning.startswith(_OTHER_MARKS) or _CONTROL.search(beginning.lstrip(b"\r\n").split(b"\n", 1)[0]):
        raise InputError(
            "The file is not text in UTF-8 (it looks like UTF-16 or a binary file); save it as CSV in UTF-8.",
            argument=None,
        )


@dataclass(frozen=True)
class _First:
    """The text from the first filled line on, as far as it was read, and the number of lines before it."""

    text: str
    before: int

    @property
    def line(self) -> str:
        """The first line, without its end."""
        return LINE_END.split(self.text, maxsplit=1)[0]


def _first_line(path: Path) -> _First:
    """Return the text from the first filled line on but that of Excel's separator."""
    beginning = _beginning(path)
    refuse_other_encodings(beginning)
    filled = beginning.lstrip(b"\r\n")
    if excel := _EXCEL_SEPARATOR.match(filled):
        filled = filled[excel.end() :]
    before = len(beginning[: len(beginning) - len(filled)].splitlines())
    first = _First(filled.decode("utf-8-sig", errors="replace"), before)
    if not first.line.strip():
        raise InputError("The file is empty.", argument=None)
    return first


def _beginning(path: Path) -> bytes:
    """Return the beginning of a file, with at least one whole filled line if it is not longer than any sensible one."""
    with open_bytes(path) as stream:
        beginning: bytes = stream.read(_FIRST_LINE_BYTES)
        more = beginning
        while more and len(beginning) < _LONGEST_FIRST_LINE and not beginning.lstrip(b"\r\n").count(b"\n"):
            more = stream.read(_FIRST_LINE_BYTES)
            beginning += more
    return beginning
