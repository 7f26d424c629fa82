"""A private recommender for clicks, by noisy subspace iteration between users and tasks.

The plan of a fit (docs/proofs/recommend.md has the bounds):

1. the number of users, and popularity t by weighted counts, deconvolved; where the counts are not far above their
   noise, more of the budget goes to a second release of them. Too few users for votes: popularity gets everything;
2. `rounds` rounds. Each user j computes a unit vector x_j from its own clicks and the task vectors released so far;
   the release is B = Σ_j w_j x_jᵀ, whose sensitivity is 1 whatever the number of tasks or the dimension. A user divides
   its whole weight over those of its tasks whose popularity can stand out of the noise: w_ij = 1/√n^j with n^j their
   number; these are fewer after the first round where its vectors turn out short. Rows of the last releases are
   denoised by empirical Bayes and become the next task vectors;
3. the last vectors, with popularity as a first coordinate, are the model. How far a user's regression trusts them
   beside popularity is chosen by votes of all users on a few rows that were kept out of everything before. If it is
   not at all, the share of the last round goes to the counts of those tasks that may be among the most popular.

Public item features, if given, are further coordinates of the model: each user learns a taste for them alone, at no
cost. If requested, they also shift the prior mean of task vectors.

No per-task matrix is released: at these budgets the vectors B_i are worth far more than Grams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Allocation, EqualSplit, SplitEqually
from apportion.allocation.rounds import Power
from apportion.data.features import ItemFeatures
from apportion.data.user_data import UnlistedData, UserData
from apportion.data.users import Users
from apportion.engines import Engine, LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.counts import (
    ReleasedPopularity,
    release_leading_popularity,
    release_number_of_users,
    release_popularity,
    release_popularity_again,
    weighed_by,
)
from apportion.estimators.items import PrivateItems
from apportion.postprocessing.low_rank import Denoised
from apportion.privacy import Purpose, Rows, Session, Share, Statement
from apportion.privacy.contributions import HeldOut, Kernels, RowsOf, TaskMoments, Votes, Weighting, without_held_out
from apportion.recommend.als import Progress
from apportion.recommend.categories import Categories
from apportion.recommend.click_rounds import (
    FEW,
    Focus,
    Rounds,
    RowPrior,
    default_rounds,
    denoised_together,
    denoised_vectors,
    random_start,
)
from apportion.recommend.clicks_fold_in import Items, Regressions, Trust
from apportion.recommend.clicks_votes import (
    CLIP,
    RankLosses,
    bolder_if_alike,
    chosen_by_votes,
    doubt_of_votes,
    expected_voters,
    in_words,
    many_voters,
    rows_to_hold_out,
)
from apportion.recommend.features.new_items import FeatureMap
from apportion.recommend.features.prior import FeaturesEstimator, leading_directions, linear_map, log_popularity
from apportion.recommend.model import ClickModel, FoldIn
from apportion.recommend.ranges import OF_CLICKS, refuse_outside

Floats = NDArray[np.floating[Any]]

MOST_DIRECTIONS = 128
_HEAD = 20  # tasks at the top of a ranking
_FURTHER_SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)  # of what is left, to count popularity again
_ON_ALL_TASKS = 0.5  # of the budget, where popularity gets everything; the rest is for those that may lead
_POPULARITY, _HARDLY, _BETWEEN = Trust(1e4, 5), Trust(20, 5), Trust(5, 1)  # the first trusts nothing else
LEARNED = "trust"  # what users voted for, beside the settings that a model keeps
_CAUTIOUS = 2  # the first choices of a list, which hardly trust what was learned


@dataclass(frozen=True)
class ClickSettings:
    """Everything that can be tuned; all of it public.

    Attributes:
        rounds: number of rounds; None for 4, or for 6 or 8 if there are many users for the budget and the list.
        dimension: length of task vectors; None to compute it from the budget and the released number of users.
        users_share: share of the budget for the number of users, unless that is declared public.
        counts_share: share for popularity.
        ramp: round r gets a share proportional to r^ramp; 1.5 or 1 if there are 6 or 8 rounds by default.
        steps: EM steps of the denoising.
        last_steps: the same after the last round, where rows are shrunk by less.
        observed: extra weight of observed pairs in a user's regression.
        ridge: ridge of that regression in the rounds, in units of the mean eigenvalue.
        choices: how far the model's regression may trust what was learned; the default, popularity alone, first. Users
            vote on them; a single one is taken without a vote. The default list gets a ridge of 5 if users are many.
        votes_share: share of the budget for the votes.
        caution: a choice has to be better than the default by this many standard deviations: of noise and of users.
        head: a second release of popularity makes the noise this many times smaller than the 20th count.
        popularity_offset: task vectors are divided by the root of popularity plus this many times its noise.
        least_popularity: fraction of the mean popularity below which a task's prior variance does not fall.
        feature_directions: with features, how many directions of them a user's taste is for, beside learned vectors.
        feature_weight: size of these directions, relative to the learned vectors.
        feature_prior: whether features also move the mean of the prior of task vectors.
    """

    rounds: int | None = None
    dimension: int | None = None
    users_share: float = 0.002
    counts_share: float = 0.08
    ramp: float = 2.0
    steps: int = 5
    last_steps: int = 20
    observed: float = 2.0
    ridge: float = 0.2
    choices: tuple[Trust, ...] = (_POPULARITY, _HARDLY, Trust(1, 5), Trust(0.2, 1))
    votes_share: float = 0.015
    caution: float = 2.0
    head: float = 5.0
    popularity_offset: float = 3.0
    least_popularity: float = 0.03
    feature_directions: int = 64
    feature_weight: float = 1.2
    feature_prior: bool = False

    def __post_init__(self) -> None:
        """Take choices as they are stored, too; refuse numbers with which a fit would fail or mean nothing."""
        refuse_outside(self, OF_CLICKS)
        made = tuple(Trust(**each) if isinstance(each, dict) else each for each in self.choices)
        object.__setattr__(self, "choices", made)

    @classmethod
    def for_budget(cls, mu: float) -> ClickSettings:
        """Return the defaults; the dimension follows from the budget once the number of users is known."""
        return cls()


def default_dimension(mu: float, n_users: float, n_tasks: int) -> int:
    """Return how many directions can exceed the noise: 1.4 (μ n / √m)^0.6, between 2 and 128.

    The formula was developed on MovieLens. Data with a handful of tastes need fewer directions, or a user's few clicks
    are spread over too many: give `dimension` if public knowledge suggests it.
    """
    most = min(MOST_DIRECTIONS, max(2, n_tasks // 4))
    return int(np.clip(round(1.4 * (mu * n_users / np.sqrt(n_tasks)) ** 0.6), 2, most))


@with_constructor
class PrivateClickRecommender(FeaturesEstimator):
    """Learns task vectors from clicks under user-level differential privacy.

    Args:
        allocation: how each user divides its sensitivity over its items; None for equally.
        dimension: length of task vectors; None for the default of this budget.
        rounds: number of rounds; None for the default.
        settings: all settings at once.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for everything that `model_` holds. The features
    are public; the list of items is as `items` says.

    Example:
        >>> from apportion.data.synthetic import long_tailed_clicks
        >>> data, _ = long_tailed_clicks(300, 40, 4000, rank=2, rng=np.random.default_rng(0))
        >>> model = PrivateClickRecommender(epsilon=5.0, dimension=2, rounds=2).fit(data).model_
        >>> model.n_tasks, model.statement.epsilon
        (40, 5.0)
    """

    _: KW_ONLY
    settings: ClickSettings | None = None

    def _fit(self, data: UserData | UnlistedData, session: Session | None, progress: Progress | None) -> Self:
        settings: ClickSettings = self._chosen_settings(ClickSettings.for_budget)
        default = LocalEngine.in_whole_numbers()
        entered = self._entered(session, data, self._public_features(), settings.counts_share, default)
        if entered.data.n_tasks < 2:
            raise InputError(f"Expected a list of at least 2 items to rank, got {entered.data.n_tasks}.", argument=None)
        session, policy = entered.session, self.allocation or EqualSplit()
        fit = _Fit(
            entered.data, session, entered.engine, settings, policy, entered.n_users, self.features, entered.items
        )
        learned = fit.run(np.random.default_rng(self.random_state), progress)
        self.statement_, self.n_users_ = session.statement(), fit.n_users
        self.model_ = fit.model(*learned, self.statement_)
        return self


@dataclass(frozen=True, eq=False)
class ClickTotals:
    """The sum of the vectors of a user's own tasks, scaled to length 1."""

    vectors: Floats
    norm: float = 1.0

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        """Return the row of every user."""
        return Rows.scaled(kernels.total_of_users(users, self.vectors), self.norm)


