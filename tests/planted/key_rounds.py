"""Bugs of lists in two rounds: a threshold for other weights than were given, and keys that have no noise."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.stats import norm

from apportion.data.groups import rows_by_group
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.bounded_sum import _KEY
from apportion.privacy.contributions import KeyCounts
from apportion.privacy.keys import KeyedSum, OwnWeights
from apportion.privacy.mechanisms import FirstLook, SecondLook
from apportion.privacy.seen_keys import NoisyCounts, Seen
from planted.cases import Case, Verdict, exactly

DELTA, SCALE, HELD = 1e-6, 0.5, 4  # keys that get the most weight at the reach
REACH = 2.0


def chance(reach):
    """The true δ of the second round at a user who stands alone with 4 keys, its threshold being for this reach."""
    nothing = NoisyCounts(np.array([], object), np.zeros(0))
    first = Seen((), np.zeros(0), np.zeros(0, bool), 9.0, 2 * SCALE, OwnWeights(300, 3), nothing)
    look = SecondLook(DELTA, first, 0.2)
    threshold = look.level(OwnWeights(300, 1, reach), SCALE) * (1 + look.weight)
    mean, spread = REACH / HELD**0.5 + 0.2 / HELD**0.5, np.hypot(SCALE, 0.2 * 2 * SCALE)
    passed = 1 - float(norm.cdf((threshold - mean) / spread)) ** HELD
    return exactly(np.array([1 - passed, passed]), np.array([1.0, 0.0]), 0.0, DELTA)


def without_noise(whole):
    """Held keys that get no noise in the first round: another user could then change whether they have any."""
    users, items = np.repeat(np.arange(5), 40), np.tile(np.arange(40), 5)
    data = rows_by_group(users, [items], len(users))
    counts = add_up_one(LocalEngine(np.float64), data.held(), KeyCounts(4))
    session = Session(Budget(1.0, 1e-6, 5e-7), noise=SeededNoise(0))
    hidden = KeyedSum(counts, data.texts, whole=whole)
    seen = session.release_with(FirstLook(1e-7), "first", hidden, session.plan(first=1.0).one("first"))
    missing = int(np.isinf(seen.hidden._found(_KEY, data.texts)).sum())
    return Verdict(missing > 0, f"{missing} of 40 keys that somebody holds have no noise")


def cases():
    """Every bug of this file."""
    yield Case(
        "second round's threshold forgets that weights were shifted", "habit", "tester",
        partial(chance, 1.0), partial(chance, REACH),
    )  # fmt: skip
    yield Case(
        "noise for keys with weight alone", "habit", "replay",
        partial(without_noise, False), partial(without_noise, True),
    )  # fmt: skip
