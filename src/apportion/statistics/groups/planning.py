"""What statistics by group will cost and how wide their intervals will be: from public numbers alone.

How wide they are depends on how much one user is in all groups together: the root of the sum of its squared rows by
group, with Laplace noise the sum of its rows. That is private, and released before the sums; here it takes the values
of a public table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.postprocessing.mixed_widths import mixed_widths
from apportion.privacy import Budget, Share
from apportion.privacy.keys import Law, threshold_for
from apportion.statistics.groups.fitting import CENTRE, NORMS, noise_of
from apportion.statistics.groups.keys import GROUPS, LIST, MOST_GROUPS, group_budget
from apportion.statistics.groups.moments import BOTTOM

REACHES = (1.0, 3.0, 10.0, 30.0)
SIZES = (100, 1_000, 10_000)
_TYPICAL_RATIO = 2.0  # of a user's distance from the centre and size, to its size
_OF_SIZE = ("mean", "variance")


@dataclass(frozen=True)
class PlannedWidth:
    """The half-width of an interval.

    Attributes:
        statistic: which.
        reach: root of the sum of a user's squared rows by group, for most users at most this.
        size: rows of the group; None where it does not matter.
        half_width: of the interval of one group that borrows nothing from others.
    """

    statistic: str
    reach: float
    size: int | None
    half_width: float


@dataclass(frozen=True)
class GroupPlan:
    """What will be spent, and what it buys.

    Attributes:
        budget: the whole.
        shares: of the budget, by release.
        widths: of intervals.
        thresholds: number of users that a group needs to be listed with probability 1/2, by number of groups of a user.
    """

    budget: Budget
    shares: dict[str, float]
    widths: tuple[PlannedWidth, ...]
    thresholds: dict[int, float]


def plan_groups(
    statistics: Sequence[str],
    epsilon: float,
    delta: float,
    *,
    private_keys: bool,
    law: Law = "gaussian",
    value_range: tuple[float, float] | None = None,
    level: float = 0.95,
) -> GroupPlan:
    """Plan a fit of `UserGroupBy` without any data.

    >>> plan = plan_groups(["count"], 1.0, 1e-6, private_keys=False)
    >>> plan.shares, round(plan.widths[0].half_width, 1)
    ({'norms': 0.08, 'sums by group': 0.92}, 8.6)
    >>> plan = plan_groups(["count"], 1.0, 1e-6, private_keys=False, law="laplace")
    >>> round(plan.widths[0].half_width, 1)
    3.3
    """
    budget = group_budget(epsilon, delta, private_keys=private_keys, law=law)
    shares, rest = _shares(statistics, private_keys=private_keys)
    thresholds = _thresholds(budget, shares) if private_keys else {}
    if not rest:
        unit = _unit(1, Share(shares["list of groups"], budget), level)
        return GroupPlan(budget, shares, tuple(PlannedWidth("users", r, None, unit * r) for r in REACHES), thresholds)
    unit = _unit(len(rest), Share(shares["sums by group"], budget), level)
    widths = tuple(each for name in rest for each in _widths(name, unit, value_range or (0.0, 1.0)))
    return GroupPlan(budget, shares, widths, thresholds)


def _unit(statistics: int, share: Share, level: float) -> float:
    """The half-width of a number that one user moves by 1."""
    noise = np.array([noise_of(statistics, share)])
    return float(mixed_widths(level, noise, noise * share.of.pure)[0])


def _shares(statistics: Sequence[str], *, private_keys: bool) -> tuple[dict[str, float], list[str]]:
    """Shares by release, and the statistics that the last release is for."""
    rest = [name for name in statistics if not (private_keys and name == "users")]
    if not rest:
        return {"groups of users": GROUPS, "list of groups": 1 - GROUPS}, rest
    listed = {"groups of users": GROUPS, "list of groups": LIST - GROUPS} if private_keys else {}
    centre = {"overview": CENTRE} if set(rest) & set(_OF_SIZE) else {}
    before = {**listed, **centre, "norms": NORMS}
    return {**before, "sums by group": 1 - math.fsum(before.values())}, rest


def _widths(name: str, unit: float, value_range: tuple[float, float]) -> list[PlannedWidth]:
    low, high = value_range
    if name in _OF_SIZE:
        factor = BOTTOM * _TYPICAL_RATIO * ((high - low) if name == "mean" else (high - low) ** 2 / 2)
        most = (high - low) / 2 if name == "mean" else (high - low) ** 2 / 8  # from end to end of what is possible
        pairs = [(reach, size) for reach in REACHES for size in SIZES]
        return [PlannedWidth(name, reach, size, min(unit * reach * factor / size, most)) for reach, size in pairs]
    factor = max(abs(low), abs(high)) if name == "sum" else 1.0
    return [PlannedWidth(name, reach, None, unit * reach * factor) for reach in REACHES]


def _thresholds(budget: Budget, shares: dict[str, float]) -> dict[int, float]:
    share = Share(shares["list of groups"], budget)
    scale, law = (1 / share.pure_epsilon, "laplace") if budget.pure else (1 / share.mu, "gaussian")
    return {
        groups: (groups if budget.pure else math.sqrt(groups))
        * threshold_for(budget.keys_delta, scale, MOST_GROUPS, cast("Law", law), groups)
        for groups in (1, 10, 100)
    }
