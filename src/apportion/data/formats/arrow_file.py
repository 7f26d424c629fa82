"""Arrow files and streams, such as Feather: the schema says what columns hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from apportion.data.sources import CellKind, HeldKind, Opening, held_kind, rows_of
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_MAGIC: Final = b"ARROW1"
_STREAM_MAGIC: Final = b"\xff\xff\xff\xff"

Result = TypeVar("Result")


class _OpenArrow:
    """An Arrow file with its schema."""

    untyped = False
    ordered = True
    schema_from_rows = False

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._opened() as (schema, _):
            self._schema = schema

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        return {name: held_kind(self._schema.field(name).type) for name in names}

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        with self._opened() as (_, batches):
            return gather((batch.select(list(kinds)) for batch in batches), 0)

    def read_all(self, id_column: str) -> pa.Table:
        import pyarrow as pa

        with self._opened() as (schema, batches):
            return pa.Table.from_batches(list(batches), schema)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Iterator[pa.RecordBatch]]]:
        """Return the schema and the batches. Turn an error of Arrow into one sentence."""
        import pyarrow as pa

        try:
            with pa.memory_map(str(self._file)) as source:
                if source.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
                    reader = pa.ipc.open_file(source)
                    yield reader.schema, (reader.get_batch(number) for number in range(reader.num_record_batches))
                else:
                    source.seek(0)
                    stream = pa.ipc.open_stream(source)
                    yield stream.schema, iter(stream)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise InputError(f"The Arrow file cannot be read: {str(error).splitlines()[0]}", argument=None) from None


class _Arrow:
    """The format."""

    name: Final = "Arrow"
    endings: Final = (".feather", ".arrow", ".ipc")
    may_be_compressed: Final = False
    has_tables: Final = False
    fallback: Final = False

    def recognises(self, file: Path, beginning: bytes) -> bool:
        return beginning.startswith((_FILE_MAGIC, _STREAM_MAGIC))

    def open(self, file: Path, how: Opening) -> _OpenArrow:
        return _OpenArrow(file)

    def rows_as_text(self, file: Path) -> list[list[str]]:
        return rows_of(_OpenArrow(file).read_all(""))


FORMAT: Final = _Arrow()
