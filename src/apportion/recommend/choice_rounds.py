"""Rounds of a ratings fit that learn which items the same users choose.

They are rounds of the click recommender on the rows of ratings: each user j adds w_ij x_jᵀ to its items, with a unit
vector x_j and Σ_i w_ij² = 1, so the sensitivity of a release is 1 (docs/proofs/recommend.md). A row counts as chosen by
the place of its value in the scale: 1 at the top, 0 at the bottom. The ratings fit has released popularity already.
All rounds but the last are about popular items alone: a user divides its weight over those, and their directions come
out of the noise sooner. The last round is about all items, since a rare one, too, is valued for what it is like. Before
the last rounds users vote on how far to trust the vectors beside popularity, with the rows that are held out for votes
on variances. If they trust popularity alone, the share of the last rounds is left to the ratings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.rounds import Power
from apportion.allocation.weightings import OnTasks, SplitByValue, places_in_scale
from apportion.data.users import UserParts, Users
from apportion.engines import Engine, add_up_one
from apportion.estimators.counts import ReleasedPopularity
from apportion.privacy import Plan, Purpose, Rows, Session, Share
from apportion.privacy.contributions import HeldOut, Kernels, RowsOf, TaskMoments, Votes, Weighting
from apportion.recommend.click_rounds import (
    FEW,
    ReleasedVectors,
    RowPrior,
    beside_popularity,
    denoised_for_all,
    denoised_together,
    random_start,
    worth_learning,
)
from apportion.recommend.clicks import MOST_DIRECTIONS, ClickSettings, ClickTotals, default_dimension
from apportion.recommend.clicks_fold_in import Items, Regressions, Trust
from apportion.recommend.clicks_votes import (
    CLIP,
    RankLosses,
    chosen_by_votes,
    doubt_of_votes,
    expected_voters,
    in_words,
    rows_to_hold_out,
)
from apportion.recommend.model import FoldIn

Floats = NDArray[np.floating[Any]]


_CLEAR = 45.0  # popularity over the noise of a release with all of the budget, as users meet items
_FEWEST_ROWS = 30.0  # of a typical user, who solves for a taste in each of up to 16 directions
_CLEAR_FOR_ROUNDS = 2.0  # of the length of noise: items that all rounds are about
_LEAST_HELD = 0.6  # of all popularity; so many items they are at least
_TOGETHER = 2  # releases that are denoised together
_FEWEST_DIRECTIONS = 3
_MOST_USERS = 50_000.0  # a fit takes about three times as long with choices; beyond this one has to ask for them


def stands_out(popularity: Floats, n_users: float, mu: float) -> bool:
    """Return whether items stand so far out of the noise that choices are worth a share of a budget for ratings.

    Args:
        popularity: of the items; released.
        n_users: released, or declared public.
        mu: privacy parameter of the whole budget.
    """
    return clarity(popularity, n_users, mu) >= 1


def clarity(popularity: Floats, n_users: float, mu: float) -> float:
    """Return how far items stand out of the noise, of what `stands_out` asks for; 0 where users have too few rows.

    Args:
        popularity: of the items; released.
        n_users: released, or declared public.
        mu: privacy parameter of the whole budget.

    >>> clarity(np.full(200, 50.0), 1000.0, mu=0.45), clarity(np.full(200, 50.0), 2000.0, mu=0.45)
    (0.5, 0.0)
    """
    total = max(float(popularity.sum()), 1e-9)
    met = float(np.square(popularity).sum()) / total
    return mu * met / _CLEAR if (total / max(n_users, 1.0)) ** 2 >= _FEWEST_ROWS else 0.0


def takes_long(n_users: float) -> bool:
    """Return whether there are so many users that choices are learned only if they are asked for."""
    return n_users > _MOST_USERS


@dataclass(frozen=True)
class Pace:
    """How much is learned of choices, and how soon users vote on it; public.

    Attributes:
        longest: the most directions that are learned.
        ramp: round r gets a share proportional to r^ramp.
        rounds: how many there are.
        after_votes: how many rounds come after the votes.
        slower: below μ = 1, for the whole budget, the number of directions is multiplied by μ^slower.
        popularity_offset: of the settings of the rounds.
    """

    longest: int
    ramp: float
    rounds: int
    after_votes: int
    slower: float
    popularity_offset: float

    def dimension(self, budget_mu: float, mu: float, n_users: float, n_tasks: int) -> int:
        """Return how many directions are learned: at a small budget in proportion to its μ, but three if μ allows.

        Args:
            budget_mu: of the whole budget.
            mu: of the share for choices.
            n_users: released, or declared public.
            n_tasks: how many items there are.
        """
        most = min(default_dimension(mu, n_users, n_tasks), n_tasks, self.longest)
        return max(min(_FEWEST_DIRECTIONS, most), round(most * float(min(1.0, budget_mu) ** self.slower)))


TO_RANK = Pace(MOST_DIRECTIONS, 2.0, FEW + 1, 1, slower=0.4, popularity_offset=8.0)
"""With few directions at small budgets: each gets more of the signal, and further ones are noise."""
TO_PREDICT_VALUES = Pace(16, 3.0, FEW, 2, slower=0.0, popularity_offset=ClickSettings().popularity_offset)
"""A seventh of the share is spent before the votes, in case that choices say nothing."""


@dataclass(frozen=True, eq=False)
class ChoiceTastes:
    """The taste from a user's own regression, in which rows count as chosen by their values, scaled to length 1."""

    fold_in: FoldIn
    value_range: tuple[float, float]
    norm: float = 1.0

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        """Return the row of every user."""
        solved = self.fold_in.solve(kernels, users, places_in_scale(users, self.value_range))
        return Rows.scaled(solved[:, 1:], self.norm)


