"""Parquet files: the schema says what columns hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from apportion.data.sources import CellKind, HeldKind, Opening, held_kind, rows_of
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = b"PAR1"
_BATCH_ROWS = 1 << 19

Result = TypeVar("Result")


class _OpenParquet:
    """A Parquet file with its schema. The file is open only while it is read, because a folder may hold thousands."""

    untyped = False
    ordered = True
    schema_from_rows = False

    def __init__(self, file: Path) -> None:
        with _opened(file) as source:
            self._file, self._schema = file, source.schema_arrow

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        return {name: held_kind(self._schema.field(name).type) for name in names}

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        with _opened(self._file) as source:
            n_batches = math.ceil(source.metadata.num_rows / _BATCH_ROWS)
            return gather(source.iter_batches(_BATCH_ROWS, columns=list(kinds)), n_batches)

    def read_all(self, id_column: str) -> pa.Table:
        with _opened(self._file) as source:
            return source.read()


class _Parquet:
    """The format."""

    name: Final = "parquet"
    endings: Final = (".parquet", ".pq")
    may_be_compressed: Final = False
    has_tables: Final = False
    fallback: Final = False

    def recognises(self, file: Path, beginning: bytes) -> bool:
        return beginning.startswith(_MAGIC)

    def open(self, file: Path, how: Opening) -> _OpenParquet:
        return _OpenParquet(file)

    def rows_as_text(self, file: Path) -> list[list[str]]:
        return rows_of(_OpenParquet(file).read_all(""))


FORMAT: Final = _Parquet()


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Return a reader of the file. Turn an error of Arrow into one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(file) as source:
            yield source
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise InputError(f"The Parquet file cannot be read: {str(error).splitlines()[0]}", argument=None) from None
