"""A file without the rows of one user, written independently of the readers that an audit tests.

Rows are cut out as they stand: lines of text, with the quotations that the csv module sees, lines of JSON, and rows of
Parquet. A user is known by the text of the id. The layout of a text file (separator, names) is its first line's.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

from apportion.data.sources import format_of
from apportion.data.text_files import Layout, see_layout
from apportion.data.text_streams import SPACE, STAND_IN, open_bytes
from apportion.errors import InputError

COVERED: Final = ("separated text", "JSON lines", "parquet")
"""The formats whose files can be written without a user."""

_PART_BYTES: Final = 1 << 20
_LINE: Final = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r(?!\n))")
_LONGEST_CELL: Final = 1 << 24
_PACKED: Final = (".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class UserFile:
    """One file with rows of users.

    Attributes:
        path: the file.
        user: its column of users.
        columns: names of all columns, for text without a line of names.
    """

    path: Path
    user: str
    columns: tuple[str, ...] | None = None

    @cached_property
    def format(self) -> str:
        """The name of its format."""
        return format_of(self.path).name

    def sizes(self) -> Counter[str]:
        """Return the number of rows of each user."""
        if self.format == "parquet":
            return Counter(user for user in self._ids_of_parquet() if user is not None)
        return Counter(user for user, _ in self._records() if user is not None)

    def write_without(self, user: str, folder: Path) -> Path:
        """Write the file without a user's rows to a folder, unpacked; return its path."""
        target = folder / next(
            (self.path.name.removesuffix(end) for end in _PACKED if self.path.name.endswith(end)), self.path.name
        )
        if self.format == "parquet":
            self._write_parquet(user, target)
        else:
            with target.open("wb") as stream:
                stream.writelines(raw for owner, raw in self._records() if owner != user)
        return target

    def _records(self) -> Iterator[tuple[str | None, bytes]]:
        """Return each record as it stands, with its user; None for lines before and between rows."""
        with open_bytes(self.path) as stream:
            lines = _lines(stream)
            yield from self._json(lines) if self.format == "JSON lines" else self._text(lines)

    def _json(self, lines: Iterable[bytes]) -> Iterator[tuple[str | None, bytes]]:
        for line in lines:
            text = line.decode("utf-8-sig", "surrogateescape").strip()
            yield (_id_text(json.loads(text).get(self.user)) if text else None), line

    def _text(self, lines: Iterator[bytes]) -> Iterator[tuple[str | None, bytes]]:
        layout = see_layout(self.path, self.columns, None)
        codecs = chain(["utf-8-sig"] if not layout.lines_before else [], repeat("utf-8"))  # the first line has a mark
        for _ in range(layout.lines_before):
            yield None, next(lines)
        place, taken = layout.names.index(self.user), list[bytes]()

        def decoded() -> Iterator[str]:
            for line, codec in zip(lines, codecs, strict=False):
                taken.append(line)
                yield _with_one_separator(line.decode(codec, "surrogateescape"), layout)

        mark = layout.separator if layout.separator == SPACE or len(layout.separator) == 1 else STAND_IN
        csv.field_size_limit(_LONGEST_CELL)
        for cells in csv.reader(decoded(), delimiter=mark):
            yield (cells[place] if len(cells) > place else None), b"".join(taken)
            taken.clear()

    def _ids_of_parquet(self) -> list[str | None]:
        return [_id_text(each) for each in self._read_parquet()[self.user].to_pylist()]

    def _write_parquet(self, user: str, target: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        kept = pa.array([each != user for each in self._ids_of_parquet()], pa.bool_())
        parquet.write_table(self._read_parquet().filter(kept), target)

    def _read_parquet(self) -> Any:
        import pyarrow.parquet as parquet

        return parquet.read_table(self.path)


def refuse_uncovered(path: Any) -> str | None:
    """Return why neighbours of a place are not written; None if they are."""
    if not isinstance(path, Path) or not path.is_file():
        return "it is not one file"
    found = format_of(path).name
    return None if found in COVERED else f"{found} files are not covered"


def _lines(stream: Any) -> Iterator[bytes]:
    """Return the lines of a stream of bytes with their ends: CR, LF, or both."""
    held = b""
    while fresh := stream.read(_PART_BYTES):
        held += fresh
        whole = held[: -1 if held.endswith(b"\r") else None]  # the next part may begin with LF
        end = 0
        for found in _LINE.finditer(whole):
            end = found.end()
            yield found[0]
        held = held[end:]
    yield from _LINE.findall(held)
    if rest := held[sum(map(len, _LINE.findall(held))) :]:
        yield rest


def _with_one_separator(line: str, layout: Layout) -> str:
    """Return a line in which one character separates cells."""
    if layout.separator == SPACE:
        end = line[len(line.rstrip("\r\n")) :]
        return SPACE.join(line.split()) + end
    return line if len(layout.separator) == 1 else line.replace(layout.separator, STAND_IN)


def _id_text(cell: Any) -> str | None:
    """Return an id as text; whole numbers read the same with and without a fraction of zero."""
    if cell is None:
        return None
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def readable(file: UserFile) -> Counter[str]:
    """Return the number of rows of each user, or refuse a file whose rows cannot be told apart here."""
    try:
        return file.sizes()
    except (csv.Error, ValueError, AttributeError) as error:
        raise InputError(f"{file.path.name}: its rows cannot be told apart ({error}).", argument=None) from error
