"""JSON lines as a file format: this file is all that adding the format takes.

In the package it would be `src/apportion/data/formats/json_lines.py`; in another package it would be registered as an
entry point of the group `apportion.table_formats`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.json

from apportion.data.sources import held_kind


class OpenJsonLines:
    untyped = False
    ordered = True

    def __init__(self, file):
        self._table = pa.json.read_json(file)
        self.names = tuple(self._table.column_names)

    def held_kinds(self, names):
        return {name: held_kind(self._table.schema.field(name).type) for name in names}

    def scan(self, kinds, gather):
        batches = self._table.select(list(kinds)).to_batches()
        return gather(batches, len(batches))

    def read_all(self, id_column):
        return self._table


class JsonLines:
    name = "JSON lines"
    endings = (".jsonl",)
    may_be_compressed = False
    fallback = False

    def recognises(self, file, beginning):
        return file.suffix == ".jsonl"

    def open(self, file, columns, separator):
        return OpenJsonLines(file)

    def rows_as_text(self, file):
        table = OpenJsonLines(file).read_all("")
        return [table.column_names, *([str(cell) for cell in row.values()] for row in table.to_pylist())]


FORMAT = JsonLines()
