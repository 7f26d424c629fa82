"""A private recommender for clicks, by noisy subspace iteration between users and tasks.

The plan of a fit (docs/proofs/recommend.md has the bounds):

1. the number of users, and popularity t by weighted counts, deconvolved;
2. `rounds` rounds. Each user j computes a unit vector x_j from its own clicks and the task vectors released so far;
   the release is B = Σ_j w_j x_jᵀ with w_ij = 1/√n^j, whose sensitivity is 1 whatever the number of tasks or the
   dimension. Rows of B are denoised by empirical Bayes and become the next task vectors;
3. the last vectors, with popularity as a first coordinate, are the model. A user folds in by a regression in
   which every task counts as unobserved (the term Σ_i p_i p_iᵀ, which is public) and the user's own clicks count more.

Public features of the items, where given, are further coordinates of the model: a taste for them is learned by each
user alone and costs nothing. If asked for, they also move the mean of the prior of task vectors.

No per-task matrix is released: at these budgets the vectors B_i are worth far more than Grams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Allocation, EqualSplit
from apportion.allocation.rounds import Power
from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.data.users import Users
from apportion.engines import Engine, LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.estimators.counts import release_number_of_users, release_popularity, weighed_by
from apportion.estimators.items import Items, PrivateItems
from apportion.postprocessing import feature_rows
from apportion.postprocessing.low_rank import Denoised, denoise_rows
from apportion.privacy import NoiseSource, Purpose, Rows, Session, Share, Statement
from apportion.privacy.contributions import Kernels, RowsOf, TaskMoments, Weighting
from apportion.recommend.als import Progress
from apportion.recommend.categories import Categories
from apportion.recommend.features.new_items import FeatureMap
from apportion.recommend.features.prior import (
    FeaturesEstimator,
    leading_directions,
    linear_map,
    log_popularity,
    regressors,
)
from apportion.recommend.model import ClickModel, FoldIn

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ClickSettings:
    """Everything that can be tuned; all of it public.

    Attributes:
        rounds: number of rounds.
        dimension: length of task vectors; None to compute it from the budget and the released number of users.
        users_share: share of the budget for the number of users, unless that is declared public.
        counts_share: share for popularity.
        ramp: round r gets a share proportional to r^ramp.
        steps: EM steps of the denoising.
        observed: extra weight of observed pairs in a user's regression.
        ridge: ridge of that regression, in units of the mean eigenvalue.
        popularity_offset: task vectors are divided by the root of popularity plus this many times its noise.
        least_popularity: fraction of the mean popularity below which a task's prior variance does not fall.
        feature_directions: with features, how many directions of them a user's taste is for, beside learned vectors.
        feature_weight: size of these directions, relative to the learned vectors.
        feature_prior: whether features also move the mean of the prior of task vectors.
    """

    rounds: int = 4
    dimension: int | None = None
    users_share: float = 0.002
    counts_share: float = 0.08
    ramp: float = 2.0
    steps: int = 5
    observed: float = 2.0
    ridge: float = 0.2
    popularity_offset: float = 3.0
    least_popularity: float = 0.03
    feature_directions: int = 32
    feature_weight: float = 0.7
    feature_prior: bool = False

    @classmethod
    def for_budget(cls, mu: float) -> ClickSettings:
        """The defaults; the dimension follows from the budget once the number of users is known."""
        return cls()


def default_dimension(mu: float, n_users: float, n_tasks: int) -> int:
    """How many directions can stand out of the noise: (μ n / √m)^0.6, between 2 and 128.

    Developed on MovieLens. Data with a handful of tastes want fewer, or a user's few clicks are spread over too many
    directions: give `dimension` if you know better from public knowledge.
    """
    return int(np.clip(round((mu * n_users / np.sqrt(n_tasks)) ** 0.6), 2, min(128, max(2, n_tasks // 4))))


class PrivateClickRecommender(FeaturesEstimator):
    """Learns task vectors from clicks under user-level differential privacy.

    Args:
        epsilon: ε of the whole fit.
        delta: δ of the whole fit.
        n_users: a number of users that is declared public; None to release it.
        features: public item features. They shift the prior mean of each item's vector. None to know items by id alone.
        items: which items there are. `"private"`: a list is released with their popularity, of those that enough users
            have. A list of ids: public. `"from-data"`: the items that occur, declared public, which reveals who has
            an item that nobody else has. None: the public list of the data if they have one, else `"private"`.
        allocation: how each user divides its sensitivity over its items; None for equally.
        dimension: length of task vectors; None for the default of this budget.
        rounds: number of rounds; None for the default.
        settings: all settings at once.
        public: further sentences for the statement on what is assumed public, such as how rows were filtered.
        window: the time span of the data, for the statement.
        tuning: how settings were chosen, for the statement, if any was given.
        noise: `"secure"` (default, from the operating system), `"exact"` (exact arithmetic as well), or a source.
        engine: where sums are formed; None for this machine's processors.
        random_state: seed of the public initial task vectors.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for everything that `model_` holds. The features
    are public; the list of items is as `items` says.

    Example:
        >>> from apportion.data.synthetic import long_tailed_clicks
        >>> data, _ = long_tailed_clicks(300, 40, 4000, rank=2, rng=np.random.default_rng(0))
        >>> model = PrivateClickRecommender(epsilon=5.0, dimension=2, rounds=2).fit(data).model_
        >>> model.n_tasks, model.statement.epsilon
        (40, 5.0)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        n_users: int | None = None,
        features: ItemFeatures | None = None,
        items: Items = None,
        allocation: Allocation | None = None,
        dimension: int | None = None,
        rounds: int | None = None,
        settings: ClickSettings | None = None,
        public: Sequence[str] = (),
        window: str = "not declared",
        tuning: str | None = None,
        noise: NoiseSource | str | None = None,
        engine: Engine | None = None,
        random_state: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_users = n_users
        self.features = features
        self.items = items
        self.allocation = allocation
        self.dimension = dimension
        self.rounds = rounds
        self.settings = settings
        self.public = public
        self.window = window
        self.tuning = tuning
        self.noise = noise
        self.engine = engine
        self.random_state = random_state

    def fit(self, data: Interactions, *, session: Session | None = None, progress: Progress | None = None) -> Self:
        """Spend the budget on the data; afterwards `model_` may be released with its `statement_`.

        A session that is given brings its own budget, noise and window; those of the estimator are then not used.
        """
        if data.n_tasks < 2:
            raise InputError(f"Expected a list of at least 2 tasks to rank, got {data.n_tasks}.")
        settings: ClickSettings = self._chosen_settings(ClickSettings.for_budget)
        entered = self._entered(session, data, self._public_features(), settings.counts_share, LocalEngine())
        session, policy = entered.session, self.allocation or EqualSplit()
        fit = _Fit(
            entered.data, session, entered.engine, settings, policy, entered.n_users, self.features, entered.items
        )
        state = fit.run(np.random.default_rng(self.random_state), progress)
        self.statement_ = session.statement()
        self.model_ = fit.model(state, self.statement_)
        return self


