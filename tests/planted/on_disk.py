"""Bugs of users on disk and of fits that go on: a user in two shards, a shard that counts twice, a second draw."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from unittest import mock

import numpy as np

from apportion.allocation import SplitEqually
from apportion.data.on_disk.shard_files import Shard
from apportion.data.on_disk.user_folder import ShardedUsers
from apportion.engines import DiskEngine, LocalEngine
from apportion.privacy import Budget, Checkpoint, SeededNoise, Session
from apportion.privacy.contributions import TaskCounts
from apportion.privacy.ledger.keys import LedgerKey
from planted.cases import Case, Verdict, replayed
from user_folders import folder_of

from private_estimators import published, ratings
from strategies import random_interactions


class FromDisk:
    """An estimator that is fitted to its data in a folder of users."""

    def __init__(self, bucket_of_row=None):
        self._bucket_of_row = bucket_of_row
        self._estimator = ratings(rounds=2, engine=DiskEngine(dtype=np.float64))

    def fit(self, data, *, session):
        with tempfile.TemporaryDirectory() as place:
            folder = folder_of(data, Path(place) / "users", bits=1, bucket_of_row=self._bucket_of_row)
            return self._estimator.fit(folder, session=session)


def audit_from_disk(make, data, user, *, epsilon, seed):
    from apportion.auditing import audit

    def fit(some, session):
        return published(make().fit(some, session=session).model_)

    return audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed)})


def by_item(data, own):
    """The bucket of the item instead of the user's."""
    return data.tasks % 2


def users_in_two_shards():
    with mock.patch.object(Shard, "check", return_value=None):  # the reader would refuse them
        return replayed(partial(FromDisk, by_item), (5.0,), audit_from_disk)


def shard_read_twice():
    read = ShardedUsers.parts

    def parts(self):
        for part in read(self):
            yield part
            yield part

    with mock.patch.object(ShardedUsers, "parts", parts):
        return replayed(FromDisk, (5.0,), audit_from_disk)


@cache
def from_disk():
    return replayed(FromDisk, (5.0,), audit_from_disk)


def gone_on(*, forgets):
    """Whether a fit that goes on shows another value for a release that it was charged for once."""
    users = random_interactions(1).as_users
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "keys").mkdir()
        key = LedgerKey.create(Path(place) / "keys" / "key").place
        seen = []
        for _ in range(2):
            checkpoint = Checkpoint(Path(place) / "fit", key=key)
            checkpoint.bind("data", "settings")
            session = Session(Budget(1.0, 1e-5), checkpoint=checkpoint)
            counts = LocalEngine().add_up(users, [TaskCounts(SplitEqually())])[0]
            found = (lambda *_, **__: None) if forgets else checkpoint.find
            with mock.patch.object(checkpoint, "find", found):
                seen.append(session.release("counts", counts, session.plan(counts=1.0).one("counts")))
            checkpoint.close()
    again = int(np.count_nonzero(seen[0] != seen[1]))
    return Verdict(again > 0, f"{again} of {len(seen[0])} numbers of one release were drawn twice")


def cases():
    return [
        Case("a user in two shards", "habit", "replay", users_in_two_shards, from_disk),
        Case("a shard that is read twice", "habit", "replay", shard_read_twice, from_disk),
        Case(
            "a resumed fit that draws again",
            "habit",
            "bytes",
            partial(gone_on, forgets=True),
            partial(gone_on, forgets=False),
        ),
    ]
