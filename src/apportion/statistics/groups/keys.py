"""Which groups there are: a public list, a list that is released, or one taken from the data, which is declared.

A private list costs one release, which also says how many users each listed group has. A user gives each of its groups
the weight 1/√max(l, its number of groups). l is chosen so that most users have no more groups: then a count is √l times
smaller than the number of users, and no user is dropped (docs/proofs/groups.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from apportion.data.groups import RowsByGroup
from apportion.engines import Engine, add_up_one
from apportion.postprocessing.group_shrinkage import listed_totals
from apportion.postprocessing.norm_caps import UNSURE, Norms, best_cap
from apportion.privacy import Session
from apportion.privacy.contributions import GroupMoments, KeyCounts
from apportion.privacy.keys import KeyedSum, Listed
from apportion.privacy.purposes import Purpose
from apportion.statistics.groups.fitting import release_norms
from apportion.statistics.groups.found import FoundListed
from apportion.statistics.groups.moments import ones

Keys = Literal["private", "from-data"]

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

    data: RowsByGroup
    users: FoundListed
    threshold: float
    taken: float


def release_list(data: RowsByGroup, session: Session, engine: Engine, fraction: float) -> GroupList:
    """Release the list of groups with the number of users of each.

    Args:
        data: with whatever groups occur.
        session: its budget keeps a part of δ for the list.
        engine: adds up.
        fraction: of the budget, for both releases.
    """
    shares = session.plan(groups=GROUPS, keys=fraction - GROUPS)
    (found,) = release_norms(
        data.users, session, engine, [GroupMoments(ones, 1)], shares.one("groups"), Purpose.GROUPS_OF_USERS
    )
    norms = found.norms
    cap = best_cap(norms, 1 / shares.one("keys").mu, _TYPICAL)
    form = KeyCounts(MOST_GROUPS, session.neighbours, int(np.clip(round(cap**2), 1, MOST_GROUPS)))
    counts: Any = add_up_one(engine, data.held(), form)
    listed = session.release_keys(
        Purpose.GROUP_LIST, KeyedSum(counts, data.texts), shares.one("keys"), session.budget.keys_delta
    )
    unit = float(np.sqrt(form.least))
    return GroupList(data.on_list(listed.texts), _users(listed, unit, norms), listed.threshold * unit, fraction)


def _users(listed: Listed, unit: float, norms: Norms) -> FoundListed:
    """Numbers of users of listed groups, given that they passed the threshold."""
    lost = min(norms.lost(unit), 0.9)
    factor = unit / (1 - lost)
    values = factor * listed_totals(listed.counts, listed.scale, listed.threshold, float(norms.counts.sum()))
    noise = np.full(values.shape, listed.scale * factor)
    return FoundListed(values, noise, listed.counts, listed.scale, listed.threshold, factor, UNSURE * lost)
