"""A private list with as many keys as the budget buys: two rounds, and a decision by the noisy counts of both.

The first round has a fifth of the budget. Keys that pass are listed, and users give no more weight to them. Nor do they
give weight to keys that have hardly a chance; keys that will pass anyway get half. The second round has the rest. A key
is listed by a sum of its two noisy counts, so the first round's budget is not lost (docs/proofs/key_rounds.md).
"""

from __future__ import annotations

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
FIRST_DELTA: Final = 0.1  # of the part of δ for the list
MOST_KEYS: Final = 300  # of one user that count
_LEAST: Final = 3  # keys that a user counts as having in the first round
_TRUST: Final = 0.8  # of a count of the first round beside one of the second, given their noise
_REACH: Final = 2.0
_HOPE, _HOPE_PER_MU, _SURE = 1.5, 0.7, 1.0  # deviations of the first noise: below the level with hope, above it surely


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
    look = FirstLook(FIRST_DELTA * delta)
    first: Seen = session.release_with(look, Purpose.FIRST_KEYS, hidden, shares.one("first"))
    rest = data.on_list([text for text in data.texts if text not in set(first.texts)])
    second = SecondLook((1 - FIRST_DELTA) * delta, first, _TRUST * FIRST / (1 - FIRST))
    level = second.level(SecondKeyCounts(MOST_KEYS, _REACH).own, first.scale * (FIRST / (1 - FIRST)) ** 0.5)
    hope = level - (_HOPE + _HOPE_PER_MU * session.budget.mu) * first.scale
    users = first.standing(rest.held(), rest.texts, hope, level + _SURE * first.scale)
    further: Any = add_up_one(engine, users, SecondKeyCounts(MOST_KEYS, _REACH))
    found: Listed = session.release_with(second, Purpose.MORE_KEYS, KeyedSum(further, rest.texts), shares.one("second"))
    return KeyList(tuple(sorted((*first.texts, *found.texts))), len(first.texts), found.threshold)
