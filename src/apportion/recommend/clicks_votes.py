"""Votes of users on how far their regressions should trust what was learned (docs/proofs/votes.md).

A user computes its vector from the rows it kept and looks up the held-out rows in its own ranking: a row at rank r is
worth 1 / (1 + (r / 20)²). The sums of the differences from the first of a short list are released, and the best setting
that exceeds their doubt is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.linalg.ranks import Ranked
from apportion.privacy.contributions import HeldOut, Kernels
from apportion.recommend.clicks_fold_in import Trust
from apportion.recommend.model import FoldIn

CLIP = 0.1  # norm of a user's vote; the worth of a row is at most 1, and a smaller norm has less noise
_RANK = 20.0  # at which a row is worth half; a tenth of the tasks if these are few
_RANKED = 8192  # tasks that are ranked at most: those with the longest rows
_HELD_OUT, _ENOUGH = 0.08, 1000.0  # fraction of rows; less where so many users make it enough
_MOST_HELD_OUT = 2  # rows of one user
_MOST_VOTERS = 25_000.0  # users who hold out rows, about; more would cost time and say the same
_SPREAD_OF_VOTES = 0.03  # of one user's vote, about; what other users would have said differs by that
_CLEARLY = 2  # the first position of a setting that trusts what was learned
_NEARLY = 0.97  # as much, as a part of what the best gains
_LEAST_POWER = 280.0  # users' votes are asked for if this many of them weigh as much as the noise
_MANY = 8.0  # times as many as that; with fewer, one more setting is not worth what it adds to the noise

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class RankLosses:
    """The negative mean worth of a user's held-out rows, under each of several regressions."""

    fold_ins: tuple[FoldIn, ...]

    @property
    def n_settings(self) -> int:
        """Number of regressions, the default first."""
        return len(self.fold_ins)

    def __call__(self, kept: Users, shown: Users, kernels: Kernels) -> NDArray[np.float64]:
        """Return [n_users, n_settings]; zero for users who hold out no row."""
        voting = kept if shown.present.all() else kept.with_rows(shown.present[kept.owner])
        rankings, places = self._rankings
        asked = [ranking.asked(voting, shown) for ranking in rankings]
        pairs = zip(self.fold_ins, places, strict=True)
        return np.stack([_losses(each, asked[place], voting, shown, kernels) for each, place in pairs], axis=1)

    @cached_property
    def _rankings(self) -> tuple[list[_Ranking], list[int]]:
        """The different rankings, and which of them each regression uses; several may share the features."""
        different: list[Any] = []
        places = []
        for features in (each.features for each in self.fold_ins):
            place = next((k for k, known in enumerate(different) if known is features), len(different))
            different += [features] if place == len(different) else []
            places.append(place)
        return [_Ranking.of(features) for features in different], places


@dataclass(frozen=True, eq=False)
class _Ranking:
    """The features of the tasks that are ranked, and the place of every task among them; -1 for the others."""

    features: NDArray[np.float32]
    place: NDArray[np.int64]

    @classmethod
    def of(cls, features: Any) -> _Ranking:
        """Rank the tasks with the longest rows."""
        ranked = _longest_rows(features)
        place = np.full(len(features), -1, np.int64)
        place[ranked] = np.arange(len(ranked))
        return cls(np.ascontiguousarray(features[ranked], np.float32), place)

    def asked(self, voting: Users, shown: Users) -> _Asked:
        """Return what the ranks of held-out rows are asked with: each in its user's list, without what it kept."""
        kept, own = self.place[voting.column("tasks")], self.place[shown.column("tasks")]
        indptr = np.concatenate([[0], np.cumsum(kept >= 0)])[voting.indptr]
        return _Asked(self.features, indptr, kept[kept >= 0], own)


@dataclass(frozen=True, eq=False)
class _Asked:
    """The ranked features, which of them each user leaves out, and the place of each held-out row; -1 for none."""

    features: NDArray[np.float32]
    indptr: NDArray[np.int64]
    excluded: NDArray[np.int64]
    own: NDArray[np.int64]

    def worth(self, vectors: Floats, shown: Users, kernels: Kernels) -> Floats:
        """Return the worth of each held-out row at its rank under these vectors of users."""
        asked = Ranked(vectors, self.features, self.indptr, self.excluded, shown.owner, np.maximum(self.own, 0))
        half = min(_RANK, len(self.features) / 10)
        return np.asarray(np.where(self.own >= 0, 1 / (1 + np.square(kernels.ranks(asked) / half)), 0.0))


