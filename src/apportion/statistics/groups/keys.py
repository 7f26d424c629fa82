"""Which groups there are: a public list, a list that is released, or one taken from the data, which is declared.

A private list costs one release, which also says how many users each listed group has. A user gives each of its groups
the weight 1/√max(l, its number of groups). l is chosen so that most users have no more groups: then a count is √l times
smaller than the number of users, and no user is dropped (docs/proofs/groups.md). With Laplace noise the weight is
1/max(l, its number of groups).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from apportion.data.groups import RowsByGroup
from apportion.engines import Engine, add_up_one
from apportion.errors import InputError
from apportion.postprocessing.group_shrinkage import listed_totals
from apportion.postprocessing.norm_caps import Norms, best_cap
from apportion.privacy import Budget, Session
from apportion.privacy.contributions import Contribution, GroupMoments, KeyCounts, KeyShares
from apportion.privacy.keys import KeyedSum, Law, Listed
from apportion.privacy.purposes import Purpose
from apportion.statistics.groups.fitting import noise_of, release_norms
from apportion.statistics.groups.found import FoundListed
from apportion.statistics.groups.moments import ones
from apportion.statistics.groups.on_spark import GroupsOnSpark

Keys = Literal["private", "from-data"]
GroupRows = RowsByGroup | GroupsOnSpark

PRIVATE: Final = "private"
FROM_DATA: Final = "from-data"
OWN_GROUPS: Final = "who is in a group that nobody else is in"
KEYS_PART: Final = 0.25  # of δ, for the list
GROUPS, LIST = 0.04, 0.31  # shares of the budget: of how many groups users are in, and of the list
MOST_GROUPS: Final = 300  # of one user that count for the list
_TYPICAL: Final = 30  # groups, before any are known


@dataclass(frozen=True, eq=False)
class GroupList:
    """A list of groups as released, with how many users each has.

    Attributes:
        data: rows of listed groups.
        users: how many users each has.
        threshold: number of users that a group had to reach, with noise.
        taken: the share of the budget.
    """

    data: GroupRows
    users: FoundListed
    threshold: float
    taken: float


def group_budget(epsilon: float, delta: float, *, private_keys: bool, law: Law) -> Budget:
    """The budget of a fit. Laplace noise leaves all of δ to a private list, and needs none without.

    >>> group_budget(1.0, 1e-6, private_keys=False, law="laplace").delta
    0.0
    """
    needs = [
        words for words, wanted in (("Gaussian noise", law == "gaussian"), ("a private list", private_keys)) if wanted
    ]
    if needs and not delta > 0:
        raise InputError(f"Expected a delta above 0, because {needs[0]} needs one, got {delta}.", argument="delta")
    if law == "gaussian":
        return Budget(epsilon, delta, KEYS_PART * delta if private_keys else 0.0)
    return Budget(epsilon, delta, delta) if private_keys else Budget(epsilon, 0.0)


def release_list(data: GroupRows, session: Session, engine: Engine, fraction: float) -> GroupList:
    """Release the list of groups with the number of users of each.

    Args:
        data: with whatever groups occur.
        session: its budget keeps a part of δ for the list.
        engine: adds up.
        fraction: of the budget, for both releases.
    """
    shares, pure = session.plan(groups=GROUPS, keys=fraction - GROUPS), session.budget.pure
    (found,) = release_norms(
        data.users, session, engine, [GroupMoments(ones, 1, whole=True)], shares.one("groups"), Purpose.GROUPS_OF_USERS
    )
    norms = found.norms
    cap = best_cap(norms, noise_of(1, shares.one("keys")), _TYPICAL)
    least = int(np.clip(round(cap if pure else cap**2), 1, MOST_GROUPS))
    form = (KeyShares if pure else KeyCounts)(MOST_GROUPS, session.neighbours, least)
    listed = session.release_keys(
        Purpose.GROUP_LIST, _counted(data, engine, form), shares.one("keys"), session.budget.keys_delta
    )
    unit = float(least if pure else np.sqrt(least))
    numbers = _users(listed, unit, norms, pure=pure)
    return GroupList(data.on_list(listed.texts), numbers, listed.threshold * unit, fraction)


def _counted(data: GroupRows, engine: Engine, form: Contribution) -> KeyedSum:
    """The hidden counts of all groups that occur."""
    counts: Any
    if isinstance(data, GroupsOnSpark):
        counts, texts = data.rows.count_keys(form)
        return KeyedSum(counts, texts)
    counts = add_up_one(engine, data.held(), form)
    return KeyedSum(counts, data.texts)


def _users(listed: Listed, unit: float, norms: Norms, *, pure: bool) -> FoundListed:
    """Numbers of users of listed groups, given that they passed the threshold."""
    lost = min(norms.lost(unit), 0.9)
    factor, stddev = unit / (1 - lost), listed.scale * (2**0.5 if pure else 1.0)
    values = factor * listed_totals(listed.counts, stddev, listed.threshold, float(norms.counts.sum()))
    noise = np.full(values.shape, stddev * factor)
    return FoundListed(values, noise, listed.counts, stddev, listed.threshold, factor, norms.off(unit), laplace=pure)
