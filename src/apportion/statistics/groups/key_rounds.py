"""A private list with as many keys as the budget buys: two rounds, and a decision by the noisy counts of both.

The first round has a fifth of the budget. Keys that pass are listed, and users give no more weight to them. Keys that
have hardly a chance get only what a user's other keys leave, and keys that will pass anyway get less. The second round
has the rest. A key is listed by a sum of its two noisy counts, so the first round's budget is not lost
(docs/proofs/key_rounds.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from apportion.data.groups import RowsByGroup
from apportion.engines import Engine, add_up_one
from apportion.privacy import Session
from apportion.privacy.contributions import KeyCounts, SecondKeyCounts
from apportion.privacy.keys import KeyedSum, Listed
from apportion.privacy.mechanisms import FirstLook, SecondLook
from apportion.privacy.purposes import Purpose
from apportion.privacy.seen_keys import Seen

FIRST: Final = 0.2  # of the budget
FIRST_DELTA: Final = 0.05  # of the part of δ for the list
MOST_KEYS: Final = 300  # of one user that count
_LEAST: Final = 2  # keys that a user counts as having in the first round
_TRUST: Final = 0.7  # of a count of the first round beside one of the second, given their noise
_HOPE, _PER_TAIL, _PER_MU = 1.5, 0.75, 1.0  # deviations of the first noise below the level with hope, see `hope_for`
_HOPES = (0.5, 3.0)  # least and most of them, before the budget


@dataclass(frozen=True)
class KeyList:
    """What two rounds listed.

    Attributes:
        texts: of the keys, in text order.
        first: number of keys that the first round listed.
        threshold: of the second round.
    """

    texts: tuple[str, ...]
    first: int
    threshold: float


def parts_of_delta(delta: float) -> tuple[float, float]:
    """What each round may take of the part of δ for the list. They add up to no more than it, in every digit."""
    first = FIRST_DELTA * delta
    return first, math.nextafter(delta - first, 0.0)


def reach_for(mu: float) -> float:
    """How far a weight may exceed that of keys which all stand alike: the less noise, the more a reach costs.

    >>> [round(reach_for(mu), 2) for mu in (0.1, 2.0)]
    [2.7, 1.34]
    """
    return 1.2 + 0.3 / (0.1 + mu)


def hope_for(tail: float, mu: float) -> float:
    """How far below the level a key may be and still gets weight of its own, in deviations of the first noise.

    Where counts fall off slowly there are many keys below the level, so leaving them out frees much weight.

    >>> hope_for(1.0, 0.5), hope_for(0.6, 0.5)
    (2.0, 1.7)
    """
    least, most = _HOPES
    return min(max(_HOPE + _PER_TAIL * (tail - 1), least), most) + _PER_MU * mu


def release_most_keys(data: RowsByGroup, session: Session, engine: Engine) -> KeyList:
    """Spend the whole budget on the list of keys.

    Args:
        data: with whatever keys occur.
        session: its budget keeps a part of δ for the list.
        engine: adds up.
    """
    shares, delta = session.plan(first=FIRST, second=1 - FIRST), session.budget.keys_delta
    counts: Any = add_up_one(engine, data.held(), KeyCounts(MOST_KEYS, least=_LEAST))
    hidden = KeyedSum(counts, data.texts, whole=True)
    of_first, of_second = parts_of_delta(delta)
    look = FirstLook(of_first)
    first: Seen = session.release_with(look, Purpose.FIRST_KEYS, hidden, shares.one("first"))
    rest = data.on_list([text for text in data.texts if text not in set(first.texts)])
    second = SecondLook(of_second, first, _TRUST * FIRST / (1 - FIRST))
    form = SecondKeyCounts(MOST_KEYS, reach_for(session.budget.mu))
    level = second.level(form.own, first.scale * (FIRST / (1 - FIRST)) ** 0.5)
    hope = level - hope_for(first.tail, session.budget.mu) * first.scale
    users = first.standing(rest.held(), rest.texts, hope, level)
    further: Any = add_up_one(engine, users, form)
    found: Listed = session.release_with(second, Purpose.MORE_KEYS, KeyedSum(further, rest.texts), shares.one("second"))
    return KeyList(tuple(sorted((*first.texts, *found.texts))), len(first.texts), found.threshold)
