"""The engine for a cluster: Apache Spark, or any server that speaks Spark Connect.

A frame is hashed into buckets of users once. A pass sends its contributions to the workers, who return whole-number
sums over their buckets. Where these are large, a second stage adds them up in blocks, so that the driver gets each
number once. Noise is drawn by the session, on the driver, after all buckets have answered (docs/spark.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from apportion.data.columns import ColumnChoice
from apportion.data.on_disk.sizes import bytes_in
from apportion.data.users import Users
from apportion.engines.processors import Processors
from apportion.engines.spark.answers import Answer, Roll, complete, merged
from apportion.engines.spark.buckets import buckets_in_memory
from apportion.engines.spark.failures import in_one_sentence
from apportion.engines.spark.workers import MergedBlocks, SumsOfBuckets, bucket_row
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Channel, Contribution, PartialSums

if TYPE_CHECKING:
    import pyarrow as pa

    from apportion.engines.spark.interactions import RowsOnSpark
    from apportion.engines.spark.numbers import NumbersOnSpark

_BUCKETS_PER_PARTITION = 8  # so that hashing them to partitions leaves none with far more than its part
_MOST_REDUCERS = 64
_MOST_GATHERED = 1 << 23  # whole numbers of all tasks of a pass that the driver adds up itself: 64 MiB
_MOST_ASKED_AGAIN = 1000  # buckets by name; if more are missing, all are asked for


Change = Callable[[Users], Users]


@dataclass(frozen=True, eq=False, repr=False)
class UsersOnSpark:
    """Users in buckets on a cluster.

    Attributes:
        frame: one row per bucket: its number, a checksum, and its users as bytes.
        n_tasks: length of the list of tasks; 0 while there is none.
        changes: what workers do with each bucket's users before every pass.
        roll: what the first pass found in each bucket; every later pass must find the same.
        empty: nobody, with the columns that users have; by default tasks and values.
        token: under which workers keep these buckets.
    """

    frame: Any
    n_tasks: int
    changes: tuple[Change, ...] = ()
    roll: Roll = field(default_factory=dict)
    empty: Users | None = None
    token: bytes = field(default_factory=lambda: os.urandom(16))

    def mapped(self, change: Change) -> UsersOnSpark:
        """Return the users with a change that workers make in every pass."""
        return replace(self, changes=(*self.changes, change))

    def parts(self) -> Iterator[Users]:
        """Refuse: rows on a cluster do not come to the driver."""
        raise InputError("These users are on a cluster; add them up with SparkEngine(spark).", argument="engine")

    def nobody(self) -> Users:
        """Return a part without users that has their columns, with the changes that workers make."""
        columns = {"tasks": np.zeros(0, np.int32), "values": np.zeros(0, np.float32)}
        users = self.empty
        if users is None:
            users = Users([0], columns, n_tasks=self.n_tasks, keys=np.zeros((0, 2), np.uint64))
        for change in self.changes:
            users = change(users)
        return users

    def __repr__(self) -> str:
        return "UsersOnSpark(values hidden)"


class SparkEngine:
    """Adds up on the workers of a cluster, who return bounded whole numbers and draw nothing.

    Workers need this version of the library, with its compiled kernel.

    Args:
        spark: a session of PySpark 4 or later, classic or Connect.
        dtype: precision of what users compute for themselves.
        partitions: number of tasks in a pass; each holds its rows in memory, 8 to 24 bytes a row.
        kept: how much memory each worker process may use to keep rows between passes, so that they are not sent to it
            again; `0` sends them in every pass. The sums do not depend on it.

    Example:
        >>> engine = SparkEngine(spark)  # doctest: +SKIP
        >>> PrivateRatingRecommender(epsilon=1.0, engine=engine).fit(spark.table("ratings"))  # doctest: +SKIP
    """

    exact = True

    def __init__(
        self, spark: Any, dtype: DTypeLike = np.float32, *, partitions: int = 8, kept: str | int = "1GiB"
    ) -> None:
        if partitions < 1:
            raise InputError(f"Expected at least 1 partition, got {partitions}.", argument="partitions")
        self.spark = spark
        self.dtype = np.dtype(dtype)
        self.partitions = partitions
        self.kept = bytes_in(kept)
        self.most_gathered = _MOST_GATHERED
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

    def digest_of(self, users: UsersOnSpark, counted: Contribution) -> str:
        """Make one pass, and return a digest of what all buckets hold; private. The sum of the pass is forgotten."""
        self._answers(users, [counted], keyed=False)
        return sha256(repr(sorted(users.roll.items())).encode()).hexdigest()

    def read(
        self,
        frame: Any,
        *,
        user: str | None = None,
        task: str | None = None,
        value: ColumnChoice = None,
        untyped: bool = False,
    ) -> RowsOnSpark:
        """Return a frame's rows, for `fit`. Use them in a `with` statement, so that the cluster forgets them after it.

        Args:
            frame: a DataFrame with one row per pair of user and task, in any order and partitioning.
            user: name of the user column; by default guessed from the usual names, like the others.
            task: name of the task (item) column.
            value: name of the value column, or `IGNORE`; without one every value is 1.
            untyped: whether ids come from a text file; tasks that are all written as integers are then integers.
        """
        from apportion.engines.spark.interactions import RowsOnSpark

        return RowsOnSpark(self, frame, {"user": user, "task": task, "value": value}, untyped=untyped)

    def read_numbers(
        self, frame: Any, user: str, columns: Mapping[str, str | Sequence[str]], by: Sequence[str] | None = None
    ) -> NumbersOnSpark:
        """Return a frame's rows of numbers, for means, regressions and statistics by group.

        Args:
            frame: a DataFrame with one row per observation, in any order and partitioning.
            user: name of the user column.
            columns: for each column of the users the names in the frame that it is made of; one name makes a vector.
            by: names of the columns that divide rows into groups, or tasks; None if nothing does.
        """
        from apportion.engines.spark.numbers import NumbersOnSpark

        return NumbersOnSpark(self, frame, user, columns, by)

    def _answers(self, users: UsersOnSpark, contributions: Sequence[Contribution], *, keyed: bool) -> list[Answer]:
        """Make one pass; return its blocks in order. Every bucket is in each of them exactly once."""
        channel, reducers = Channel(), min(self.partitions, _MOST_REDUCERS)
        work = tuple(contributions), users.changes, self.kernels
        kept = users.token, self.kept
        add_up = SumsOfBuckets(*work, channel.secret, self.buckets, keyed, reducers, *kept)
        stages: list[Any] = [add_up]
        if keyed or self.partitions * self._numbers(users, contributions) > self.most_gathered:
            stages.append(MergedBlocks(channel.secret))
        by_block = self._by_block(users, stages, channel, keyed=keyed)
        if sorted(by_block) != list(range(reducers if keyed else len(by_block))):  # of sums, the shapes are checked
            raise InputError("A block of a pass is missing; nothing was released.", argument=None)
        answers = [merged(by_block[block]) for block in range(len(by_block))]
        complete(answers, self.buckets)
        self._same_as_before(users, answers[0].roll)
        return answers

    def _numbers(self, users: UsersOnSpark, contributions: Sequence[Contribution]) -> int:
        """How many numbers a task answers: those of a sum over nobody."""
        return PartialSums.over(users.nobody(), contributions, self.kernels).n_numbers

    def _by_block(
        self, users: UsersOnSpark, stages: Sequence[Any], channel: Channel, *, keyed: bool
    ) -> dict[int, list[Answer]]:
        """The answers for each block: first of buckets that workers keep, then of those that must be sent."""
        found = {} if keyed or not (self.kept and users.roll) else self._of_kept(users.frame, stages, channel)
        missing = sorted(set(range(self.buckets)) - set(found[0].roll)) if found else []
        if not found or len(missing) > _MOST_ASKED_AGAIN:
            return self._made(users.frame, stages, channel)
        sent = self._made(_of_buckets(users.frame, missing), stages, channel) if missing else {}
        return {
            block: [*([found[block]] if block in found else []), *sent.get(block, [])] for block in {**found, **sent}
        }

    def _of_kept(self, frame: Any, stages: Sequence[Any], channel: Channel) -> dict[int, Answer]:
        """What workers answer without being sent rows; nothing, where a task was repeated by one who keeps others."""
        made = self._made(frame.select("bucket", "digest"), stages, channel)
        try:
            found = {block: merged(answers) for block, answers in made.items()}
        except InputError:
            return {}
        return found if 0 in found and all(each.roll == found[0].roll for each in found.values()) else {}

    def _made(self, frame: Any, stages: Sequence[Any], channel: Channel) -> dict[int, list[Answer]]:
        """Run the stages of a pass on some buckets; return the answers for each block."""
        first, *further = stages
        made = mapped(frame, first)
        for stage in further:
            made = mapped(made.repartition(first.groups, "block"), stage)
        table = collected(made)
        by_block: dict[int, list[Answer]] = {}
        for block, wire in zip(table.column("block").to_pylist(), table.column("answer"), strict=True):
            by_block.setdefault(block, []).append(Answer.from_wire(wire.as_py(), channel))
        return by_block

    def _same_as_before(self, users: UsersOnSpark, roll: Roll) -> None:
        """Refuse a pass over other rows than the first one: the frame was read again and had changed."""
        if not users.roll:
            users.roll.update(roll)
        changed = [number for number, found in roll.items() if users.roll[number] != found]
        if changed:
            raise InputError(
                f"Bucket {changed[0]} has other rows than in the first pass; nothing was released. Write the frame to "
                "a table first if it is sampled, or its source may change.",
                argument=None,
            )

    def _placed(self, users: Users) -> UsersOnSpark:
        """Send users who are in memory to the cluster."""
        import pyarrow as pa

        bodies = buckets_in_memory(users, self.buckets)
        frame = self.spark.createDataFrame(pa.Table.from_batches([bucket_row(*each) for each in bodies.items()]))
        return UsersOnSpark(frame.repartition(self.partitions, "bucket"), users.n_tasks, empty=users.nobody())


def _of_buckets(frame: Any, numbers: Sequence[int]) -> Any:
    return frame.where(f"bucket IN ({', '.join(map(str, numbers))})")


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
