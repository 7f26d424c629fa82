"""Private alternating minimisation with exchangeable parts: the item update, and the allocation of each user's budget.

The six methods of the paper's Table 2 are two updates times three allocations. In each round, every user solves its own
ridge regression exactly, its vector is clipped, and the items are updated from what is released. Unlike
`PrivateRatingRecommender` and `PrivateClickRecommender`, this has no biases and no empirical Bayes: it is a baseline
for them, and a place to try updates and allocations.

Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023), Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, is_dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Adaptive, Allocation, Expected, ReleasedCounts
from apportion.allocation.rounds import Geometric
from apportion.data import Interactions
from apportion.engines import Engine, LocalEngine
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.counts import allocated, release_number_of_users, release_overview
from apportion.estimators.private import InteractionsEstimator, check_rating_scale
from apportion.privacy import Session, Share, Statement
from apportion.privacy.contributions import Weighting
from apportion.published.skew.updates import ItemUpdate, RawLabels, Round, Shares, SufficientStatistics, UserVectors
from apportion.recommend.als import Progress
from apportion.recommend.model import ClickModel, FoldIn, RatingModel

Floats = NDArray[np.floating[Any]]
Kind = Literal["ratings", "clicks"]
_LARGEST = 1e15  # limit of an item's coordinate, whatever was released, so that users' regressions stay finite


@with_constructor
class AlternatingMinimisation(InteractionsEstimator):
    """Matrix factorisation under user-level differential privacy, in the form of the paper's Algorithm 3.

    Args:
        kind: "ratings" to predict values, "clicks" to rank tasks.
        update: how items are updated: `SufficientStatistics` or `GradientDescent`.
        allocation: how each user's sensitivity is divided over its tasks; see `apportion.allocation`.
        dimension: length of item and user vectors.
        rounds: number of alternations.
        growth: ratio of the budgets of consecutive rounds.
        user_norm: user vectors are clipped to this norm.
        user_ridge: ridge of the users' own regressions.
        start_scale: size of the random initial item vectors.
        unobserved: for clicks, the weight of every pair towards 0 relative to an observed one.
        balanced: give every task, instead of every observation, the same weight in users' regressions: an observation
            has the inverse of its task's released count as weight.
        overview_share: share of the budget for the number of users and the mean value.
        counts_share: share for what the allocation releases.
        value_range: the public scale of the values.
        random_state: seed of the public initial item vectors.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for everything that `model_` holds. The list of
    tasks and the value range are public. With an allocation for a public graph it is for replacing one user's values.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    kind: Kind = "ratings"
    update: ItemUpdate | None = None
    allocation: Allocation | None = None
    dimension: int = 8
    rounds: int = 3
    growth: float = 1.0
    user_norm: float = 1.0
    user_ridge: float = 1.0
    start_scale: float = 0.3
    unobserved: float = 0.1
    balanced: bool = False
    overview_share: float = 0.005
    counts_share: float = 0.1
    n_users: int | None = None
    value_range: tuple[float, float] = (1.0, 5.0)
    random_state: int = 0

    def fit(self, data: Interactions, *, session: Session | None = None, progress: Progress | None = None) -> Self:
        """Spend the budget on the data. Afterwards `model_` may be released with its `statement_`.

        A given session brings its own budget, noise and window, which replace those of the estimator.
        """
        self._check(data)
        session = self._declared(session, data, self._public_values())
        fit = _Fit(self, data, session, self._engine_or(LocalEngine(), session))
        items = fit.run(np.random.default_rng(self.random_state), progress)
        self.statement_ = session.statement()
        self.model_ = fit.model(items, self.statement_)
        return self

    def _check(self, data: Interactions) -> None:
        if self.kind not in ("ratings", "clicks"):
            raise InputError(f"Expected kind to be 'ratings' or 'clicks', got {self.kind!r}.", argument="kind")
        for name in ("dimension", "rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"Expected {name} of at least 1, got {getattr(self, name)}.", argument=name)
        for name in ("growth", "user_norm", "user_ridge", "start_scale"):
            if not getattr(self, name) > 0:
                raise InputError(f"Expected {name} > 0, got {getattr(self, name)}.", argument=name)
        if self.kind == "clicks" and not self.unobserved > 0:
            raise InputError(f"Expected unobserved > 0 for clicks, got {self.unobserved}.", argument="unobserved")
        check_rating_scale(self.value_range)
        if data.n_tasks < 2:
            raise InputError(f"Expected a list of at least 2 tasks, got {data.n_tasks}.", argument=None)

    def _public_values(self) -> list[str]:
        low, high = self.value_range
        return [f"the scale of the values, {low:g} to {high:g}"] if self.kind == "ratings" else []


class _Fit:
    """One fit: private data on one side, released items on the other, the session in between."""

    def __init__(self, chosen: AlternatingMinimisation, data: Interactions, session: Session, engine: Engine) -> None:
        self._chosen = chosen
        self._data = data
        self._users = data.as_users
        self._session = session
        self._engine = engine
        self._clicks = chosen.kind == "clicks"
        self._update: ItemUpdate = chosen.update or SufficientStatistics()
        if type(self) is _Fit and hasattr(self._update, "for_items"):
            raise InputError(
                "Expected an update without an encoder; EncoderMinimisation is for updates with one.", argument="update"
            )
        self._allocation: Allocation = chosen.allocation or Adaptive()
        self._centre = 0.0
        self._observation_weights = np.ones(data.n_tasks, np.float32)

    def run(self, rng: np.random.Generator, progress: Progress | None) -> NDArray[np.float64]:
        """Make every release in order; return the item vectors."""
        chosen = self._chosen
        plan, rounds = self._plan()
        n_users, self._centre = self._overview(plan["overview"])
        given = allocated(self._users, self._allocation, self._session, self._engine, plan["counts"], n_users)
        weights, expected, counts = given.weights, given.expected, given.counts
        if chosen.balanced:
            self._observation_weights = _inverse_counts(counts)
        items = chosen.start_scale * rng.standard_normal((self._data.n_tasks, chosen.dimension))
        items /= np.sqrt(chosen.dimension)
        for k, shares in enumerate(rounds):
            if progress:
                progress("round", k, chosen.rounds)
            items = self._update(self._round(k, weights, expected, items), self._session, self._engine, shares)
            items = np.clip(np.nan_to_num(items), -_LARGEST, _LARGEST)
        if progress:
            progress("round", chosen.rounds, chosen.rounds)
        self._popularity = counts[0].total if counts else expected.total
        return items

    def _plan(self) -> tuple[dict[str, Any], list[Shares]]:
        chosen = self._chosen
        needs_overview = chosen.n_users is None or not self._clicks
        overview = chosen.overview_share if needs_overview else 0.0
        n_counts = self._allocation.releases
        counts = [chosen.counts_share / n_counts for _ in range(n_counts)]
        left = 1 - overview - sum(counts)
        each = [left * share for share in Geometric.growing(chosen.growth).shares(chosen.rounds)]
        if not left > 0:
            raise InputError(
                f"Expected shares that leave something for the rounds, got {overview + sum(counts)} in total.",
                argument=None,
            )
        parts = self._update.shares(clicks=self._clicks)
        steps = [name for name in parts if self._update.sampling < 1 and name.startswith("step")]
        names = [name for name in parts if name not in steps]
        fractions: dict[str, Any] = {}
        if names:
            fractions["rounds"] = [float(share * parts[name]) for share in each for name in names]
        if needs_overview:
            fractions["overview"] = overview
        if counts:
            fractions["counts"] = counts
        if steps:
            n_steps = len(steps) * chosen.rounds
            plan, sampled = self._session.plan_sampled(n_steps, self._update.sampling, **fractions)
        else:
            plan, sampled = self._session.plan(**fractions), None
        shares = iter(plan.several("rounds") if names else ())
        rounds = [{name: sampled if name in steps else next(shares) for name in parts} for _ in range(chosen.rounds)]
        return {
            "overview": plan.one("overview") if needs_overview else None,
            "counts": plan.several("counts") if counts else (),
        }, rounds

    def _overview(self, share: Share | None) -> tuple[float, float]:
        """Return the number of users and, for ratings, their mean; release what is not public."""
        chosen, parts = self._chosen, (self._users, self._session, self._engine)
        if share is None:
            return float(chosen.n_users or 0), 0.0
        if self._clicks:
            return release_number_of_users(*parts, share), 0.0
        return release_overview(*parts, share, chosen.value_range, chosen.n_users)

    def _round(self, k: int, weights: Weighting, expected: Expected, items: NDArray[np.float64]) -> Round:
        chosen, labels = self._chosen, self._labels()
        return Round(
            users=self._users,
            weights=weights,
            expected=expected,
            rows=UserVectors(self._fold_in(items), labels, chosen.user_norm),
            labels=labels,
            items=items,
            unobserved=chosen.unobserved if self._clicks else 0.0,
            number=k + 1,
            kernels=self._engine.kernels,
        )

    def _labels(self) -> RawLabels:
        return RawLabels() if self._clicks else RawLabels(self._centre, self._chosen.value_range)

    def _fold_in(self, items: Floats) -> FoldIn:
        """Return a user's own regression on the items; for clicks every pair pulls towards 0."""
        chosen = self._chosen
        base = chosen.user_ridge * np.eye(items.shape[1])
        if self._clicks:
            base = base + chosen.unobserved * (items.T @ items)
        features = items.astype(np.float32)
        return FoldIn(features, self._observation_weights, base.astype(np.float32), np.zeros(len(base), np.float32))

    def model(self, items: NDArray[np.float64], statement: Statement) -> RatingModel | ClickModel:
        """Return the public model."""
        kind = ClickModel if self._clicks else RatingModel
        total = np.maximum(self._popularity, 0)
        return kind(
            fold_in=self._fold_in(items),
            vectors=items.astype(np.float32),
            popularity=total.astype(np.float32),
            reliability=(total / (total + total.mean())).astype(np.float32),
            task_ids=self._data.task_ids,
            statement=statement,
            offset=self._centre,
            value_range=(0.0, 1.0) if self._clicks else self._chosen.value_range,
            settings={name: _plain(value) for name, value in self._chosen.get_params().items() if name in _RECORDED},
        )


_RECORDED = (
    "kind", "update", "allocation", "dimension", "rounds", "growth", "user_norm", "user_ridge", "start_scale",
    "unobserved", "balanced", "overview_share", "counts_share",
)  # fmt: skip


def _plain(value: Any) -> Any:
    """Return settings as numbers and text, for storage."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"part": type(value).__name__, **{name: _plain(held) for name, held in asdict(value).items()}}
    return value.tolist() if isinstance(value, np.ndarray) else value


def _inverse_counts(counts: Sequence[ReleasedCounts]) -> NDArray[np.float32]:
    """Return weights 1/n̂_i that average 1 over observations."""
    if not counts:
        raise InputError(
            "A balanced objective needs an allocation that releases counts, such as Adaptive.", argument="allocation"
        )
    floored = counts[0].floored(0.05)
    return np.asarray(floored.mean() / floored, np.float32)
