"""Text files with separated columns: how one is laid out, how it is opened, where it is wrong.

The first line shows the separator and the names. Ids are read as integers where every one of them is an
integer, otherwise as text; values as float64. Arrow reads with single-byte separators; the `::` of the
MovieLens files is replaced on the way in.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apportion.data.arrow_columns import casts_to, first_failing
from apportion.data.columns import Columns
from apportion.data.vocabulary import bad_cell
from apportion.errors import InputError

_BLOCK_BYTES = 8 << 20
_SEPARATORS = ("::", "\t", ",", ";", "|")
_STAND_IN = "\x1f"  # ASCII "unit separator", which takes the place of a separator of several characters
_FIRST_LINE_BYTES = 1 << 16


@dataclass(frozen=True)
class Layout:
    """What the first line of a text file says."""

    separator: str
    names: tuple[str, ...]
    has_header: bool


def see_layout(path: Path, columns: list[str] | tuple[str, ...] | None, separator: str | None) -> Layout:
    """Read the first line: its separator, and the columns' names unless they are given.

    Args:
        path: the file.
        columns: names of all columns, for a file without a header line.
        separator: what separates columns; the mark that occurs most often if left out.
    """
    line = _first_line(path)
    if separator is None:
        separator = max(_SEPARATORS, key=line.count)
    cells = [cell.strip().strip('"') for cell in line.split(separator)]
    if columns is not None:
        if len(columns) != len(cells):
            raise InputError(f"Expected {len(columns)} columns, as named, got {len(cells)} in the line {line!r}.")
        return Layout(separator, tuple(columns), has_header=False)
    if all(_is_number(cell) for cell in cells):
        raise InputError(f"The first line {line!r} holds numbers, not column names; name the columns with columns=.")
    return Layout(separator, tuple(cells), has_header=True)


@dataclass
class TextFile:
    """One text file, its layout and the columns wanted from it; can be opened any number of times."""

    path: Path
    layout: Layout
    columns: Columns
    _malformed: Any = field(default=None, init=False)

    def open(self, types: dict[str, Any]) -> Any:
        """A reader of record batches with the wanted columns, of the given Arrow types."""
        import pyarrow.csv as csv

        separator = self.layout.separator
        return csv.open_csv(
            _open_bytes(self.path) if len(separator) == 1 else _replaced(self.path, separator),
            read_options=csv.ReadOptions(
                use_threads=False,  # with threads the numbers of malformed rows are lost
                block_size=_BLOCK_BYTES,
                column_names=None if self.layout.has_header else list(self.layout.names),
            ),
            parse_options=csv.ParseOptions(
                delimiter=separator if len(separator) == 1 else _STAND_IN,
                invalid_row_handler=self._refuse_row,
            ),
            convert_options=csv.ConvertOptions(
                include_columns=self.columns.names,
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    def first_types(self) -> dict[str, Any]:
        """Arrow types as the beginning of the file suggests them."""
        import pyarrow as pa

        seen = self.open({}).schema
        types = {
            name: pa.int64() if seen.field(name).type == pa.int64() else pa.string()
            for name in (self.columns.user, self.columns.task)
        }
        if self.columns.value is not None:
            types[self.columns.value] = pa.float64()
        if self.columns.timestamp is not None:
            suggested = seen.field(self.columns.timestamp).type
            types[self.columns.timestamp] = suggested if _is_time(suggested) else pa.int64()
        return types

    def corrected_types(self, types: dict[str, Any], error: Exception) -> dict[str, Any]:
        """Types after Arrow gave up: ids become text; a bad number or a malformed row is named."""
        import pyarrow as pa

        self._name_malformed_row()
        row, name, cell = self._first_mismatch(types)
        if name in (self.columns.user, self.columns.task):
            return types | {name: pa.string()}
        if name is not None:
            expected = "a number" if name == self.columns.value else f"a time ({types[name]})"
            raise bad_cell(name, cell, row, expected)
        raise InputError(f"The file cannot be read: {str(error).splitlines()[0]}.") from None

    def _first_mismatch(self, types: dict[str, Any]) -> tuple[int, str | None, str | None]:
        """Row, column and cell of the first cell that is not of its column's type."""
        import pyarrow as pa
        import pyarrow.compute as pc

        first_row = 1
        for batch in self.open(dict.fromkeys(types, pa.string())):
            found = []
            for name, arrow_type in types.items():
                cells = pc.utf8_trim_whitespace(batch.column(name))
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

    def _name_malformed_row(self) -> None:
        row = self._malformed
        if row is not None:
            where = "" if row.number is None else f" {row.number - self.layout.has_header}"
            raise InputError(
                f"Row{where} (counting data rows from 1) has {row.actual_columns} columns where "
                f"{row.expected_columns} were expected: {row.text!r}."
            )


def _is_time(arrow_type: Any) -> bool:
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_date)
    return any(is_kind(arrow_type) for is_kind in kinds)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _open_bytes(path: Path) -> Any:
    """The file's bytes, decompressed if its name ends in .gz, .bz2 or .zst."""
    import pyarrow as pa

    return pa.input_stream(str(path))


def _first_line(path: Path) -> str:
    with _open_bytes(path) as stream:
        beginning: bytes = stream.read(_FIRST_LINE_BYTES)
    line = beginning.lstrip(b"\r\n").split(b"\n", 1)[0]
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r")
    if not text.strip():
        raise InputError("The file is empty.")
    return text


def _replaced(path: Path, separator: str) -> Any:
    """The file's bytes with a single byte in place of a long separator."""
    import pyarrow as pa

    return pa.PythonFile(_Replacing(_open_bytes(path), separator.encode()), mode="r")


class _Replacing(io.RawIOBase):
    """A stream in which every `separator` is replaced, also where it falls on the edge of two reads."""

    def __init__(self, stream: Any, separator: bytes) -> None:
        self._stream, self._separator, self._held = stream, separator, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; empty only at the end."""
        while True:
            fresh: bytes = self._stream.read(max(1, size - len(self._held)) if size >= 0 else None)
            *finished, rest = (self._held + fresh).split(self._separator)
            keep = _unfinished(rest, self._separator) if fresh else 0
            self._held = rest[len(rest) - keep :]
            done = _STAND_IN.encode().join([*finished, rest[: len(rest) - keep]])
            if done or not fresh:
                return done


def _unfinished(raw: bytes, separator: bytes) -> int:
    """How many bytes at the end of `raw` may be the beginning of a separator."""
    lengths = range(len(separator) - 1, 0, -1)
    return next((length for length in lengths if raw.endswith(separator[:length])), 0)
