"""A folder of users as one table, for everything that reads a file: its columns under their own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from apportion.data.on_disk.manifest import ITEMS, FolderManifest, ShardEntry
from apportion.data.on_disk.shard_files import ITEM, KEPT, SIZE, USER, read_parquet
from apportion.data.on_disk.user_folder import ShardReader, read_items
from apportion.data.sources import CellKind, HeldKind, held_kind

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")


class FolderTable:
    """The rows of all shards, shard by shard; ids are what they were in the sources."""

    untyped = False
    ordered = False
    schema_from_rows = False

    def __init__(self, folder: Path) -> None:
        self._manifest = FolderManifest.read(folder)
        self._reader = ShardReader(folder, self._manifest, None)
        self._folder = folder

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._manifest.names

    def held_kinds(self, names: Sequence[str]) -> dict[str, HeldKind]:
        """Return what some columns hold."""
        if not names:
            return {}
        batch = next(self._batches(names))
        return {name: held_kind(batch.schema.field(name).type) for name in names}

    def scan(self, kinds: Mapping[str, CellKind], gather: Callable[[Iterable[pa.RecordBatch], int], Result]) -> Result:
        """Read some columns, shard by shard."""
        return gather(self._batches(list(kinds)), len(self._manifest.shards))

    def read_all(self, id_column: str) -> pa.Table:
        """Return the whole table."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches(self.names))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        items = None
        if self._manifest.item in names:
            read_items(self._folder, self._manifest)  # refuses a list that was changed
            items = read_parquet(self._folder / ITEMS)[ITEM].combine_chunks()
        for entry in self._manifest.shards:
            yield self._batch(entry, names, items)

    def _batch(self, entry: ShardEntry, names: Sequence[str], items: Any) -> pa.RecordBatch:
        import pyarrow as pa

        shard = self._reader.read_checked(entry)
        columns: dict[str, Any] = {}
        for name in names:
            if name == self._manifest.user:
                owner = np.repeat(np.arange(entry.users), shard.users[SIZE].to_numpy())
                columns[name] = shard.users[USER].take(pa.array(owner)).combine_chunks()
            elif name == self._manifest.item:
                columns[name] = items.take(shard.rows[ITEM].combine_chunks())
            else:
                columns[name] = shard.rows[KEPT + name].combine_chunks()
        return pa.table(columns).combine_chunks().to_batches()[0]
