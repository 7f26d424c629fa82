"""Text files with separated columns: CSV, TSV and the `.dat` of MovieLens, possibly compressed.

Any file that no other format recognises is read as one of these.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from apportion.data.sources import CellKind, HeldKind, Opening
from apportion.data.text_files import (
    LINE_END,
    Layout,
    TextColumns,
    held_by,
    refuse_other_encodings,
    see_layout,
)
from apportion.data.text_streams import open_bytes
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_FILLED_LINE: Final = re.compile(r"[^\r\n]*\S[^\r\n]*")
_SEPARATORS: Final = ("::", "\t", "|", ";", ",")

Result = TypeVar("Result")


class _OpenText:
    """A text file whose first line was read."""

    untyped = True
    ordered = True
    schema_from_rows = False

    def __init__(self, file: Path, layout: Layout) -> None:
        self._file, self._layout = file, layout

    @property
    def names(self) -> tuple[str, ...]:
        return self._layout.names

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        first = TextColumns(self._file, self._layout, dict.fromkeys(names, "text")).first_cells() if names else {}
        return {name: held_by(first.get(name)) for name in names}

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        import pyarrow as pa

        text = TextColumns(self._file, self._layout, kinds, in_threads=True)
        types: dict[str, pa.DataType] = {}
        while True:  # read once more, in order, if threads met a malformed row
            try:
                types = types or text.first_types()
                return gather(text.open(types), text.n_blocks())
            except pa.ArrowInvalid as error:
                types = text.corrected_types(types, error)

    def read_all(self, id_column: str) -> pa.Table:
        import pyarrow as pa

        columns = TextColumns(self._file, self._layout, dict.fromkeys(self.names, "text"))
        try:
            return _in_utf8(columns.open({id_column: pa.string()}).read_all())
        except pa.ArrowInvalid as error:
            columns.name_malformed_row()
            raise InputError(f"The file cannot be read: {str(error).splitlines()[0]}.", argument=None) from None


class _SeparatedText:
    """The format."""

    name: Final = "separated text"
    endings: Final = (".csv", ".tsv")
    may_be_compressed: Final = True
    has_tables: Final = False
    fallback: Final = True

    def recognises(self, file: Path, beginning: bytes) -> bool:
        return file.is_file()

    def open(self, file: Path, how: Opening) -> _OpenText:
        return _OpenText(file, see_layout(file, None if how.columns is None else list(how.columns), how.separator))

    def rows_as_text(self, file: Path) -> list[list[str]]:
        with open_bytes(file) as stream:
            content = stream.read()
        refuse_other_encodings(content)
        text = _decoded(content).lstrip("\ufeff")
        filled = _FILLED_LINE.search(text)
        first = "" if filled is None else filled[0]
        mark = "::" if "::" in first else max(_SEPARATORS[::-1], key=first.count)
        if mark == "::":
            return [line.split(mark) for line in LINE_END.split(text) if line]
        try:
            return list(csv.reader(io.StringIO(text, newline=""), delimiter=mark))
        except csv.Error as error:
            raise InputError(f"The file cannot be read: {error}.", argument=None) from None


FORMAT: Final = _SeparatedText()


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _in_utf8(table: pa.Table) -> pa.Table:
    """Return the table. Refuse it if Arrow found bytes that are not text."""
    import pyarrow as pa

    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise InputError(
                f"Column {field.name!r} holds text that is not in UTF-8; save the file in that encoding.", argument=None
            )
    return table
