"""A frame of Spark as far as the engine uses one, in this process: for planted faults, which no real server commits."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class FrameInMemory:
    """Partitions of Arrow batches; work is done at once."""

    def __init__(self, partitions):
        self.partitions = [list(batches) for batches in partitions]

    def like(self, partitions):
        return type(self)(partitions)

    def mapInArrow(self, work, schema):
        return self.like([list(work(iter(batches))) for batches in self.partitions])

    def repartition(self, number, column):
        parts = [[] for _ in range(number)]
        for batch in (batch for batches in self.partitions for batch in batches):
            for row in range(batch.num_rows):
                parts[hash(batch.column(column)[row].as_py()) % number].append(batch.slice(row, 1))
        return self.like(parts)

    def select(self, *names):
        return self.like([[batch.select(names) for batch in batches] for batches in self.partitions])

    def where(self, condition):
        column, _, listed = condition.partition(" IN ")
        numbers = pa.array([int(number) for number in listed.strip("()").split(",")], pa.int32())
        return self.like(
            [[batch.filter(pc.is_in(batch.column(column), numbers)) for batch in part] for part in self.partitions]
        )

    def union(self, other):
        return self.like([*self.partitions, *other.partitions])

    def toArrow(self):
        batches = [batch for batches in self.partitions for batch in batches]
        answers = pa.schema({"block": pa.int32(), "answer": pa.binary()})
        return pa.Table.from_batches(batches, None if batches else answers)


class FaultyFrame(FrameInMemory):
    """Results of tasks come in any order, some of them twice, and now and then one is lost for good."""

    def __init__(self, partitions, rng):
        super().__init__(partitions)
        self.rng = rng

    def like(self, partitions):
        return FaultyFrame(partitions, self.rng)

    def mapInArrow(self, work, schema):
        made = super().mapInArrow(work, schema).partitions
        if len(made) > 1 and self.rng.random() < 0.1:
            made.append(self.rng.choice(made))
        if len(made) > 1 and self.rng.random() < 0.02:
            made.pop()
        self.rng.shuffle(made)
        return self.like(made)


class SparkInMemory:
    """A session that makes such frames."""

    def __init__(self, make=FrameInMemory):
        self.make = make

    def createDataFrame(self, table):
        return self.make([table.to_batches()])
