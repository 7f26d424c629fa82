"""The engine for a cluster: Apache Spark, or any server that speaks Spark Connect.

A frame is hashed into buckets of users once. A pass sends its contributions to the workers, who return whole-number
sums over their buckets; a second stage adds them up in blocks, so that the driver gets each number once. Noise is drawn
by the session, on the driver, after all buckets have answered (docs/spark.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from apportion.data.users import Users
from apportion.engines.processors import Processors
from apportion.engines.spark.answers import Answer, Roll, complete
from apportion.engines.spark.buckets import buckets_in_memory
from apportion.engines.spark.failures import in_one_sentence
from apportion.engines.spark.workers import MergedBlocks, SumsOfBuckets
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Channel, Contribution, PartialSums

if TYPE_CHECKING:
    import pyarrow as pa

_BUCKETS_PER_PARTITION = 8  # so that hashing them to partitions leaves none with far more than its part
_MOST_REDUCERS = 64


@dataclass(eq=False, repr=False)
class UsersOnSpark:
    """Users in buckets on a cluster.

    Attributes:
        frame: one row per bucket: its number, and its users as bytes.
        n_tasks: length of the list of tasks; 0 while there is none.
        roll: what the first pass found in each bucket; every later pass must find the same.
    """

    frame: Any
    n_tasks: int
    roll: Roll | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return "UsersOnSpark(values hidden)"


class SparkEngine:
    """Adds up on the workers of a cluster, who return bounded whole numbers and draw nothing.

    Workers need this version of the library, with its compiled kernel.

    Args:
        spark: a session of PySpark 4 or later, classic or Connect.
        dtype: precision of what users compute for themselves.
        partitions: number of tasks in a pass; each holds its rows in memory, 8 to 24 bytes a row.

    Example:
        >>> engine = SparkEngine(spark)  # doctest: +SKIP
        >>> PrivateRatingRecommender(epsilon=1.0, engine=engine).fit(spark.table("ratings"))  # doctest: +SKIP
    """

    exact = True

    def __init__(self, spark: Any, dtype: DTypeLike = np.float32, *, partitions: int = 8) -> None:
        if partitions < 1:
            raise InputError(f"Expected at least 1 partition, got {partitions}.", argument="partitions")
        self.spark = spark
        self.dtype = np.dtype(dtype)
        self.partitions = partitions
        self.buckets = _BUCKETS_PER_PARTITION * partitions
        self.kernels = Processors(self.dtype, threads=1, exact=True)

    def add_up(self, users: Any, contributions: Sequence[Contribution]) -> list[BoundedSum]:
        """Make one pass over the users. Users in memory are sent to the cluster first."""
        placed = users.remembered(self, self._placed) if isinstance(users, Users) else users
        blocks = self._answers(placed, contributions, keyed=False)
        layout = blocks[0].layout
        return PartialSums.joined([block.sums for block in blocks], layout).sealed(contributions)

    def count_keys(self, users: UsersOnSpark, form: Contribution) -> tuple[BoundedSum, list[str]]:
        """Count the users' own items, of which there is no list. Return the hidden counts and texts, in text order."""
        groups = self._answers(users, [form], keyed=True)
        texts = sorted(text for group in groups for text in group.texts or ())
        place = {text: k for k, text in enumerate(texts)}
        parts = [
            group.sums.spread(np.array([place[text] for text in group.texts or ()], np.int64), len(texts))
            for group in groups
        ]
        (counts,) = PartialSums.overlaid(parts).sealed([form])
        return counts, texts

    def _answers(self, users: UsersOnSpark, contributions: Sequence[Contribution], *, keyed: bool) -> list[Answer]:
        """Make one pass; return its blocks in order. Every bucket is in each of them exactly once."""
        channel, reducers = Channel(), min(self.partitions, _MOST_REDUCERS)
        add_up = SumsOfBuckets(tuple(contributions), self.kernels, channel.secret, self.buckets, keyed, reducers)
        summed = mapped(users.frame, add_up).repartition(reducers, "block")
        table = collected(mapped(summed, MergedBlocks(channel.secret)))
        rows = zip(table.column("block").to_pylist(), table.column("answer"), strict=True)
        by_block: dict[int, Answer] = {}
        for block, wire in rows:
            if block in by_block:
                raise InputError(f"Block {block} of a pass came twice; nothing was released.")
            by_block[block] = Answer.from_wire(wire.as_py(), channel)
        if sorted(by_block) != list(range(len(by_block))):
            raise InputError("A block of a pass is missing; nothing was released.")
        answers = [by_block[block] for block in range(len(by_block))]
        complete(answers, self.buckets)
        self._same_as_before(users, answers[0].roll)
        return answers

    def _same_as_before(self, users: UsersOnSpark, roll: Roll) -> None:
        """Refuse a pass over other rows than the first one: the frame was read again and had changed."""
        if users.roll is None:
            users.roll = roll
        changed = [number for number, found in roll.items() if users.roll[number] != found]
        if changed:
            raise InputError(
                f"Bucket {changed[0]} has other rows than in the first pass; nothing was released. Write the frame to "
                "a table first if it is sampled, or its source may change."
            )

    def _placed(self, users: Users) -> UsersOnSpark:
        """Send users who are in memory to the cluster."""
        import pyarrow as pa

        bodies = buckets_in_memory(users, self.buckets)
        arrays = {"bucket": pa.array(list(bodies), pa.int32()), "body": pa.array(list(bodies.values()), pa.binary())}
        frame = self.spark.createDataFrame(pa.table(arrays))
        return UsersOnSpark(frame.repartition(self.partitions, "bucket"), users.n_tasks)


def mapped(frame: Any, work: Any) -> Any:
    """Have the workers call `work` on every partition of a frame."""

    def run(batches: Any) -> Any:
        return work(batches)

    return frame.mapInArrow(run, work.schema)


def collected(frame: Any) -> pa.Table:
    """Run a job and bring its rows to the driver; a failure becomes one sentence."""
    return _run(frame.toArrow)


def _run(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except Exception as error:
        raise in_one_sentence(error) from error