def _losses(fold_in: FoldIn, asked: _Asked, voting: Users, shown: Users, kernels: Kernels) -> NDArray[np.float64]:
    """Solve on processors: a last bit can move a rank, so no bit of one user may depend on another user."""
    clicks = np.broadcast_to(np.float32(1), voting.n_rows)
    vectors = fold_in.solve(kernels.on_processors, voting, clicks).astype(np.float32, copy=False)
    worth = asked.worth(vectors, shown, kernels)
    return np.asarray(-np.bincount(shown.owner, worth, minlength=shown.n_users) / np.maximum(shown.sizes, 1))


def _longest_rows(features: Any) -> NDArray[np.int64]:
    """Return the tasks with the longest rows, in the order of the list."""
    lengths = np.square(features.astype(np.float64)).sum(axis=1)
    return np.sort(np.argsort(-lengths, kind="stable")[:_RANKED])


def rows_to_hold_out(n_users: float, mu: float) -> HeldOut | None:
    """Return which rows votes need; None if so few users could not exceed the noise of a release of this μ.

    Args:
        n_users: released, or declared public.
        mu: of the release of the votes.
    """
    if n_users * mu < _LEAST_POWER * CLIP:
        return None
    voters = min(n_users, _MOST_VOTERS)
    return HeldOut(min(_HELD_OUT, _ENOUGH / voters), most=_MOST_HELD_OUT, voters=voters / n_users)


def many_voters(n_users: float, mu: float) -> bool:
    """Return whether users are so many that one more setting to vote on costs next to nothing.

    Args:
        n_users: released, or declared public.
        mu: of the release of the votes.
    """
    return n_users * mu >= _MANY * _LEAST_POWER * CLIP


def expected_voters(rows: HeldOut, n_users: float, popularity: float) -> float:
    """Return about how many users hold out a row, as if all users had as many rows as a typical one.

    Args:
        rows: those held out.
        n_users: released, or declared public.
        popularity: released: the sum of √n^j over users, n^j the rows of a user.
    """
    typical = max(popularity / n_users, 1.0) ** 2
    return n_users * rows.voters * min(1.0, rows.fraction * typical)


def doubt_of_votes(stddev: float, n_voters: float) -> float:
    """Return the standard deviation of a sum of votes: of its noise, and of what other users would have said.

    >>> round(doubt_of_votes(0.4, 100.0), 3)
    0.5
    """
    return float(np.hypot(stddev, _SPREAD_OF_VOTES * np.sqrt(n_voters)))


def chosen_by_votes(differences: NDArray[np.float64], doubt: float, caution: float) -> int:
    """Return the position of the setting with the least released loss; 0 unless it is clearly lower.

    >>> chosen_by_votes(np.array([-5.0, -9.0]), 4.0, 1.0), chosen_by_votes(np.array([-3.0, 2.0]), 4.0, 1.0)
    (2, 0)
    """
    best = int(np.argmin(differences))
    return best + 1 if differences[best] < -caution * doubt else 0


def bolder_if_alike(choices: Sequence[Trust], chosen: int, differences: NDArray[np.float64]) -> Trust:
    """Return the chosen setting, or the next if that trusts what was learned more and gains nearly as much.

    Users vote before the last round is made, so what was learned will be worth more trust than when they voted.

    Args:
        choices: the default, and those that the differences are of.
        chosen: position of the best; one that hardly trusts what was learned is left as it is.
        differences: released losses minus that of the default.
    """
    after = chosen + 1
    if chosen < _CLEARLY or after == len(choices) or differences[after - 1] > _NEARLY * differences[chosen - 1]:
        return choices[chosen]
    alike = choices[after].feature_weight == choices[chosen].feature_weight
    return choices[after] if alike and choices[after].ridge < choices[chosen].ridge else choices[chosen]


def in_words(choices: Sequence[Any]) -> str:
    """Describe the list of settings, for the statement."""
    return "votes on " + "; ".join(each.text for each in choices)
