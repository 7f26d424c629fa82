"""JSON lines: one object per line, possibly compressed. Each cell says whether it is a number or text.

Text is read as it is written. Whether all cells of a column look like dates depends on every row, so no text is a date
before a rule asks for one. Numbers of a column are integers or floats, also by what is in other rows. So readers must
not tell an integer from the same number as a float, and times and integers that a float may have rounded are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from apportion.data.sources import Candidates, CellKind, HeldKind, Opening, held_kind, rows_of
from apportion.data.text_streams import open_bytes
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_PART_BYTES: Final = 8 << 20
_ENDINGS: Final = (".jsonl", ".ndjson")
_COMPRESSED: Final = (".gz", ".bz2", ".zst")

Result = TypeVar("Result")


class _OpenJson:
    """A file of JSON lines, with the types that its first lines have."""

    untyped = False
    ordered = True
    schema_from_rows = True

    def __init__(self, file: Path) -> None:
        self._file = file
        _refuse_documents(file)
        with self._opened() as reader:
            self._schema = _without_guesses(reader.schema)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        return {name: held_kind(self._schema.field(name).type) for name in names}

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        import pyarrow as pa

        wanted = pa.schema([(name, self._type(name, kind)) for name, kind in kinds.items()])
        with self._opened(wanted) as reader:
            return gather((batch.select(list(kinds)) for batch in reader), 0)

    def refuse_uneven(self, roles: Mapping[str, Candidates]) -> None:
        """Refuse a file in which some rows lack a column that a guess could take, or the first lines do.

        A column of times may be empty in some rows, which then have no time, but there is one at most.
        """
        for found in _filled_columns(self._file):
            for role, chosen in roles.items():
                named = chosen(self.names)
                others = [name for name in chosen(list(found)) if name not in named]
                doubtful = others or (
                    named[1:] if role == "timestamp" else [name for name in named if not found.get(name, False)]
                )
                if doubtful:
                    raise _unclear(role, doubtful[0])

    def read_all(self, id_column: str) -> pa.Table:
        with self._opened(self._schema) as reader:
            return reader.read_all()

    def _type(self, name: str, kind: CellKind) -> Any:
        """Return the type of a column: a number may be whole in the first lines and have a fraction later."""
        import pyarrow as pa

        seen = self._schema.field(name).type
        whole = held_kind(seen) == "number" and not pa.types.is_boolean(seen)
        return pa.float64() if kind == "number" and whole else seen

    @contextmanager
    def _opened(self, schema: pa.Schema | None = None) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.json as json

        options = json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        )
        try:
            with open_bytes(self._file) as stream, json.open_json(stream, parse_options=options) as reader:
                yield reader
        except pa.ArrowInvalid as error:
            said = _from_one(str(error).splitlines()[0].removeprefix("JSON parse error: "))
            problem = f"The JSON lines cannot be read ({said}); expected one object per line, all with the same types."
            raise InputError(problem, argument=None) from None


def _filled_columns(file: Path) -> Iterator[dict[str, bool]]:
    """Return, for each part of the file, its columns, and whether each is filled in all of its rows."""
    import pyarrow as pa
    import pyarrow.json as json

    for part in _whole_lines(file):
        try:
            table = json.read_json(pa.BufferReader(part))
        except pa.ArrowInvalid as error:
            said = str(error).splitlines()[0].removeprefix("JSON parse error: ")
            problem = f"The columns of the JSON lines cannot be guessed ({said}); name them."
            raise InputError(problem, argument=None) from None
        yield {name: not table[name].null_count for name in table.column_names}


def _whole_lines(file: Path) -> Iterator[bytes]:
    """Return the file in parts of whole lines."""
    held = b""
    with open_bytes(file) as stream:
        while fresh := stream.read(_PART_BYTES):
            whole, end, held = (held + fresh).rpartition(b"\n")
            if whole.strip():
                yield whole + end
    if held.strip():
        yield held


def _unclear(role: str, name: str) -> InputError:
    problem = f"Column {name!r} is empty in some rows, and rows of JSON lines say which columns there are"
    return InputError(problem, argument=role, remedy="name the column with")


def _without_guesses(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which text that looks like dates is text."""
    import pyarrow as pa

    def written(held: pa.DataType) -> pa.DataType:
        return pa.string() if pa.types.is_temporal(held) else held

    return pa.schema([(field.name, written(field.type)) for field in schema])


def _from_one(message: str) -> str:
    """Return Arrow's message with lines counted from 1, as in every other message."""
    return re.sub(r"in row (\d+)", lambda found: f"in line {int(found[1]) + 1}", message)


def _refuse_documents(file: Path) -> None:
    """Refuse a file that is one JSON document: an array, or an object over several lines."""
    with open_bytes(file) as stream:
        first = stream.read(1 << 16).decode("utf-8-sig", errors="replace").lstrip().split("\n", 1)[0].strip()
    if first.startswith("[") or first == "{":
        held = (
            "one array; `jq -c '.[]'` writes"
            if first.startswith("[")
            else "one object over several lines; `jq -c .` writes"
        )
        raise InputError(f"The file holds {held} JSON lines, one object per line, as expected here.", argument=None)


class _JsonLines:
    """The format."""

    name: Final = "JSON lines"
    endings: Final = _ENDINGS
    may_be_compressed: Final = True
    has_tables: Final = False
    fallback: Final = False

    def recognises(self, file: Path, beginning: bytes) -> bool:
        name = file.name.lower()
        packed = next((ending for ending in _COMPRESSED if name.endswith(ending)), "")
        return file.is_file() and (
            name.removesuffix(packed).endswith((*_ENDINGS, ".json")) or beginning.startswith(b'{"')
        )

    def open(self, file: Path, how: Opening) -> _OpenJson:
        return _OpenJson(file)

    def rows_as_text(self, file: Path) -> list[list[str]]:
        return rows_of(_OpenJson(file).read_all(""))


FORMAT: Final = _JsonLines()
