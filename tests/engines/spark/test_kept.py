"""Buckets that workers keep between passes: sent once, sent again where they are lost, and never another's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion import linalg
from apportion.allocation.weightings import SplitEqually
from apportion.auditing.hidden_values import raw_steps
from apportion.data.users import Users
from apportion.engines import LocalEngine, SparkEngine
from apportion.engines.spark import workers
from apportion.engines.spark.buckets import Bucket
from apportion.engines.spark.kept import LONGEST, KeptBuckets
from apportion.errors import InputError
from apportion.privacy.contributions import TaskCounts
from frames_in_memory import FrameInMemory, SparkInMemory

from strategies import random_interactions

needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
COUNTS = [TaskCounts(SplitEqually())]
NOBODY = Bucket(Users([0], {}), np.zeros((0, 2), np.uint64))


class Noting(FrameInMemory):
    """Notes of which buckets rows are sent to a worker."""

    sent: list[list[int]]

    def mapInArrow(self, work, schema):
        batches = [batch for part in self.partitions for batch in part if "body" in batch.schema.names]
        self.sent.append(sorted(number for batch in batches for number in batch.column("bucket").to_pylist()))
        return super().mapInArrow(work, schema)


@pytest.fixture
def kept(monkeypatch):
    made = KeptBuckets()
    monkeypatch.setattr(workers, "KEPT", made)
    return made


@pytest.fixture
def data():
    return random_interactions(3, n_users=40, n_tasks=9)


@pytest.fixture
def placed(data, kept):
    """An engine, its users, of which buckets rows were sent in each stage so far, and what memory adds up to."""

    def made(**settings):
        Noting.sent = []
        engine = SparkEngine(SparkInMemory(Noting), partitions=2, **settings)
        wanted = raw_steps(LocalEngine(exact=True).add_up(data.as_users, COUNTS)[0])
        return engine, engine._placed(data.as_users), wanted

    return made


def assert_same_sums(engine, users, wanted):
    np.testing.assert_array_equal(raw_steps(engine.add_up(users, COUNTS)[0]), wanted)


@needs_kernel
def test_rows_are_sent_in_the_first_pass_alone(placed):
    engine, users, wanted = placed()
    for _ in range(3):
        assert_same_sums(engine, users, wanted)
    assert Noting.sent == [list(range(16)), [], []]


@needs_kernel
def test_an_engine_that_keeps_nothing_sends_rows_in_every_pass(placed):
    engine, users, wanted = placed(kept=0)
    for _ in range(2):
        assert_same_sums(engine, users, wanted)
    assert Noting.sent == 2 * [list(range(16))]


@needs_kernel
@pytest.mark.parametrize("most_gathered", [0, 1 << 20], ids=["two stages", "one stage"])
def test_rows_that_a_worker_has_lost_are_sent_again(placed, kept, most_gathered):
    engine, users, wanted = placed()
    engine.most_gathered = most_gathered
    assert_same_sums(engine, users, wanted)
    for key in [key for key in kept._entries if key[1] in (3, 7)]:
        del kept._entries[key]
    Noting.sent.clear()
    assert_same_sums(engine, users, wanted)
    assert [numbers for numbers in Noting.sent if numbers] == [[3, 7]]
    kept._entries.clear()
    assert_same_sums(engine, users, wanted)


@needs_kernel
def test_a_task_repeated_by_a_worker_that_keeps_less_is_not_added_twice(placed, kept):
    engine, users, wanted = placed()
    assert_same_sums(engine, users, wanted)
    lost = next(iter(kept._entries.values()))
    answered = []

    class Repeats(Noting):
        def mapInArrow(self, work, schema):
            made = super().mapInArrow(work, schema)
            if not self.sent[-1] and not answered:
                answered.append(kept._entries.pop(next(k for k, e in kept._entries.items() if e is lost)))
                again = super().mapInArrow(work, schema)
                return self.like([*made.partitions, *again.partitions])
            return made

    assert_same_sums(engine, replace(users, frame=Repeats(users.frame.partitions)), wanted)
    assert answered


@needs_kernel
def test_rows_that_were_kept_for_others_are_not_used(placed, data):
    engine, users, wanted = placed()
    assert_same_sums(engine, users, wanted)
    other = engine._placed(data.without(4).as_users)
    unlike = raw_steps(engine.add_up(other, COUNTS)[0])
    assert not np.array_equal(unlike, wanted)
    with pytest.raises(InputError, match="has other rows than in the first pass"):
        engine.add_up(replace(users, frame=other.frame), COUNTS)


@needs_kernel
def test_a_bucket_that_is_not_what_its_checksum_says_is_refused(placed):
    engine, users, _ = placed()
    one, two, *rest = (batch for part in users.frame.partitions for batch in part)
    swapped = one.set_column(1, "digest", two.column("digest"))
    with pytest.raises(InputError, match=r"^Bucket \d+ does not match its checksum; nothing was added up\.$"):
        engine.add_up(replace(users, frame=FrameInMemory([[swapped, two, *rest]])), COUNTS)


def test_no_more_is_kept_than_there_is_room_for():
    kept = KeptBuckets()
    for number in range(3):
        kept.put((b"", number, ""), NOBODY, 40, most=100)
        assert kept.get((b"", 0, "")) is NOBODY  # used last, so it stays
    assert kept.get((b"", 1, "")) is None
    assert kept.get((b"", 2, "")) is NOBODY
    kept.put((b"", 3, ""), NOBODY, 101, most=100)
    assert kept.get((b"", 3, "")) is None
    assert kept.get((b"", 0, "")) is NOBODY


def test_what_nobody_asks_for_is_forgotten():
    now = [0.0]
    kept = KeptBuckets(lambda: now[0])
    for number in (0, 1):
        kept.put((b"", number, ""), NOBODY, 1, most=100)
    now[0] = LONGEST - 1
    assert kept.get((b"", 0, "")) is NOBODY
    now[0] = LONGEST + 1
    assert kept.get((b"", 1, "")) is None
    assert list(kept._entries) == [(b"", 0, "")]