@dataclass(frozen=True)
class _State:
    """What is known of the tasks; all released."""

    popularity: NDArray[np.float64]
    exposure: NDArray[np.float64]
    count_noise: float
    rows: Denoised


@dataclass(frozen=True, eq=False)
class _Totals:
    """The sum of the vectors of a user's own tasks, scaled to length 1."""

    vectors: Floats
    norm: float = 1.0

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        return Rows.scaled(kernels.total_of_users(users, self.vectors), self.norm)


@dataclass(frozen=True, eq=False)
class _Tastes:
    """What a user's own regression says of its taste, scaled to length 1."""

    fold_in: FoldIn
    norm: float = 1.0

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        solved = self.fold_in.solve(kernels, users, np.ones(users.n_rows, np.float32))
        return Rows.scaled(solved[:, 1:], self.norm)


class _Fit:
    """One fit: private data on one side, released state on the other, the session between them."""

    def __init__(
        self,
        data: Interactions,
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

    def run(self, rng: np.random.Generator, progress: Progress | None) -> _State:
        """Make every release, in order; return what was learned."""
        chosen = self._settings
        fixed = {} if self._known_users is not None else {"users": chosen.users_share}
        if self._listed is None:  # else popularity is released already
            fixed["counts"] = chosen.counts_share
        left = 1 - sum(fixed.values()) - (0.0 if self._listed is None else self._listed.taken)
        plan = self._session.plan(**fixed, rounds=[left * s for s in Power(chosen.ramp / 2).shares(chosen.rounds)])
        parts = self._users, self._session, self._engine
        n_users = float(self._known_users or release_number_of_users(*parts, plan.one("users")))
        if self._listed is None:
            released = release_popularity(*parts, plan.one("counts"), n_users)
        else:
            released = self._listed.popularity(n_users)
        given = weighed_by(self._allocation, self._users, released, self._session)
        found, count_noise = released.posterior.mean, released.counts.stddev
        dimension = chosen.dimension or default_dimension(self._session.budget.mu, n_users, self._data.n_tasks)
        state = _State(found, given.expected.total, count_noise, _random_start(found, dimension, rng))
        for k, share in enumerate(plan.several("rounds")):
            if progress:
                progress("round", k, chosen.rounds)
            state = self._round(k, state, given.weights, share)
        if progress:
            progress("round", chosen.rounds, chosen.rounds)
        return state

    def _round(self, k: int, state: _State, weights: Weighting, share: Share) -> _State:
        moments = add_up_one(self._engine, self._users, TaskMoments(weights, self._user_rows(k, state)))
        released = self._session.release(Purpose.ITEM_VECTORS.at(round=k + 1), moments, share)
        vectors = np.asarray(released, np.float64)
        found = state.exposure
        vectors -= np.outer(found, found @ vectors) / (found @ found)
        spread = np.maximum(found, self._settings.least_popularity * found.mean())
        return replace(state, rows=self._denoised(vectors, moments.l2_sensitivity / share.mu, spread))

    def _denoised(self, vectors: Floats, stddev: float, spread: Floats) -> Denoised:
        if self._rows is None or not self._settings.feature_prior:
            return denoise_rows(vectors, stddev, spread, self._settings.steps)
        about = regressors(np.ones((len(vectors), 1)), self._rows)
        return feature_rows.denoise_rows(vectors, stddev, spread, about, self._settings.steps)

    def _user_rows(self, k: int, state: _State) -> RowsOf:
        """Every user's unit vector, from its own clicks and released values."""
        return _Totals(state.rows.mean) if k == 0 else _Tastes(_fold_in(state, self._settings))

    def model(self, state: _State, statement: Statement) -> ClickModel:
        """The public model."""
        tastes = None if self._directions is None else self._directions.values
        fold_in = _fold_in(state, self._settings, tastes)
        return ClickModel(
            fold_in=fold_in,
            vectors=fold_in.features[:, 1:],
            popularity=state.popularity.astype(np.float32),
            reliability=np.clip(state.rows.resolved, 0, 1).astype(np.float32),
            task_ids=self._data.task_ids,
            statement=statement,
            settings={**asdict(self._settings), "dimension": state.rows.mean.shape[1]},
            feature_map=self._feature_map(state, fold_in),
            categories=None if self._features is None else Categories.of(self._features, self._data.task_ids),
        )

    def _feature_map(self, state: _State, fold_in: FoldIn) -> FeatureMap | None:
        """Rows of items that were not there: what features say of the rows that were."""
        if self._features is None or self._rows is None:
            return None
        intercept, coefficients = linear_map(fold_in.features, self._rows)
        level, by_feature = linear_map(log_popularity(state.popularity), self._rows)
        return FeatureMap(
            space=self._features.space,
            intercept=intercept.astype(np.float32),
            coefficients=coefficients.astype(np.float32),
            log_popularity=np.concatenate([level, by_feature[:, 0]]),
            observation_weight=1.0,
        )


def _random_start(found: Floats, dimension: int, rng: np.random.Generator) -> Denoised:
    """Random vectors, longer for popular tasks, that cancel out for a user of average taste."""
    vectors = rng.standard_normal((len(found), dimension)) * np.sqrt(found)[:, None]
    vectors -= found @ vectors / found.sum()
    return Denoised(vectors, np.zeros(len(found)))


def _fold_in(state: _State, chosen: ClickSettings, directions: Floats | None = None) -> FoldIn:
    """A user's regression on task features (popularity, vector, directions), scaled to a mean square length of 1.

    Every pair pulls towards 0 with weight 1, an observed one towards 1 with weight `observed` beside that; the ridge
    spares popularity. Directions of public features are as long together as the vectors, times `feature_weight`.
    """
    scale = 1 / np.sqrt(state.popularity + chosen.popularity_offset * state.count_noise)
    features = np.concatenate([state.popularity[:, None], state.rows.mean], axis=1) * scale[:, None]
    learned = features.shape[1] - 1
    if directions is not None and directions.shape[1]:
        public = directions * (np.sqrt(state.popularity) * scale)[:, None]
        size = np.sqrt(np.square(features[:, 1:]).sum() / max(float(np.square(public).sum()), 1e-12))
        features = np.concatenate([features, chosen.feature_weight * size * public], axis=1)
    features *= np.sqrt(len(features) / np.square(features).sum())
    gram = features.T @ features
    penalty = chosen.ridge * np.trace(gram[1:, 1:]) / learned
    base = (gram + np.diag([0.0] + [penalty] * (len(gram) - 1))) / chosen.observed
    ones = np.ones(len(features), np.float32)
    return FoldIn(features.astype(np.float32), ones, base.astype(np.float32), np.zeros(len(base), np.float32))
