"""Tables wherever they are, behind one function: `open_table` finds the format and opens the table.

A table may be a file, several files, a folder, a pattern such as `part-*.parquet`, or a PostgreSQL database. A format
is one module of `apportion.data.formats`, or of another package that registers it as an entry point of the group
`apportion.table_formats`. Readers ask an open table for columns by name and for what their cells hold; they never
depend on the format.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from glob import glob, has_magic
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar

from apportion.data import formats
from apportion.data.arrow_texts import is_text
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CellKind",
    "HeldKind",
    "OpenTable",
    "Place",
    "TableFormat",
    "held_kind",
    "name_of",
    "open_table",
    "rows_say_schema",
]

Place = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Where a table is: a file, folder or pattern, several of them, or the URL of a PostgreSQL database."""

CellKind = Literal["id", "number", "time", "text"]
"""How the cells of a column are read. Ids are text in a file without a schema, else as the schema says."""

HeldKind = Literal["number", "text", "time", "other"]
"""What a column holds, judged by the head of the file."""

Candidates = Callable[[Sequence[str]], list[str]]
"""Given names of columns, returns those that could play a role."""

ENTRY_POINTS = "apportion.table_formats"

_BEGINNING_BYTES = 16
_COMPRESSED = (".gz", ".bz2", ".zst")
_URLS = ("postgresql://", "postgres://")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Opening:
    """How a file is opened.

    Attributes:
        columns: names of all columns, for a file without them.
        separator: the separator of columns, if the format has one; None to guess it from the file.
        table: the table of a database, or a query; None for its only table.
    """

    columns: Sequence[str] | None = None
    separator: str | None = None
    table: str | None = None