@dataclass(frozen=True, eq=False)
class ClickTastes:
    """The taste from a user's own regression, scaled to length 1."""

    fold_in: FoldIn
    norm: float = 1.0

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        """Return the row of every user."""
        solved = self.fold_in.solve(kernels, users, np.broadcast_to(np.float32(1), users.n_rows))
        return Rows.scaled(solved[:, 1:], self.norm)


class _Fit:
    """One fit: private data on one side, released state on the other, the session in between."""

    def __init__(
        self,
        data: UserData,
        session: Session,
        engine: Engine,
        settings: ClickSettings,
        allocation: Allocation,
        known_users: float | None,
        features: ItemFeatures | None,
        listed: PrivateItems | None,
    ) -> None:
        self._users = data.as_users
        self._allocation = allocation
        self._features = features
        self._rows = None if features is None else features.for_tasks(data.task_ids)
        self._directions = None if self._rows is None else leading_directions(self._rows, settings.feature_directions)
        self._data = data
        self._session = session
        self._engine = engine
        self._settings = settings
        self._known_users = known_users
        self._listed = listed
        self._held_out: HeldOut | None = None
        self._made = Rounds(settings.rounds or FEW, settings.ramp)
        self._focus = Focus(np.ones(data.n_tasks, np.bool_))  # the tasks whose vectors are learned
        self._narrows = False  # whether rounds are about some tasks
        self.n_users = 0.0  # declared or released, once it is
        self._reserved = 0.0
        self._offered: tuple[Trust, ...] = ()

    def run(self, rng: np.random.Generator, progress: Progress | None) -> tuple[Items, Trust]:
        """Make every release, in order; return what was learned, and how far it is to be trusted.

        Where there are too few users to tell whether vectors are worth anything, popularity gets everything.
        """
        chosen, n_users = self._settings, self._number_of_users()
        self.n_users, self._offered, voting = n_users, self._choices(n_users), len(chosen.choices) > 1
        if voting:
            self._held_out = rows_to_hold_out(n_users, self._votes_share().mu)
            self._reserved = 0.0 if self._held_out is None else chosen.votes_share
        if voting and self._held_out is None:
            return self._start(self._popularity_alone(n_users, progress), n_users, rng)[1], _POPULARITY
        released = self._popularity(n_users)
        weights, items = self._start(released, n_users, rng)
        if chosen.rounds is None:
            self._made = default_rounds(self._session.budget.mu, n_users, self._data.n_tasks, self._made)
        learned = self._rounds(items, weights, released, progress)
        if progress:
            progress("round", self._made.number, self._made.number)
        return learned

    def _rounds(
        self, items: Items, weights: Weighting, released: ReleasedPopularity, progress: Progress | None
    ) -> tuple[Items, Trust]:
        """Make the rounds. Votes come before the last; if they trust popularity alone, it gets what is left."""
        rounds, trust = self._made.number, self._offered[0]
        for k, share in enumerate(self._round_shares()):
            if progress:
                progress("round", k, rounds)
            if k == max(rounds - self._made.after_votes, 0) and self._held_out is not None:
                trust = self._trust(items, self._held_out)
                if trust == self._offered[0] and k:
                    return self._with_popularity(items, self._leading(released)), trust
            items = self._round(k, items, weights, share)
            if k == 0 and self._made.narrow:  # the first round says how long vectors are
                weights = self._weights(weights, items)
        return items, trust

    def _start(self, released: ReleasedPopularity, n_users: float, rng: np.random.Generator) -> tuple[Weighting, Items]:
        given = weighed_by(self._allocation, self._users, released, self._session)
        found = released.posterior.mean
        wanted = self._settings.dimension
        dimension = wanted or default_dimension(self._session.budget.mu, n_users, self._data.n_tasks)
        rows = random_start(found, min(dimension, max(self._data.n_tasks, 2)), rng)
        items = Items(found, given.expected.total, released.counts.stddev, rows)
        self._narrows = isinstance(given.weights, SplitEqually) and not self._settings.feature_prior
        return self._weights(given.weights, items), items

    def _weights(self, given: Weighting, items: Items) -> Weighting:
        """Equal weights go to the tasks whose vectors can be learned, each user's squares still summing to 1.

        Those of another allocation stay, and all of them if features are to say what vectors of rare tasks are.
        """
        if not self._narrows:
            return given
        dimension = items.rows.mean.shape[1]
        self._focus = self._focus.narrowed(items.popularity, items.exposure, self._session.budget.mu, dimension)
        return self._focus.weights(given.neighbours)

    def _round_shares(self) -> Sequence[Share]:
        shares = Power(self._made.ramp / 2).shares(self._made.number)
        return self._session.plan(rounds=[self._left * share for share in shares]).several("rounds")

    @property
    def _left(self) -> float:
        """What is left of the budget when votes have been paid for."""
        return max(1 - self._session.spent - self._reserved, 0.0)

    def _votes_share(self) -> Share:
        return self._session.plan(votes=self._settings.votes_share).one("votes")

    def _number_of_users(self) -> float:
        if self._known_users is not None:
            return float(self._known_users)
        share = self._session.plan(users=self._settings.users_share).one("users")
        return release_number_of_users(self._users, self._session, self._engine, share)

    def _popularity(self, n_users: float) -> ReleasedPopularity:
        """Counts, and the same again with what they need to be far above their noise where rankings begin."""
        released = self._first_popularity(n_users)
        head = np.sort(released.posterior.mean)[-min(_HEAD, self._data.n_tasks)]
        wanted = 1 / (1 + (head * self._session.budget.mu / self._settings.head) ** 2)
        further = min(_FURTHER_SHARES, key=lambda level: abs(level - wanted))
        return self._counted_again(released, further * self._left) if further else released

    def _popularity_alone(self, n_users: float, progress: Progress | None) -> ReleasedPopularity:
        """Spend everything on counts: about half of the budget on all tasks, then the rest on those that may lead."""
        report = progress or (lambda *step: None)
        report("count", 0, 3)
        released = self._first_popularity(n_users)
        report("count", 1, 3)
        further = _ON_ALL_TASKS - self._session.spent
        released = self._counted_again(released, further) if further > 0 else released
        report("count", 2, 3)
        found = self._leading(released)
        report("count", 3, 3)
        return found

    def _first_popularity(self, n_users: float) -> ReleasedPopularity:
        if self._listed is not None:  # released with the list
            return self._listed.popularity(n_users)
        share = self._session.plan(counts=self._settings.counts_share).one("counts")
        return release_popularity(self._users, self._session, self._engine, share, n_users, self._held_out)

    def _counted_again(self, before: ReleasedPopularity, fraction: float) -> ReleasedPopularity:
        share = self._session.plan(counts=fraction).one("counts")
        return release_popularity_again(self._users, self._session, self._engine, share, before, self._held_out)

    def _leading(self, before: ReleasedPopularity) -> ReleasedPopularity:
        share = self._session.plan(counts=self._left).one("counts")
        return release_leading_popularity(self._users, self._session, self._engine, share, before)

    def _with_popularity(self, items: Items, released: ReleasedPopularity) -> Items:
        return replace(items, popularity=released.posterior.mean, count_noise=released.counts.stddev)

    def _round(self, k: int, items: Items, weights: Weighting, share: Share) -> Items:
        contribution = without_held_out(TaskMoments(weights, self._user_rows(k, items)), self._held_out)
        moments = add_up_one(self._engine, self._users, contribution)
        released = self._session.release(Purpose.ITEM_VECTORS.at(round=k + 1), moments, share)
        stddev = moments.l2_sensitivity / share.mu
        return replace(items, rows=self._denoised(k, np.asarray(released), stddev, items.exposure))

    def _denoised(self, k: int, released: Floats, stddev: float, exposure: Floats) -> Denoised:
        chosen, place, last = self._settings, self._engine.kernels.place, k + 1 == self._made.number
        prior = RowPrior(exposure, chosen.least_popularity, chosen.steps, place)
        if chosen.feature_prior:
            return denoised_vectors(released, stddev, prior, self._rows)
        self._focus = self._focus.with_release(released, stddev, exposure, self._made.together)
        prior = replace(prior, steps=chosen.last_steps) if last else prior
        return denoised_together(self._focus.releases, self._focus.among, prior, gently=last)

    def _trust(self, items: Items, held_out: HeldOut) -> Trust:
        """The choice that users vote for on rows that were kept out of everything before, and are not from now on."""
        choices, share = self._offered, self._votes_share()
        losses = RankLosses(self._regressions(items).under(choices))
        votes = Votes(losses, held_out, CLIP, in_words(choices), self._session.neighbours)
        self._held_out, self._reserved = None, 0.0
        total = add_up_one(self._engine, self._users, votes)
        released = np.asarray(self._session.release(Purpose.VOTES, total, share), np.float64)
        n_voters = expected_voters(held_out, self.n_users, float(items.popularity.sum()))
        doubt = doubt_of_votes(total.l2_sensitivity / share.mu, n_voters)
        return bolder_if_alike(choices, chosen_by_votes(released, doubt, self._settings.caution), released)

    def _choices(self, n_users: float) -> tuple[Trust, ...]:
        """Return the choices of the settings; with features, also the bolder ones with weight on the features."""
        listed = self._settings.choices
        bolder = () if self._directions is None or len(listed) == 1 else listed[_CAUTIOUS:]
        if listed == ClickSettings.choices and many_voters(n_users, self._votes_share().mu):
            listed = (*listed[:_CAUTIOUS], _BETWEEN, *listed[_CAUTIOUS:])
        return (*listed, *(replace(each, feature_weight=self._settings.feature_weight) for each in bolder))

    def _user_rows(self, k: int, items: Items) -> RowsOf:
        """Every user's unit vector, from its own clicks and released values."""
        if k == 0:
            return ClickTotals(items.rows.mean)
        return ClickTastes(self._fold_in(items, Trust(self._settings.ridge, 0.0), with_features=False))

    def _fold_in(self, items: Items, trust: Trust, *, with_features: bool = True) -> FoldIn:
        return self._regressions(items, with_features=with_features).under([trust])[0]

    def _regressions(self, items: Items, *, with_features: bool = True) -> Regressions:
        directions = self._directions.values if self._directions is not None and with_features else None
        return Regressions(items, self._settings.observed, self._settings.popularity_offset, directions)

    def model(self, items: Items, trust: Trust, statement: Statement) -> ClickModel:
        """The public model."""
        regression = self._fold_in(items, trust)
        learned = {"rounds": self._made.number, "ramp": self._made.ramp, "dimension": items.rows.mean.shape[1]}
        return ClickModel(
            fold_in=regression,
            vectors=regression.features[:, 1:],
            popularity=items.popularity.astype(np.float32),
            reliability=np.clip(items.rows.resolved, 0, 1).astype(np.float32),
            task_ids=self._data.task_ids,
            statement=statement,
            settings={**asdict(self._settings), **learned, LEARNED: asdict(trust)},
            feature_map=self._feature_map(items, regression),
            categories=None if self._features is None else Categories.of(self._features, self._data.task_ids),
        )

    def _feature_map(self, items: Items, regression: FoldIn) -> FeatureMap | None:
        """Rows of items that were not there: what features say of the rows that were."""
        if self._features is None or self._rows is None:
            return None
        intercept, coefficients = linear_map(regression.features, self._rows)
        level, by_feature = linear_map(log_popularity(items.popularity), self._rows)
        return FeatureMap(
            space=self._features.space,
            intercept=intercept.astype(np.float32),
            coefficients=coefficients.astype(np.float32),
            log_popularity=np.concatenate([level, by_feature[:, 0]]),
            observation_weight=1.0,
        )
