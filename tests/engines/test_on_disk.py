"""The engine for users on disk: the reference's whole numbers, from real folders, in runs of any length."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.data.on_disk.sizes import bytes_in
from apportion.data.on_disk.user_folder import ShardedUsers
from apportion.engines import DiskEngine
from apportion.errors import InputError
from apportion.privacy import SeededNoise
from engine_passes import SmallWorld, differences, disk_engine, forgetful, passes_of, reference_passes
from user_folders import folder_of

from private_estimators import clicks, ratings

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
STREAMED = ("ratings", "clicks", "clicks of default size")


class OnDisk(SmallWorld):
    """The same data in a folder."""

    def __init__(self, place, n_users=41):
        super().__init__(n_users)
        self._place = place

    def interactions(self):
        return folder_of(super().interactions(), self._place / "users")


@pytest.mark.parametrize("name", ["every kind of contribution", "clicks", "mean, private sizes", "private labels"])
def test_short_runs_give_the_same_whole_numbers(name):
    engine = disk_engine(7, np.float32)
    for one in reference_passes(name):
        sums = engine.add_up(forgetful(one.users), one.contributions)
        assert [differences(*both) for both in zip(one.sums, sums, strict=True)] == [[]] * len(one.sums)


def unequal_passes(name, engine, place):
    here, there = reference_passes(name), passes_of(name, engine, world=OnDisk(place))
    assert [str(one) for one in here] == [str(one) for one in there]
    pairs = [both for one, two in zip(here, there, strict=True) for both in zip(one.sums, two.sums, strict=True)]
    return sum(bool(differences(*both)) for both in pairs), len(pairs)


@pytest.mark.parametrize("name", STREAMED)
def test_a_fit_from_a_folder_makes_the_same_passes(name, tmp_path):
    unequal, passes = unequal_passes(name, disk_engine(7, np.float32), tmp_path)
    assert (unequal, passes > 3) == (0, True)


@pytest.mark.parametrize("make", [ratings, clicks])
def test_a_private_list_of_items_is_the_same_from_a_folder(make, tmp_path):
    data = SmallWorld(60).interactions()
    data = data.recoded(np.arange(data.n_tasks, dtype=np.int32), type(data.task_ids)(data.task_ids.ids, name="task"))
    settings = {"items": "private", "epsilon": 200.0}
    here, there = (
        make(**{**settings, "noise": SeededNoise(4), "engine": DiskEngine(dtype=np.float64)}).fit(some).model_
        for some in (data, folder_of(data, tmp_path / "users"))
    )
    assert here.statement == there.statement
    assert 2 <= here.n_tasks == there.n_tasks
    assert np.array_equal(here.vectors, there.vectors)


@pytest.mark.parametrize(
    "wrong",
    [lambda shards: shards[1:], lambda shards: (shards[0], *shards)],
    ids=["a shard left out", "a shard read twice"],
)
def test_an_engine_that_loses_or_repeats_a_shard_is_seen(wrong, tmp_path, monkeypatch):
    read = ShardedUsers.parts

    def parts(self):
        yield from wrong(tuple(read(self)))

    monkeypatch.setattr(ShardedUsers, "parts", parts)
    unequal, passes = unequal_passes("ratings", disk_engine(1, np.float32), tmp_path)
    assert unequal > passes / 2


def test_memory_sets_the_length_of_runs():
    assert DiskEngine("256MiB").rows_of_a_run == 2 * DiskEngine("128MiB").rows_of_a_run
    assert (bytes_in("2GiB"), bytes_in("500 MB"), bytes_in(1000)) == (1 << 31, 500_000_000, 1000)


@pytest.mark.parametrize("memory", ["1KiB", "much", "-1GiB", "2GX"])
def test_a_memory_that_makes_no_sense_is_refused(memory):
    with pytest.raises(InputError, match="Expected"):
        DiskEngine(memory)
