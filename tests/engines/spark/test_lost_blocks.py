"""Faults that no real server shows at will, on frames in this process: blocks of a pass that get lost on the way."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.allocation.weightings import SplitEqually
from apportion.engines import SparkEngine
from apportion.engines.spark import workers
from apportion.engines.spark.buckets import Bucket, bucket_of
from apportion.engines.spark.engine import UsersOnSpark
from apportion.errors import InputError
from apportion.privacy.contributions import KeyCounts, TaskCounts
from frames_in_memory import FrameInMemory, SparkInMemory

from strategies import random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
PARTITIONS = 3


class LosesABlock(FrameInMemory):
    """Loses the last block of whatever is merged."""

    def mapInArrow(self, work, schema):
        made = super().mapInArrow(work, schema)
        if "block" in schema:
            last = max((b.column("block")[0].as_py() for part in made.partitions for b in part), default=0)
            merging = len(self.partitions) == PARTITIONS and any(
                "answer" in b.schema.names for p in self.partitions for b in p
            )
            made.partitions = [
                [b for b in part if not (merging and b.column("block")[0].as_py() == last)] for part in made.partitions
            ]
        return made


@pytest.fixture
def engine():
    return SparkEngine(SparkInMemory(), partitions=PARTITIONS)


@pytest.fixture
def data():
    return random_interactions(3, n_users=40, n_tasks=9)


def test_the_last_block_of_a_sum_is_missed(engine, data, monkeypatch):
    monkeypatch.setattr(workers, "BLOCK", 4)
    engine.most_gathered = 0
    users = engine._placed(data.as_users)
    contribution = TaskCounts(SplitEqually())
    assert engine.add_up(users, [contribution])[0].shape == (9,)
    lossy = UsersOnSpark(LosesABlock(users.frame.partitions), 9)
    with pytest.raises(InputError, match="Expected 9 numbers in all blocks, got 8"):
        engine.add_up(lossy, [contribution])


def test_the_last_group_of_keys_is_missed(engine, data):
    users = data.as_users
    order = np.lexsort((users.keys[:, 0], users.keys[:, 1]))
    assert (np.diff(order) == 1).all()
    owner = bucket_of(users.keys, engine.buckets)
    rows = [
        workers.bucket_row(k, Bucket(part := users.with_users(owner == k), part.keys, data.task_ids).to_bytes())
        for k in range(engine.buckets)
    ]
    counts, texts = engine.count_keys(UsersOnSpark(FrameInMemory([rows]), 0), KeyCounts(5))
    assert counts.shape == (len(texts),) == (9,)
    with pytest.raises(InputError, match="A block of a pass is missing"):
        engine.count_keys(UsersOnSpark(LosesABlock([rows]), 0), KeyCounts(5))
