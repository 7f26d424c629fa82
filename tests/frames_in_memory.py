"""A frame of Spark as far as the engine uses one, in this process: for planted faults, which no real server commits."""

from __future__ import annotations

import pyarrow as pa


class FrameInMemory:
    """Partitions of Arrow batches; work is done at once."""

    def __init__(self, partitions):
        self.partitions = [list(batches) for batches in partitions]

    def mapInArrow(self, work, schema):
        return FrameInMemory([list(work(iter(batches))) for batches in self.partitions])

    def repartition(self, number, column):
        parts = [[] for _ in range(number)]
        for batch in (batch for batches in self.partitions for batch in batches):
            for row in range(batch.num_rows):
                parts[hash(batch.column(column)[row].as_py()) % number].append(batch.slice(row, 1))
        return FrameInMemory(parts)

    def union(self, other):
        return FrameInMemory([*self.partitions, *other.partitions])

    def toArrow(self):
        return pa.Table.from_batches([batch for batches in self.partitions for batch in batches])


class SparkInMemory:
    """A session that makes such frames."""

    def createDataFrame(self, table):
        return FrameInMemory([table.to_batches()])