class OpenTable(Protocol):
    """One table with known columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""

    @property
    def untyped(self) -> bool:
        """Whether the file has no schema, so that ids are text, each as it is written: 7 and 07 are two ids."""

    @property
    def ordered(self) -> bool:
        """Whether the order of rows means something, as in a file. Rows of a database have no order."""

    @property
    def schema_from_rows(self) -> bool:
        """Whether rows say which columns there are, or what they hold, as in JSON lines: one user's could for all.

        Ask `rows_say_schema`, since a format of another package may not have it.
        """

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
    has_tables: ClassVar[bool]
    """Whether a file has tables to choose from, as a database does."""
    fallback: ClassVar[bool]
    """Whether to try this format only if no other recognises the file."""

    def recognises(self, file: Path, beginning: bytes) -> bool:
        """Whether a file is in this format, by its first bytes or its name. A folder has an empty beginning."""

    def open(self, file: Path, how: Opening) -> OpenTable:
        """Open a file."""

    def rows_as_text(self, file: Path) -> list[list[str]]:
        """Return all cells of a small file as text, row by row; the column names first, if the file has them."""


def rows_say_schema(table: OpenTable) -> bool:
    """Whether it is rows that say which columns a table has, or what they hold; so it is of a format that is silent."""
    return bool(getattr(table, "schema_from_rows", True))


def open_table(
    place: Place,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    table: str | None = None,
) -> OpenTable:
    """Open a table of any known format, wherever it is; see `Opening`."""
    opened = _opened(place, Opening(columns, separator, table))
    if columns is not None and opened.names[: len(columns)] != tuple(columns):
        problem = f"Names of columns are given for text files alone; the columns here are {', '.join(opened.names)}"
        raise InputError(problem, argument="columns", remedy="leave out")
    return opened


def _opened(place: Place, how: Opening) -> OpenTable:
    if is_url(place):
        from apportion.data.postgres_tables import open_postgres

        return open_postgres(str(place), how.table)
    files = files_at(place)
    if how.table is not None and not any(format_of(each.path).has_tables for each in files):
        problem = "Only a database has tables to choose from, and this is none"
        raise InputError(problem, argument="table", remedy="leave out")
    if len(files) == 1 and files[0].root is None:
        return format_of(files[0].path).open(files[0].path, how)
    from apportion.data.several_tables import open_several

    return open_several(files, how)


def is_url(place: Place) -> bool:
    """Whether a place is a database rather than files."""
    return isinstance(place, str) and place.startswith(_URLS)


def name_of(place: Place) -> str:
    """Return what messages call a place; never a URL, which may hold a password."""
    if is_url(place):
        return "the database"
    if isinstance(place, str | os.PathLike):
        return Path(place).name or str(place)
    return " and ".join([Path(place[0]).name, *([f"{len(place) - 1} more"] if len(place) > 1 else [])])


@dataclass(frozen=True)
class Found:
    """A file, and the folder that was asked for, if the file was found in one."""

    path: Path
    root: Path | None = None


def files_at(place: Place) -> list[Found]:
    """Return the files at a place, in the order of their names. A folder that is a format of its own counts as one."""
    if isinstance(place, bytes) or not isinstance(place, str | os.PathLike | Iterable):
        raise InputError(f"Expected the path of a file, or several, got {place!r}.", argument="path")
    if not isinstance(place, str | os.PathLike):
        return [found for each in place for found in files_at(each)]
    path = Path(place)
    if path.is_file():
        return [Found(path)]
    if path.is_dir():
        known = any(each.recognises(path, b"") for each in table_formats())
        return [Found(path)] if known else [Found(each, path) for each in _tables_under(path)]
    matching = sorted(Path(each) for each in glob(str(path), recursive=True)) if has_magic(str(path)) else []
    return [found for each in matching for found in files_at(each)]


def _tables_under(folder: Path) -> list[Path]:
    """Return the files with a known ending in a folder and its subfolders.

    Hidden files and marker files are skipped.
    """
    inside = sorted(each for each in folder.rglob("*") if each.is_file() and name_without_ending(each.name))
    return [each for each in inside if not any(part.startswith((".", "_")) for part in each.relative_to(folder).parts)]


def rows_as_text(path: Path) -> list[list[str]]:
    """Return all cells of a small file as text, row by row; the column names first, if the file has them."""
    with naming(path):
        return format_of(path).rows_as_text(path)


def names_columns(path: Path) -> bool:
    """Whether the first of `rows_as_text` is always the column names; text may have no such line."""
    return not format_of(path).fallback


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


def rows_of(table: pa.Table) -> list[list[str]]:
    """Return the cells of a table as text, row by row, with the column names first. An empty cell is an empty text.

    Cells read as they do in a column of ids or groups: 5 for 5.0. Lists and records are refused in the first column, of
    ids, and are as Python writes them in others.
    """
    import pyarrow as pa

    from apportion.data.arrow_columns import texts_of

    def texts(place: int, column: pa.ChunkedArray) -> list[str]:
        if place and pa.types.is_nested(column.type):
            return [str(cell) for cell in column.to_pylist()]
        cells = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        return [cell or "" for cell in texts_of(cells, table.column_names[place], 1).to_pylist()]

    columns = [texts(place, column) for place, column in enumerate(table.columns)]
    return [list(table.column_names), *(list(row) for row in zip(*columns, strict=True))]


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
def naming(place: Place) -> Iterator[None]:
    """Begin every error with the name of the place. Refuse a place without a file."""
    if not is_url(place) and not files_at(place):
        raise InputError(_nothing_at(place), argument="path")
    try:
        yield
    except InputError as error:
        raise error.inside(name_of(place)) from None
    except OSError as error:
        if error.filename is not None:
            raise
        problem = f"{name_of(place)}: The file cannot be read: {str(error).rstrip('.')}."
        raise InputError(problem, argument=None) from None


def _nothing_at(place: Place) -> str:
    if not isinstance(place, str | os.PathLike):
        return "No file was given."
    if Path(place).is_dir():
        return f"There is no file of a known format in the folder {str(place)!r}; known: {', '.join(table_endings())}."
    if Path(place).exists():
        return f"{str(place)!r} is a pipe or a device, which can be read once only; pipe it to standard input, as `-`."
    return f"There is no file {str(place)!r}."


@lru_cache(maxsize=1)
def table_formats() -> tuple[TableFormat, ...]:
    """Return all formats by name, with those that accept any file last."""
    modules = [import_module(f"{formats.__name__}.{found.name}") for found in pkgutil.iter_modules(formats.__path__)]
    known = [module.FORMAT for module in modules] + [each.load() for each in entry_points(group=ENTRY_POINTS)]
    return tuple(sorted(known, key=lambda each: (each.fallback, each.name)))


def format_of(path: Path) -> TableFormat:
    """Return the format of a file, or of a folder that is a format of its own."""
    beginning = b""
    if path.is_file():
        with path.open("rb") as stream:
            beginning = stream.read(_BEGINNING_BYTES)
    found = next(each for each in table_formats() if each.recognises(path, beginning))
    named = [each.name for each in table_formats() if path.name.lower().endswith(each.endings) and not each.fallback]
    if found.fallback and named and beginning:
        raise InputError(f"The file is not in the format {named[0]}, although its name says so.", argument=None)
    return found
