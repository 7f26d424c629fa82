"""Statistics of listed groups, step by step, each step paid for.

1. *Centre.* Where means or variances are wanted: about where values lie.
2. *Norms.* How long users' vectors over all groups are, for each statistic, by octave: from it come the caps.
3. *Sums by group.* All statistics of all groups in one release.

Noise is what the budget allows: Gaussian noise, or where it is pure, Laplace noise on vectors bounded in L1 norm. If
one number is counted in few groups and no user seems to have more than one in any of them, pure noise may be that of a
box instead, which bounds what a user is in each group by itself; released norms decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import UserParts
from apportion.engines import Engine, add_up_one
from apportion.estimators.contributions import release_noisy
from apportion.estimators.counts import release_overview
from apportion.postprocessing.class_counts import Kind, chance_of_nobody, class_counts, likely_counts
from apportion.postprocessing.norm_caps import Norms, Ratios
from apportion.privacy import Session, Share
from apportion.privacy.contributions import ClippedParts, GroupBoxes, GroupMoments, GroupSums, NormClasses
from apportion.privacy.mechanisms import Box
from apportion.privacy.purposes import Name, Purpose
from apportion.statistics.groups.asked import Asked, Capped, UsersNorms, columns_of
from apportion.statistics.groups.found import Found

Floats = NDArray[np.float64]

CENTRE, NORMS = 0.04, 0.08  # shares of the budget
MOST_BOXED: Final = 20  # groups for which noise of a box may be the better
_LIKELY = 0.5  # probability that all cells are at most 1, from which on noise of a box is considered
_HIDDEN, _AT_LEAST = 2.0, 0.05  # deviations of noise that may hide users with a larger cell, and how likely at least
_EDGES = tuple(2.0 ** (k / 2) for k in range(-6, 35))  # of classes of norms
_WHOLE = (*range(1, 8), *(2.0 ** (k / 2) for k in range(6, 35)))  # of L1 norms that are whole numbers
_EXACT = 7  # of these classes hold one number each
_RATIOS = tuple(1 + 0.25 * k for k in range(17))  # of whole norms to those of sizes
_MOST_RATIO = 32.0  # of an L1 norm to a norm


@dataclass(frozen=True, eq=False)
class GroupFit:
    """One fit on groups that are listed.

    Attributes:
        users: with their rows of those groups.
        session: pays.
        engine: adds up.
        asked: the statistics, by name.
        value_range: of values.
        share: of the budget for everything here.
        shrink: whether groups borrow from one another.
    """

    users: UserParts
    session: Session
    engine: Engine
    asked: Mapping[str, Asked]
    value_range: tuple[float, float]
    share: float
    shrink: bool

    def found(self) -> dict[str, Found]:
        """All steps."""
        centre = self._centre()
        moments = [each.moments(centre) for each in self.asked.values()]
        share = self._share("sums", self.share - NORMS - self._centre_share)
        norms_share = self._share("norms", NORMS)
        boxed = self._may_be_boxed(moments)
        norms = release_norms(self.users, self.session, self.engine, moments, norms_share, Purpose.NORMS, boxed=boxed)
        noise = noise_of(len(moments), share)
        chosen = [each.capped(one, noise, self.users.n_tasks) for each, one in zip(norms, moments, strict=True)]
        values, stddev = self._released(chosen, share)
        sums, pure = columns_of(tuple(each.moments for each in chosen), values), self.session.budget.pure
        return {
            name: one.found(each.released(block, stddev, shrink=self.shrink, laplace=pure), centre)
            for (name, one), block, each in zip(self.asked.items(), sums, chosen, strict=True)
        }

    def _may_be_boxed(self, moments: list[GroupMoments]) -> bool:
        """Whether a box may bound users: for one number that is counted, in few groups, without exact arithmetic."""
        counted = len(moments) == 1 and moments[0].whole and self.users.n_tasks <= MOST_BOXED
        return counted and self.session.budget.pure and not self.session.exact

    def _released(self, chosen: list[Capped], share: Share) -> tuple[Floats, float]:
        """All sums by group with noise, and its standard deviation."""
        if chosen[0].boxed:
            total = add_up_one(self.engine, self.users, GroupBoxes(chosen[0].moments))
            values: Any = self.session.release_with(Box(), Purpose.GROUP_SUMS, total, share)
            return np.asarray(values), Box().stddev(total, Box().scale(total, share))
        form = GroupSums(tuple(each.moments for each in chosen), taxicab=self.session.budget.pure)
        noisy = release_noisy(self.session, Purpose.GROUP_SUMS, add_up_one(self.engine, self.users, form), share)
        return noisy.values, math.sqrt(noisy.variance)

    @property
    def _centre_share(self) -> float:
        return CENTRE if any(each.centred for each in self.asked.values()) else 0.0

    def _centre(self) -> float:
        """About where values lie, on a scale from 0 to 1."""
        if not self._centre_share:
            return 0.0
        low, high = self.value_range
        share = self._share("centre", self._centre_share)
        _, mean = release_overview(self.users, self.session, self.engine, share, self.value_range, None)
        return (mean - low) / (high - low)

    def _share(self, name: str, fraction: float) -> Share:
        return self.session.plan(**{name: fraction}).one(name)


def release_norms(
    users: UserParts,
    session: Session,
    engine: Engine,
    moments: list[GroupMoments],
    share: Share,
    name: Name,
    *,
    boxed: bool = False,
) -> list[UsersNorms]:
    """Release how many users have about which norm; with `boxed`, those with a cell above 1 by themselves."""
    pure = session.budget.pure
    edges, exact = (_WHOLE, _EXACT) if pure and all(each.whole for each in moments) else (_EDGES, 0)
    classes = NormClasses(tuple(moments), edges, _RATIOS, _MOST_RATIO, taxicab=pure, boxed=boxed)
    total = add_up_one(engine, users, ClippedParts(classes, (classes.output,)))
    noisy = release_noisy(session, name, total, share)
    places = np.cumsum([classes.width_of(each) for each in moments])[:-1]
    stddev, ends = math.sqrt(noisy.variance), np.asarray(edges, np.float64)
    rows = np.split(noisy.values, places)
    if boxed:
        return [_boxed_norms(row, stddev, ends, exact) for row in rows]
    return [_norms(row, stddev, ends, exact, pure=pure) for row in rows]


def noise_of(statistics: int, share: Share) -> float:
    """Standard deviation of the noise in a number that one user moves by 1, among so many statistics."""
    return math.sqrt(2) * statistics / share.pure_epsilon if share.of.pure else math.sqrt(statistics) / share.mu


def _boxed_norms(noisy: Floats, stddev: float, edges: Floats, exact: int) -> UsersNorms:
    """L1 norms of all users, and what those with more than one in some group may be of the total."""
    alone, beyond = np.split(noisy, 2)
    norms = Norms.of(
        likely_counts(alone + beyond, math.sqrt(2) * stddev, "whole norms", laplace=True), edges, None, exact
    )
    nobody = chance_of_nobody(beyond, stddev)
    hidden = _HIDDEN * stddev / max(float(norms.counts.sum()), 1.0)  # of users, by noise
    return UsersNorms(norms, None, (_AT_LEAST + 1 - nobody) * hidden if nobody >= _LIKELY else None)


def _norms(noisy: Floats, stddev: float, edges: Floats, exact: int, *, pure: bool) -> UsersNorms:
    kind: Kind = "lengths" if not pure else "whole norms" if exact else "norms"
    likely = likely_counts(noisy[: len(edges)], stddev, kind, laplace=pure)
    ratio = None if pure else float(noisy[len(edges)]) * _MOST_RATIO / max(float(likely.mean.sum()), 1.0)
    held = None if ratio is None else float(np.clip(ratio, 1.0, _MOST_RATIO))
    norms = Norms.of(likely, edges, held, exact)
    further = noisy[len(edges) + (not pure) :]
    if not len(further):
        return UsersNorms(norms, None)
    return UsersNorms(norms, Ratios.of(class_counts(further, stddev, "distances", laplace=pure), np.asarray(_RATIOS)))
