"""ORC as a file format: this file is all that adding the format takes.

In the package it would be `src/apportion/data/formats/orc_file.py`; in another package it would be registered as an
entry point of the group `apportion.table_formats`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.orc

from apportion.data.sources import held_kind, rows_of


class OpenOrc:
    untyped = False
    ordered = True
    schema_from_rows = False

    def __init__(self, file):
        self._table = pa.orc.read_table(file)
        self.names = tuple(self._table.column_names)

    def held_kinds(self, names):
        return {name: held_kind(self._table.schema.field(name).type) for name in names}

    def scan(self, kinds, gather):
        batches = self._table.select(list(kinds)).to_batches()
        return gather(batches, len(batches))

    def read_all(self, id_column):
        return self._table


class Orc:
    name = "ORC"
    endings = (".orc",)
    may_be_compressed = False
    has_tables = False
    fallback = False

    def recognises(self, file, beginning):
        return beginning.startswith(b"ORC")

    def open(self, file, how):
        return OpenOrc(file)

    def rows_as_text(self, file):
        return rows_of(OpenOrc(file).read_all(""))


FORMAT = Orc()
