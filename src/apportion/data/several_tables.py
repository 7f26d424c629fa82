"""Several files as one table, for example the parts of a folder. Names of Hive folders (`year=2026`) become columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from apportion.data.sources import (
    Candidates,
    CellKind,
    Found,
    HeldKind,
    Opening,
    OpenTable,
    format_of,
    rows_say_schema,
)
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["open_several"]

Result = TypeVar("Result")

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class _PartOf:
    """One file, and the cells that the names of its folders give to all of its rows."""

    label: str
    table: OpenTable
    folders: Mapping[str, str | None]

    def batches(self, kinds: Mapping[str, CellKind]) -> list[pa.RecordBatch]:
        """Read some columns."""
        inside = {name: kind for name, kind in kinds.items() if name not in self.folders}
        try:
            found = self.table.scan(inside or {self.table.names[0]: "text"}, lambda batches, _: list(batches))
        except InputError as error:
            raise error.inside(self.label) from None
        return [self._with_folders(batch, list(kinds)) for batch in found]

    def _with_folders(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        import pyarrow as pa

        said = {name: pa.repeat(pa.scalar(cell, pa.string()), batch.num_rows) for name, cell in self.folders.items()}
        return pa.record_batch({name: said[name] if name in said else batch.column(name) for name in names})


class _SeveralTables:
    """Files with the same columns, read one after the other in the order of their names."""

    ordered = True

    def __init__(self, parts: Sequence[_PartOf]) -> None:
        self._parts = parts
        first = parts[0]
        self.names = (*first.table.names, *first.folders)
        self.untyped = first.table.untyped
        self.schema_from_rows = any(rows_say_schema(part.table) for part in parts)
        for part in parts[1:]:
            self._check(part, first)

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        first = self._parts[0]
        inside = first.table.held_kinds([name for name in names if name not in first.folders])
        for part in self._parts[1:] if not self.untyped else ():
            _refuse_unlike(first.label, inside, part)
        return {name: inside.get(name, "text") for name in names}

    def refuse_uneven(self, roles: Mapping[str, Candidates]) -> None:
        """See `json_lines`: refuse files in which rows differ in the columns that could be guessed."""
        for part in self._parts:
            if (check := getattr(part.table, "refuse_uneven", None)) is not None:
                check(roles)

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        return gather(self._batches(kinds), len(self._parts))

    def read_all(self, id_column: str) -> pa.Table:
        import pyarrow as pa

        whole = [part.table.read_all(id_column) for part in self._parts]
        return pa.concat_tables(whole, promote_options="permissive")

    def _batches(self, kinds: Mapping[str, CellKind]) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            yield from part.batches(kinds)

    def _check(self, part: _PartOf, first: _PartOf) -> None:
        if {*part.table.names, *part.folders} != set(self.names):
            raise InputError(
                f"{part.label} has the columns {', '.join((*part.table.names, *part.folders))}, but {first.label} has "
                f"{', '.join(self.names)}; expected the same in all files.",
                argument=None,
            )
        if part.table.untyped != self.untyped:
            problem = f"{part.label} and {first.label} are of different formats; expected one format for all files."
            raise InputError(problem, argument=None)


def _refuse_unlike(label: str, kinds: Mapping[str, HeldKind], part: _PartOf) -> None:
    """Refuse a column that cannot be read in one file and can in another: else the first would decide for all."""
    own = part.table.held_kinds([name for name in kinds if name not in part.folders])
    for name, kind in own.items():
        if (kind == "other") != (kinds[name] == "other"):
            problem = f"Column {name!r} holds {_in_words(kinds[name])} in {label} and {_in_words(kind)} in {part.label}"
            raise InputError(f"{problem}; write it in one form in all files.", argument=None)


def _in_words(kind: HeldKind) -> str:
    return "what is no number, text or time" if kind == "other" else f"a {kind}"


def open_several(files: Sequence[Found], how: Opening) -> OpenTable:
    """Open files as one table."""
    return _SeveralTables([_opened(found, how) for found in files])


def _opened(found: Found, how: Opening) -> _PartOf:
    label = found.path.name if found.root is None else found.path.relative_to(found.root).as_posix()
    try:
        table = format_of(found.path).open(found.path, how)
    except InputError as error:
        raise error.inside(label) from None
    folders = {} if found.root is None else _said_by_folders(found.path.relative_to(found.root).parts[:-1])
    return _PartOf(label, table, {name: cell for name, cell in folders.items() if name not in table.names})


def _said_by_folders(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the cells that names of folders such as `year=2026` give.

    >>> _said_by_folders(["year=2026", "country=D%C3%A4nemark", "parts"])
    {'year': '2026', 'country': 'Dänemark'}
    """
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return {unquote(name): None if cell == _HIVE_NULL else unquote(cell) for name, _, cell in pairs}