def weights_by_value(all_rows: SplitByValue, among: NDArray[np.bool_]) -> Weighting:
    """Return how a user divides its sensitivity over these items by its values; squares still sum to 1."""
    return all_rows if among.all() else OnTasks(all_rows, among, f"the {int(among.sum())} most popular items")


@dataclass(frozen=True, eq=False)
class Choices:
    """What was learned about choices; all of it released.

    Attributes:
        items: popularity and vectors.
        trust: how far a user's regression trusts the vectors.
        settings: of the rounds.
    """

    items: Items
    trust: Trust
    settings: ClickSettings

    @property
    def fold_in(self) -> FoldIn:
        """The regression of a user's choices."""
        return _fold_in(self.items, self.trust, self.settings)

    @property
    def vectors_are_trusted(self) -> bool:
        """Whether users voted for the vectors."""
        return self.trust != self.settings.choices[0]


@dataclass(frozen=True, eq=False)
class ChoiceRounds:
    """The rounds of one fit.

    Attributes:
        users: without the rows that are held out.
        everyone: with all rows, for the votes.
        session: that pays.
        engine: where sums are formed.
        rows: those held out; None if there are no votes, and so no rounds.
        n_users: released, or declared public.
        value_range: the public scale.
        pace: how much is learned, and when users vote; public.
    """

    users: UserParts
    everyone: UserParts
    session: Session
    engine: Engine
    rows: HeldOut | None
    n_users: float
    value_range: tuple[float, float]
    pace: Pace

    @property
    def settings(self) -> ClickSettings:
        """Of the rounds and the votes; public."""
        return ClickSettings(popularity_offset=self.pace.popularity_offset)

    def run(self, popularity: ReleasedPopularity, fraction: float, rng: np.random.Generator) -> Choices:
        """Return what was learned for this fraction of the budget; less is spent if popularity alone is trusted.

        Args:
            popularity: released.
            fraction: of the budget, the most that is spent.
            rng: of the public initial vectors.
        """
        plan, chosen = self._plan(fraction), self.settings
        items, trust = self._start(popularity, fraction, rng), chosen.choices[0]
        if self.rows is None or rows_to_hold_out(self.n_users, plan.one("votes").mu) is None:
            return Choices(items, trust, chosen)
        among, past = self._among(items, fraction), list[ReleasedVectors]()
        shares = plan.several("rounds")
        for k, share in enumerate(shares):
            if k == len(shares) - self.pace.after_votes:
                trust = self._trust(items, self.rows, plan.one("votes"))
                if trust == chosen.choices[0]:
                    break
            if k == len(shares) - 1:
                released = self._released(k, items, share, np.ones_like(among))
                rows = denoised_for_all(released, past[-1], among, self._prior(items))
            else:
                past = [*past, self._released(k, items, share, among)][-_TOGETHER:]
                rows = denoised_together(past, among, self._prior(items))
            items = replace(items, rows=rows)
        return Choices(items, trust, chosen)

    def _among(self, items: Items, fraction: float) -> NDArray[np.bool_]:
        """Return the items that all rounds are about, from released popularity."""
        mu = self.session.budget.mu * float(np.sqrt(fraction))
        dimension = items.rows.mean.shape[1]
        return worth_learning(items.popularity, mu, dimension, clear=_CLEAR_FOR_ROUNDS, least_held=_LEAST_HELD)

    def _prior(self, items: Items) -> RowPrior:
        place = self.engine.kernels.place
        return RowPrior(items.exposure, self.settings.least_popularity, self.settings.steps, place)

    def _plan(self, fraction: float) -> Plan:
        chosen = self.settings
        votes = min(chosen.votes_share, fraction / 2)
        rounds = [(fraction - votes) * share for share in Power(self.pace.ramp / 2).shares(self.pace.rounds)]
        return self.session.plan(votes=votes, rounds=rounds)

    def _start(self, popularity: ReleasedPopularity, fraction: float, rng: np.random.Generator) -> Items:
        found = popularity.posterior.mean
        mu = self.session.budget.mu * float(np.sqrt(fraction))
        dimension = self.pace.dimension(self.session.budget.mu, mu, self.n_users, len(found))
        return Items(found, found, popularity.counts.stddev, random_start(found, dimension, rng))

    def _released(self, k: int, items: Items, share: Share, among: NDArray[np.bool_]) -> ReleasedVectors:
        """Release a round about these items; the result has a row for each of them."""
        weights = weights_by_value(SplitByValue(self.value_range, self.session.neighbours), among)
        moments = add_up_one(self.engine, self.users, TaskMoments(weights, self._rows(k, items)))
        found = self.session.release(Purpose.CHOICE_VECTORS.at(round=k + 1), moments, share)
        apart = beside_popularity(np.asarray(found)[among], items.exposure[among])
        return ReleasedVectors(apart, moments.l2_sensitivity / share.mu)

    def _rows(self, k: int, items: Items) -> RowsOf:
        """Every user's unit vector, from its own rows and released values."""
        if k == 0:
            return ClickTotals(items.rows.mean)
        return ChoiceTastes(_fold_in(items, Trust(self.settings.ridge, 0.0), self.settings), self.value_range)

    def _trust(self, items: Items, rows: HeldOut, share: Share) -> Trust:
        choices = self.settings.choices
        losses = RankLosses(tuple(_fold_in(items, each, self.settings) for each in choices))
        votes = Votes(losses, rows, CLIP, in_words(choices), self.session.neighbours)
        total = add_up_one(self.engine, self.everyone, votes)
        released = np.asarray(self.session.release(Purpose.CHOICE_VOTES, total, share), np.float64)
        n_voters = expected_voters(rows, self.n_users, float(items.popularity.sum()))
        doubt = doubt_of_votes(total.l2_sensitivity / share.mu, n_voters)
        return choices[chosen_by_votes(released, doubt, self.settings.caution)]


def _fold_in(items: Items, trust: Trust, settings: ClickSettings) -> FoldIn:
    return Regressions(items, settings.observed, settings.popularity_offset).under([trust])[0]
