"""Bugs of lists of private keys: what a list, its order, types or sample may tell of a key of one user alone."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.stats import norm

from apportion.auditing.hidden_values import raw_copy
from apportion.data import Interactions
from apportion.data.item_lists import in_text_order, texts_of, with_priorities
from apportion.data.user_keys import pair_keys
from apportion.data.vocabulary import ids_of_texts
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import Budget
from apportion.privacy.contributions import KeyCounts
from apportion.privacy.keys import KeyedSum, KeyedValues, OwnWeights, threshold_for
from planted.cases import Case, Verdict, exactly, replayed_on

BUDGET = Budget(8.0, 1e-3, 5e-4)
MOST = 8
OWN = ("0 of mine", "15 of mine", "zz")


def crowd(*own, users=60, items=range(10, 50)):
    """Users who all hold the same items, and one with some of its own; ids are integers if nobody's is text."""
    ids = (lambda item: str(item)) if own else (lambda item: item)
    rows = [(f"u{k}", ids(item)) for k in range(users) for item in items] + [("loner", each) for each in own]
    return Interactions.from_arrays([user for user, _ in rows], [item for _, item in rows])


def counted(data, priorities=with_priorities):
    keyed = in_text_order(data)
    counts = add_up_one(LocalEngine(np.float64, exact=True), priorities(keyed), KeyCounts(MOST))
    return KeyedSum(counts, texts_of(keyed.task_ids))


def listed(data, session, *, publish, priorities=with_priorities):
    """Release a list and publish it in some way."""
    share = session.plan(keys=1.0).one("keys")
    found = session.release_keys("keys", counted(data, priorities), share, BUDGET.keys_delta)
    return {"published": publish(data, found.texts), "statement": session.statement().to_json()}


def as_texts(data, texts):
    return list(ids_of_texts(texts))


def as_positions(data, texts):
    """Places in the list of all keys, which count those that are not listed."""
    return [place for place, text in enumerate(texts_of(data.task_ids)) if text in set(texts)]


def as_they_came(data, texts):
    """Ids of the type that all of the data's ids have together."""
    return [each for each in data.task_ids if str(each) in set(texts)]


def by_code(data):
    """Which keys a heavy user takes goes by codes, which move with the keys of others."""
    users = data.as_users
    return users.with_columns(priority=pair_keys(users.keys, users.owner, data.tasks, 0))


def chance(most):
    """The true δ of a threshold made for users of so many keys, at a user of 300."""
    delta, scale, held = 1e-6, 4.0, 300
    passed = 1 - float(norm.cdf((threshold_for(delta, scale, most, "gaussian") - held**-0.5) / scale)) ** held
    return exactly(np.array([1 - passed, passed]), np.array([1.0, 0.0]), 0.0, delta)


def everything(hidden):
    """All keys of the vocabulary, those that nobody holds among them."""
    counts = hidden._counts._open()
    return KeyedValues(hidden._texts, counts, np.zeros(len(counts), bool), OwnWeights(MOST))


def remembered(open_up):
    """Whether keys of a user who left, which a vocabulary remembers, are still there to be listed by noise."""
    data = crowd(*OWN)
    gone = data.without(data.user_ids.code_of("loner"))
    left = set(open_up(counted(gone)).texts.tolist()) & set(OWN)
    return Verdict(bool(left), f"{len(left)} keys that nobody holds get noise")


def cases():
    """Every bug of this file."""
    audit = partial(replayed_on, data=crowd(*OWN), neighbour=crowd(), budget=BUDGET)
    honest = partial(audit, partial(listed, publish=as_texts))
    yield Case("threshold that forgets users of many keys", "habit", "tester", partial(chance, 1), partial(chance, 300))
    for name, publish in (("keys in the order of the data", as_positions), ("ids of the data's type", as_they_came)):
        yield Case(name, "habit", "replay", partial(audit, partial(listed, publish=publish)), honest)
    wrong = partial(listed, publish=as_texts, priorities=by_code)
    yield Case("keys of heavy users taken by code", "habit", "replay", partial(audit, wrong), honest)
    yield Case(
        "keys without rows get noise", "habit", "replay", partial(remembered, everything), partial(remembered, raw_copy)
    )
