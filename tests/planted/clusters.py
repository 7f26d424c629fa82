"""Bugs of a distributed sum: buckets that count twice or not at all, users split in two, workers that do as they like.

The twin of each is the engine as it is, on the same frame with the same fault: it counts every user once, or refuses.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial, reduce
from operator import add
from unittest import mock

import numpy as np

from apportion.auditing.hidden_values import raw_steps
from apportion.data.users import Users
from apportion.engines import LocalEngine, SparkEngine
from apportion.engines.spark import buckets, engine, workers
from apportion.engines.spark.engine import UsersOnSpark
from apportion.errors import InputError
from apportion.privacy import Budget
from apportion.privacy.bounds import Parts
from apportion.privacy.contributions import ClippedParts, Output, PartialSums
from frames_in_memory import SparkInMemory
from planted.cases import Case, Verdict, replayed_on

PARTITIONS = 2
KEYS = np.stack([np.arange(12, dtype=np.uint64), np.zeros(12, np.uint64)], axis=1)


def sums_of_rows(users, weights):
    """Far beyond the clip norm of 1, for every user and for half of a user's rows."""
    return (np.bincount(users.owner, users.column("values"), minlength=users.n_users)[:, None],)


TOTAL = ClippedParts(sums_of_rows, (Output(1, 1.0, False, "the sum of a user's rows"),))


def users_of(present):
    """A row of 4 and one of 6 for each user who is present."""
    n = int(present.sum())
    return Users(np.arange(0, 2 * n + 1, 2), {"values": np.tile([4.0, 6.0], n)}, keys=KEYS[present])


EVERYBODY = np.ones(12, bool)
WITHOUT_ONE = np.arange(12) != 5


def placed(users, fault):
    """The users on a cluster, with what went wrong there."""
    adder = SparkEngine(SparkInMemory(), partitions=PARTITIONS)
    frame = adder._placed(users).frame
    if fault == "twice":
        frame = frame.union(frame)
    if fault == "split":
        even = np.arange(users.n_rows) % 2 == 0
        frame = reduce(lambda a, b: a.union(b), [adder._placed(users.with_rows(half)).frame for half in (even, ~even)])
    if fault == "left out":
        frame.partitions = frame.partitions[:1]
    return adder, UsersOnSpark(frame, 0)


# -- what is wrong with the engine --


def trusting(patches):
    """An engine that adds up whatever comes, and asks for nothing that does not."""
    for module in (workers, engine):
        patches.enter_context(mock.patch.object(module, "merged", lambda answers: reduce(add, answers)))
    patches.enter_context(mock.patch.object(engine, "complete", return_value=None))


def without_clip(patches):
    """Workers who add their users' rows as they are."""
    as_it_is = lambda cls, rows, indptr, norm: mock.Mock(_values=rows)  # noqa: E731
    patches.enter_context(mock.patch.object(Parts, "clipped", classmethod(as_it_is)))


def with_noise(patches):
    """Workers who add noise of their own, which nobody charges for and which a retry draws again."""
    rng, over = np.random.default_rng(0), PartialSums.over.__func__
    noisy = lambda cls, *given: over(cls, *given).shifted(rng)  # noqa: E731
    patches.enter_context(mock.patch.object(PartialSums, "over", classmethod(noisy)))
    patches.enter_context(mock.patch.object(PartialSums, "shifted", lambda self, rng: _shifted(self, rng), create=True))


def _shifted(sums, rng):
    return PartialSums(
        [tuple(each + rng.integers(1, 9, each.shape) for each in of) for of in sums._sums], sums._n_users
    )


def unchanged(patches):
    """The engine as it is."""


# -- how it is seen --


def released(present, session, *, fault, broken):
    """The total of all users, by an engine that is broken."""
    with ExitStack() as patches:
        broken(patches)
        adder, users = placed(users_of(present), fault)
        (total,) = adder.add_up(users, [TOTAL])
    return {"total": session.release("total", total, session.plan(total=1.0).one("total"))}


def moved(fault, broken):
    """Record and replay: how far one user moves the total."""
    try:
        fit = partial(released, fault=fault, broken=broken)
        return replayed_on(fit, EVERYBODY, WITHOUT_ONE, Budget(1.0, 1e-5))
    except InputError as error:
        return Verdict(False, f"refused: {error}"[:120])


def compared(fault, broken):
    """The whole numbers beside those of memory."""
    (wanted,) = LocalEngine(exact=True).add_up(users_of(EVERYBODY), [TOTAL])
    try:
        with ExitStack() as patches:
            broken(patches)
            adder, users = placed(users_of(EVERYBODY), fault)
            (found,) = adder.add_up(users, [TOTAL])
    except InputError as error:
        return Verdict(False, f"refused: {error}"[:120])
    off = int((raw_steps(found) - raw_steps(wanted))[0])
    return Verdict(off != 0, f"the total is {off} steps from that of memory")


def cases():
    """Every bug with its twin."""
    assert buckets.bucket_of(KEYS, 8 * PARTITIONS).max() > 0
    habit = "a habit: sums on a cluster that trust it"
    listed = [
        ("a bucket is counted twice", "twice", trusting, moved),
        ("a bucket is left out", "left out", trusting, compared),
        ("a user's rows are clipped in two partitions", "split", trusting, moved),
        ("workers add noise of their own", "", with_noise, compared),
        ("workers ignore the clip", "", without_clip, moved),
    ]
    return [
        Case(f"{name} (Spark)", habit, "replay", partial(seen, fault, broken), partial(seen, fault, unchanged))
        for name, fault, broken, seen in listed
    ]
