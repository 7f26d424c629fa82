"""A private recommender for ratings, by alternating minimisation on residuals.

The plan of a fit (docs/proofs/recommend.md has the bounds):

1. overview: number of users and mean rating; popularity: weighted counts, deconvolved; how much users differ;
2. a round for item biases, then `rounds` rounds for item biases and vectors. In each, every user solves a small
   regression alone and contributes residuals times tastes, its whole part clipped; one release carries the sums of
   all tasks, a second, tiny one the moments that all tasks share. Where popularity is clear, rounds on users' choices
   come before that (`choice_rounds`): items that the same users choose are often valued alike;
3. after each round the task parameters are re-estimated from all rounds so far by empirical Bayes. Public item
   features, if given, shift the mean of that prior; their effect is fitted from the same released values. They are also
   further coordinates of the model: each user learns a taste for them alone, at no cost.

Only item parameters are published; users compute their own vectors from their own ratings.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Adaptive, Allocation
from apportion.allocation.rounds import Geometric
from apportion.data.features import ItemFeatures
from apportion.data.user_data import UnlistedData, UserData
from apportion.data.users import UserParts, Users, UsersWithoutRows
from apportion.engines import Engine, LocalEngine, add_up_one
from apportion.estimators.constructors import with_constructor
from apportion.estimators.counts import ReleasedPopularity, release_overview, release_popularity, weighed_by
from apportion.estimators.items import PrivateItems
from apportion.estimators.private import check_rating_scale
from apportion.linalg import RatingRound
from apportion.postprocessing import evidence, exposure_told, popularity
from apportion.privacy import Plan, Purpose, Session, Share, Statement
from apportion.privacy.contributions import HeldOut, RatingParts, Weighting, step_of
from apportion.recommend import choice_rounds, clip_norms, user_spread
from apportion.recommend.als import Progress
from apportion.recommend.categories import Categories
from apportion.recommend.choice_rounds import TO_PREDICT_VALUES, TO_RANK, ChoiceRounds, Choices, stands_out, takes_long
from apportion.recommend.features.prior import FeaturesEstimator
from apportion.recommend.features.ratings_items import ItemSide
from apportion.recommend.model import FoldIn, RatingModel
from apportion.recommend.overviews import Overview
from apportion.recommend.rating_settings import SHARE_FOR_VALUES, RatingSettings
from apportion.recommend.rating_state import Start, State
from apportion.recommend.rating_votes import Ballot
from apportion.recommend.variance_votes import UserVariances

Floats = NDArray[np.floating[Any]]


_SUMMARY_CLIP = 2.0
_LONGEST = 8  # of item vectors, where their length is not given
_MOST_HELD_OUT = 1  # rows of a user
_MOST_COPIED = 1 << 25  # rows; beyond it those that are not held out are copied in parts, in every pass
_MOST_VOTERS = 30_000.0  # users who hold out a row, about; more would cost time and say the same
_ROUNDS_AFTER_VOTES = 2
_ROUNDS_OF_MEANS, _GROWTH_OF_MEANS = 3, 1.5  # where there are no vectors; the later ones clip less
_CAUTIOUS = 0.1  # of the variance of tastes for features, unless users vote for it, and the least for choices


@with_constructor
class PrivateRatingRecommender(FeaturesEstimator):
    """Learns item parameters from ratings under user-level differential privacy.

    Args:
        value_range: the public scale of the values; values outside are brought into it.
        allocation: how each user divides its sensitivity over its items; None for popularity^-exponent of the settings.
        dimension: length of item vectors; None to choose it from what is released.
        rounds: number of rounds; None for the default of this budget.
        rank_by: `"value"`: recommend by predicted value. `"choice"`: by what users are likely to choose and to value,
            which takes a share of the budget, `choice_share` of the settings; see `recommend.choosing`.
        settings: all settings at once, instead of `dimension` and `rounds`.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for everything that `model_` holds. The value
    range and the features are public; the list of items is as `items` says.

    Example:
        >>> from apportion.data.synthetic import long_tailed_ratings
        >>> data, _ = long_tailed_ratings(300, 40, 4000, rank=2, rng=np.random.default_rng(0))
        >>> model = PrivateRatingRecommender(epsilon=5.0, dimension=2, rounds=2).fit(data).model_
        >>> model.vectors.shape  # items; what a user likes is solved from the user's own ratings
        (40, 2)
        >>> model.statement.epsilon
        5.0
    """

    _: KW_ONLY
    value_range: tuple[float, float] = (1.0, 5.0)
    rank_by: str = "value"
    settings: RatingSettings | None = None

    def _fit(self, data: UserData | UnlistedData, session: Session | None, progress: Progress | None) -> Self:
        low, high = self.value_range
        check_rating_scale(self.value_range)
        chosen: RatingSettings = self._chosen_settings(RatingSettings.for_budget)
        settings = chosen.ranking_by(self.rank_by)
        public = [f"the scale of the values, {low:g} to {high:g}", *self._public_features()]
        entered = self._entered(session, data, public, settings.counts_share, LocalEngine.in_whole_numbers(np.float64))
        session = entered.session
        policy = self.allocation or Adaptive(settings.exponent, settings.popularity_floor)
        fit = _Fit(
            entered.data, session, entered.engine, settings, policy, self.value_range, entered.n_users, self.features,
            entered.items,
        )  # fmt: skip
        state = fit.run(np.random.default_rng(self.random_state), progress)
        self.statement_, self.n_users_ = session.statement(), state.start.n_users
        self.model_ = fit.model(state, self.statement_, by_choice=self.rank_by == "choice")
        return self


class _Fit:
    """One fit: private data on one side, released state on the other, the session in between."""

    def __init__(
        self,
        data: UserData,
        session: Session,
        engine: Engine,
        settings: RatingSettings,
        allocation: Allocation,
        value_range: tuple[float, float],
        known_users: float | None,
        features: ItemFeatures | None,
        listed: PrivateItems | None,
    ) -> None:
        self._items = ItemSide(settings, features, data.task_ids)
        self._features = features
        self._data = data
        self._held_out: HeldOut | None = None
        self._choices: Choices | None = None
        self._votes = settings.votes_share > 0 and settings.rounds >= _ROUNDS_AFTER_VOTES
        self._learns_spread = self._votes and settings.spread_share > 0
        if self._votes:
            self._items = self._items.trusting(_CAUTIOUS * settings.taste_variance)
        self._users = data.as_users
        self._spread = UserVariances(settings.bias_variance, settings.scale_variance, settings.latent_variance)
        self._allocation = allocation
        self._session = session
        self._engine = engine
        self._settings = settings
        self._range = value_range
        self._known_users = known_users
        self._listed = listed
        self._unit = (value_range[1] - value_range[0]) / 4

    def run(self, rng: np.random.Generator, progress: Progress | None) -> State:
        """Make every release in order; return what was learned."""
        overview = self._overview()
        plan = self._plan(overview.share + self._choice_share)
        released = self._popularity(plan, overview.n_users)
        if self._choice_share:
            plan = self._after_choices(released, overview.n_users, rng)
        start, weights = self._start(plan, overview, released)
        if not start.dimension:
            plan = self._plan_of_means(plan)
        n_rounds, state = len(plan.several("rounds")), None
        for k, shares in enumerate(zip(plan.several("rounds"), plan.several("moments"), strict=True)):
            if progress:
                progress("round", k, n_rounds)
            after_votes = _ROUNDS_AFTER_VOTES if start.dimension else 1
            if self._votes and state is not None and k == n_rounds - after_votes:
                if start.dimension:
                    self._vote_on_variances(state, plan)
                self._vote_on_features(state, plan)
                self._users = self._data.as_users
            state = self._round(k, start, state, weights, shares, rng, last=k == n_rounds - 1)
        if progress:
            progress("round", n_rounds, n_rounds)
        assert state is not None
        return state

    @property
    def _choice_share(self) -> float:
        """The most for choices: a share of what a private list leaves."""
        given, taken = self._settings.choice_share, 0.0 if self._listed is None else self._listed.taken
        return (SHARE_FOR_VALUES * self._votes if given is None else given) * (1 - taken)

    def _plan(self, taken: float, *, counted: bool = False) -> Plan:
        """Divide what is left beside what was taken; popularity is part of it unless it is counted already."""
        chosen = self._settings
        fixed = {"norms": chosen.norms_share}
        if not counted and self._listed is None:
            fixed["counts"] = chosen.counts_share
        elif not counted and self._listed is not None:  # popularity was released with the list
            taken += self._listed.taken
        if self._votes:
            fixed["votes"] = chosen.votes_share
        if self._learns_spread:
            fixed["spread"] = chosen.spread_share
        if self._votes and self._features is not None:
            fixed["feature_votes"] = chosen.feature_votes_share
        n_rounds = chosen.rounds + 1
        left = 1 - chosen.moments_share - sum(fixed.values()) - taken
        rounds = [left * share for share in Geometric.growing(chosen.growth).shares(n_rounds)]
        return self._session.plan(**fixed, moments=[chosen.moments_share / n_rounds] * n_rounds, rounds=rounds)

    def _plan_of_means(self, plan: Plan) -> Plan:
        """Some rounds for biases with all that is left; only with features some rows are held out, to vote on them."""
        votes = self._votes and self._features is not None
        kept = {"feature_votes": plan.one("feature_votes").fraction} if votes else {}
        if not votes:
            self._users = self._data.as_users
        left, moments = 1 - self._session.spent - sum(kept.values()), self._settings.moments_share
        n_rounds = min(_ROUNDS_OF_MEANS, self._settings.rounds + 1)
        rounds = [(left - moments) * share for share in Geometric.growing(_GROWTH_OF_MEANS).shares(n_rounds)]
        return self._session.plan(**kept, moments=[moments / n_rounds] * n_rounds, rounds=rounds)

    def _overview(self) -> Overview:
        """Return the number of users and the mean rating, released a second time if there are few users."""
        parts, share = (self._users, self._session, self._engine), self._settings.overview_share
        given, mu = (self._range, self._known_users), self._session.budget.mu
        first = self._session.plan(overview=share).one("overview")
        found = Overview(*release_overview(*parts, first, *given), share)
        wanted = found.wanted_share(mu, self._settings.most_overview_share)
        if wanted > 2 * share:
            further = self._session.plan(overview=wanted - share).one("overview")
            again = release_overview(*parts, further, *given, Purpose.OVERVIEW.at(step=2))
            found = found.with_another(Overview(*again, wanted - share))
        return found.with_likely_mean(self._range, mu)

    def _ballot(self, state: State) -> Ballot:
        assert self._held_out is not None
        voters = state.start.n_users * self._held_out.voters
        parts = (self._data.as_users, self._engine, self._session, self._held_out)
        return Ballot(*parts, voters, self._range, state.start.centre, self._unit)

    def _vote_on_variances(self, state: State, plan: Plan) -> None:
        self._spread = self._ballot(state).on_variances(self._spread, state.known, plan.one("votes"))

    def _vote_on_features(self, state: State, plan: Plan) -> None:
        """Let users vote on their tastes for public features, if there are any."""
        if self._features is not None:
            usual = self._settings.taste_variance
            tastes = [_CAUTIOUS * usual, usual]
            fold_ins = [self._items.with_tastes(self._fold_in(*state.known), taste) for taste in tastes]
            chosen = self._ballot(state).on_features(fold_ins, plan.one("feature_votes"))
            self._items = self._items.trusting(tastes[chosen])

    def _popularity(self, plan: Plan, n_users: float) -> ReleasedPopularity:
        users = self._users = self._without_held_out(n_users)
        if self._listed is not None:
            return self._listed.popularity(n_users)
        return release_popularity(users, self._session, self._engine, plan.one("counts"), n_users)

    def _after_choices(self, popularity: ReleasedPopularity, n_users: float, rng: np.random.Generator) -> Plan:
        """Learn choices, whose vectors are features of the items from then on, beside public ones.

        If the settings leave it open whether choices are learned, released popularity decides.

        Returns:
            A plan for what is left.
        """
        open_ = self._settings.choice_share is None
        known = (popularity.posterior.mean, n_users, self._session.budget.mu)
        clear = stands_out(*known)
        if not open_ or (clear and not takes_long(n_users)):
            parts = (self._users_at_once(), self._data.as_users, self._session, self._engine, self._held_out)
            rounds = ChoiceRounds(*parts, n_users, self._range, TO_PREDICT_VALUES if open_ else TO_RANK)
            self._choices = rounds.run(popularity, self._choice_share, rng)
            self._trust_choices(self._choices, 1.0 if clear else max(_CAUTIOUS, choice_rounds.clarity(*known)))
        return self._plan(self._session.spent, counted=True)

    def _trust_choices(self, choices: Choices, how_far: float) -> None:
        """Take the vectors for features of the items, if users voted for them."""
        if choices.vectors_are_trusted:
            variance = how_far * self._settings.choice_taste_variance
            self._items = self._items.with_choices(choices.fold_in.features[:, 1:], variance)

    def _start(self, plan: Plan, overview: Overview, released: ReleasedPopularity) -> tuple[Start, Weighting]:
        n_users, centre = overview.n_users, overview.centre
        given = weighed_by(self._allocation, self._users, released, self._session)
        found, expected = released.posterior, given.expected
        exposure = popularity.exposure(found, expected.total, expected.typical, n_users)
        logs = popularity.log_popularity(found)
        covariates = np.stack([np.ones_like(logs), logs], axis=1)
        residuals = self._residuals(plan, centre, exposure)
        all_items = np.ones(len(logs), np.bool_)
        start = Start(n_users, centre, exposure, found, covariates, residuals, _LONGEST, all_items)
        return self._with_lengths(plan, self._learn_user_spread(plan, start)), given.weights

    def _without_held_out(self, n_users: float) -> UserParts:
        """Return the users without the rows that they will vote with; the overview and a private list saw those."""
        if not self._votes:
            return self._users
        voters = min(1.0, _MOST_VOTERS / max(n_users, 1.0))
        self._held_out = HeldOut(self._settings.held_out, most=_MOST_HELD_OUT, voters=voters)
        users = self._users
        if isinstance(users, Users) and users.n_rows > _MOST_COPIED and not self._engine.kernels.rows_travel:
            return UsersWithoutRows(users, ~self._held_out.of(users))
        return users.mapped(self._held_out.kept)

    def _users_at_once(self) -> UserParts:
        """Return the users for the rounds of choices, whose sums depend on how users are cut if they are not exact."""
        if isinstance(self._users, UsersWithoutRows) and not self._engine.exact and self._held_out is not None:
            return self._data.as_users.mapped(self._held_out.kept)
        return self._users

    def _residuals(self, plan: Plan, centre: float, exposure: popularity.Exposure) -> clip_norms.Residuals:
        """Return the clip norm, from a release about users' residuals unless it is given."""
        if self._settings.clip is not None:
            return clip_norms.unreleased(self._settings.clip)
        share = plan.one("norms")
        part = clip_norms.ClippedAway(self._range, centre, self._unit).contribution(self._session.neighbours)
        total = add_up_one(self._engine, self._users, part)
        released = self._session.release(Purpose.NORMS, total, share)
        return clip_norms.choose(released, total.l2_sensitivity / share.mu, exposure, _mu_of_rounds(plan))

    def _learn_user_spread(self, plan: Plan, start: Start) -> Start:
        """Take the variances between and within users from a release, unless all settings of users are fixed."""
        if not self._learns_spread:
            return start
        parts = (self._users, self._session, self._engine, plan.one("spread"), self._range, start.centre, self._unit)
        rows, known = start.typical_root**2, start.residuals.variance
        found = user_spread.released_spread(*parts, start.n_users, rows, known.mean)
        self._spread = replace(self._spread, bias=found.of_biases(self._spread.bias))
        return replace(start, residuals=replace(start.residuals, variance=found.within_users(known)))

    def _with_lengths(self, plan: Plan, start: Start) -> Start:
        """Choose the length of vectors, as given or as far as items stand out of the noise, and who gets one."""
        known = start.exposure, start.residuals.clip_norm, _mu_of_rounds(plan)
        given = self._settings.dimension
        length = clip_norms.dimension_for(*known, start.typical_root**2) if given is None else given
        have_vectors = clip_norms.worth_a_vector(*known)
        return replace(start, dimension=min(length, self._data.n_tasks), have_vectors=have_vectors)

    def _round(
        self,
        k: int,
        start: Start,
        before: State | None,
        weights: Weighting,
        shares: tuple[Share, Share],
        rng: np.random.Generator,
        *,
        last: bool,
    ) -> State:
        this_round = self._round_numbers(k, start, before, rng)
        part = RatingParts(this_round, weights, "a round on ratings")
        task_sums, user_sums = self._engine.add_up(self._users, [part])
        released = self._session.release(Purpose.ITEM_SUMS.at(round=k), task_sums, shares[0])
        moments = evidence.shared_moments(
            self._session.release(Purpose.SHARED_MOMENTS.at(round=k), user_sums, shares[1]),
            user_sums.l2_sensitivity / shares[1].mu,
            start.beliefs(this_round.full_vote) if before is None else before.beliefs,
        )
        stddev = task_sums.l2_sensitivity / shares[0].mu
        return self._learn(k, start, before, this_round, moments, released, stddev, last=last)

    def _round_numbers(self, k: int, start: Start, before: State | None, rng: np.random.Generator) -> RatingRound:
        """What users are told at the beginning of round k: biases first, then random tastes, then estimates."""
        chosen = self._settings
        latent = start.dimension if k else 0
        parameters = np.zeros((self._data.n_tasks, 1 + latent))
        variances = np.zeros_like(parameters)
        if before is not None:
            known = before.posterior.mean.shape[1]
            parameters[:, :known] = before.posterior.mean
            variances[:, :known] = before.posterior.variance
        if k == 1 and latent:
            parameters[:, 1:] = chosen.start_scale * self._first_vectors(start, parameters[:, 0], rng)
        residual = start.residuals.variance.mean if before is None else before.residual_variance
        fold_in = self._fold_in(parameters, variances, residual)
        return RatingRound(
            features=np.asarray(fold_in.features, np.float64),
            trust=np.asarray(fold_in.observation_weights, np.float64),
            base=np.asarray(fold_in.base, np.float64),
            base_rhs=np.asarray(fold_in.base_rhs, np.float64),
            scales=chosen.row_scales(latent),
            value_range=self._range,
            centre=start.centre,
            unit=self._unit,
            clip_norm=start.residuals.clip_norm,
            step=step_of(start.residuals.clip_norm),
            summary_clip=_SUMMARY_CLIP,
            summary_step=step_of(_SUMMARY_CLIP),
            starting=k == 0 or (k == 1 and latent > 0),
            start_norm=float(np.sqrt(chosen.start_level * latent)),
            vector_weights=start.have_vectors.astype(np.float64) if latent else None,
        )

    def _first_vectors(self, start: Start, biases: Floats, rng: np.random.Generator) -> Floats:
        """Return random directions, except those known to matter."""
        vectors = rng.standard_normal((self._data.n_tasks, start.dimension))
        self._items.first_vectors(vectors, start.covariates[:, 1], biases)
        return vectors

    def _fold_in(self, parameters: Floats, variances: Floats, residual: float) -> FoldIn:
        return self._spread.fold_in(parameters, variances, residual)

    def _learn(
        self,
        k: int,
        start: Start,
        before: State | None,
        this_round: RatingRound,
        moments: evidence.SharedMoments,
        released: Floats,
        stddev: float,
        *,
        last: bool,
    ) -> State:
        """Post-processing of one round: all evidence so far, then the posterior of every task."""
        around = this_round.features[:, 1:].copy()
        if k == 1:
            around[:, 1:] = 0.0  # residuals of that round were taken around biases alone
        this = evidence.of_round(released, stddev, this_round.scales, moments, around, start.exposure)
        rounds = (*(before.rounds if before else ()), this)
        combined = evidence.combine(rounds, start.exposure, moments.clipped_variance, start.have_vectors)
        known = None
        if before is not None:
            biases = exposure_told.with_likely_spread(combined, before.biases)
            combined, known = exposure_told.told(combined, biases), before.spreading(biases.spread)
        steps = self._settings.last_steps if last and this_round.width > 1 else self._settings.steps
        found = self._items.posterior(combined, start.covariates, known, this_round.width, steps)
        return State(start, found, moments.residual_variance, rounds, moments.beliefs)

    def model(self, state: State, statement: Statement, *, by_choice: bool) -> RatingModel:
        """Return the public model, in the units of the values; it ranks by choice if asked to."""
        mean, variance = state.posterior.mean, state.posterior.variance
        spread = np.diag(state.posterior.prior.covariance)
        return RatingModel(
            fold_in=self._items.fold_in(self._fold_in(mean, variance, state.residual_variance), self._unit),
            vectors=self._items.vectors(mean),
            popularity=state.start.popularity.mean.astype(np.float32),
            reliability=np.clip(1 - variance.sum(axis=1) / max(float(spread.sum()), 1e-9), 0, 1).astype(np.float32),
            task_ids=self._data.task_ids,
            statement=statement,
            offset=state.start.centre + self._unit * state.offset(self._spread.bias),
            value_range=self._range,
            settings=asdict(self._settings),
            feature_map=self._items.feature_map(
                state.posterior,
                state.start.covariates[:, 1],
                state.start.popularity.mean,
                lambda mean, variance: self._fold_in(mean, variance, state.residual_variance),
                self._unit,
            ),
            categories=None if self._features is None else Categories.of(self._features, self._data.task_ids),
            choice=self._choices.fold_in if by_choice and self._choices is not None else None,
        )


def _mu_of_rounds(plan: Plan) -> float:
    """The privacy parameter of all rounds together."""
    return float(np.sqrt(sum(share.mu**2 for share in plan.several("rounds"))))
