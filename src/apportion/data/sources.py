"""Tables in files of any format, behind one function: `open_table` finds the format and opens the file.

A format is one module of `apportion.data.formats`, or of another package that registers it as an entry point of the
group `apportion.table_formats`. Readers ask an open table for columns by name and for what their cells hold; they never
depend on the format.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar

from apportion.data import formats
from apportion.data.arrow_columns import is_text
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CellKind", "HeldKind", "OpenTable", "TableFormat", "held_kind", "open_table"]

CellKind = Literal["id", "number", "time", "text"]
"""How the cells of a column are read. Ids are text in a file without a schema, else as the schema says."""

HeldKind = Literal["number", "text", "time", "other"]
"""What a column holds, judged by the head of the file."""

ENTRY_POINTS = "apportion.table_formats"

_BEGINNING_BYTES = 16
_COMPRESSED = (".gz", ".bz2", ".zst")

Result = TypeVar("Result")


class OpenTable(Protocol):
    """One file with known columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""

    @property
    def untyped(self) -> bool:
        """Whether the file has no schema, so that ids are text, each as it is written: 7 and 07 are two ids."""

    @property
    def ordered(self) -> bool:
        """Whether rows have an order that means something, as in a file; those of a database have none."""

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        """Return what some columns hold, judged by the head of the file."""

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        """Read some columns, batch by batch.

        Args:
            kinds: the columns, and how their cells are read.
            gather: receives the batches and their approximate number (0 if unknown). It is called again, from the
                start, if a column turns out to hold something else than its first cells suggest.
        """

    def read_all(self, id_column: str) -> pa.Table:
        """Return the whole table; without a schema, the id column is read as text."""


class TableFormat(Protocol):
    """One way to store a table in a file."""

    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    """Endings of files in this format, in lower case."""
    may_be_compressed: ClassVar[bool]
    """Whether a further .gz, .bz2 or .zst is supported."""
    fallback: ClassVar[bool]
    """Whether to try this format only if no other recognises the file."""

    def recognises(self, file: Path, beginning: bytes) -> bool:
        """Whether a file is in this format, by its first bytes or its name."""

    def open(self, file: Path, columns: Sequence[str] | None, separator: str | None) -> OpenTable:
        """Open a file.

        Args:
            file: the file.
            columns: names of all columns, for a file without them.
            separator: the separator of columns, if the format has one; None to guess it from the file.
        """

    def rows_as_text(self, file: Path) -> list[list[str]]:
        """Return all cells of a small file as text, row by row; the column names first, if the file has them."""


def open_table(path: Path, *, columns: Sequence[str] | None = None, separator: str | None = None) -> OpenTable:
    """Open a file of any known format, or a folder of users; see `TableFormat.open`."""
    if path.is_dir():
        from apportion.data.on_disk.folder_table import FolderTable

        return FolderTable(path)
    return _format_of(path).open(path, columns, separator)


def rows_as_text(path: Path) -> list[list[str]]:
    """Return all cells of a small file as text, row by row; the column names first, if the file has them."""
    with naming(path):
        return _format_of(path).rows_as_text(path)


def table_endings() -> tuple[str, ...]:
    """Return the endings of all known formats, in alphabetical order."""
    return tuple(sorted(ending for each in table_formats() for ending in each.endings))


def name_without_ending(file_name: str) -> str | None:
    """Return the name of a table's file without its ending; None for a file of no known format."""
    lower = file_name.lower()
    packed = next((ending for ending in _COMPRESSED if lower.endswith(ending)), "")
    plain = lower.removesuffix(packed)
    for each in table_formats():
        ending = next((ending for ending in each.endings if plain.endswith(ending)), None)
        if ending is not None and (each.may_be_compressed or not packed):
            return file_name[: len(plain) - len(ending)] or None
    return None


def held_kind(arrow_type: pa.DataType) -> HeldKind:
    """Return what a column of an Arrow type holds, for formats that have a schema."""
    import pyarrow as pa

    held = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    if is_text(held):
        return "text"
    if pa.types.is_timestamp(held) or pa.types.is_date(held):
        return "time"
    return "number" if any(kind(held) for kind in numeric) else "other"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Begin every error with the file's name. Refuse a missing file."""
    if not (path.is_file() or path.is_dir()):
        raise InputError(f"There is no file {str(path)!r}.", argument="path")
    try:
        yield
    except InputError as error:
        raise error.inside(path.name) from None


@lru_cache(maxsize=1)
def table_formats() -> tuple[TableFormat, ...]:
    """Return all formats by name, with those that accept any file last."""
    modules = [import_module(f"{formats.__name__}.{found.name}") for found in pkgutil.iter_modules(formats.__path__)]
    known = [module.FORMAT for module in modules] + [each.load() for each in entry_points(group=ENTRY_POINTS)]
    return tuple(sorted(known, key=lambda each: (each.fallback, each.name)))


def _format_of(path: Path) -> TableFormat:
    with path.open("rb") as stream:
        beginning = stream.read(_BEGINNING_BYTES)
    return next(each for each in table_formats() if each.recognises(path, beginning))
