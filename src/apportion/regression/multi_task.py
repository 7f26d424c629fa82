"""The common part of multi-task regressions: arguments, the releases before the first statistic, and prediction."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation import EqualSplit, KnownCounts, TailSample, UniformSample
from apportion.allocation.policies import Allocation
from apportion.data import Vocabulary
from apportion.data.grouping import one_of
from apportion.data.numbers import finite_matrix
from apportion.engines import Engine, LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.counts import allocated, release_number_of_users
from apportion.estimators.frames import is_frame
from apportion.estimators.private import InteractionsEstimator
from apportion.estimators.scores import score_of, unnamed
from apportion.linalg.fixed_order import dot_rows
from apportion.privacy import Purpose, Session
from apportion.privacy.budget import Plan
from apportion.privacy.contributions import TaskCounts, Weighting
from apportion.regression.observations import Observations, Observed, observed_on_spark

Floats = NDArray[np.float64]

_EXPOSURE_SHARE = 0.03


@dataclass(frozen=True)
class Start:
    """What is known before the first statistic.

    Attributes:
        weights: how every user weighs its tasks.
        exposure: estimates of Σ_j w_ij, none negative; released or public.
        exposure_stddev: standard deviation of their noise, 0 if they were not released.
        typical_weight: approximate weight of one observation of a task; from released or public counts.
    """

    weights: Weighting
    exposure: Floats
    exposure_stddev: float
    typical_weight: Floats


@with_constructor
class MultiTaskRegression(InteractionsEstimator, ABC):
    """One linear model per task from (user, task) rows. Every user's whole contribution is bounded.

    Args:
        feature_norm: the norm to which rows of X are clipped; public.
        allocation: how a user's unit of sensitivity is divided over tasks.
        users_share: share of the budget for the number of users.
        counts_share: share for the counts that the allocation asks for.
        exposure_share: share for the total weight of every task; 0 to use the allocation's estimate, None to release it
            only if the allocation has no counts to estimate it from.
    """

    _: KW_ONLY
    feature_norm: float = 1.0
    n_users: int | None = None
    allocation: Allocation
    users_share: float = 0.003
    counts_share: float = 0.05
    exposure_share: float | None = None
    _tasks_are: ClassVar[str] = "tasks"

    coef_: Floats = field(init=False)
    task_ids_: Vocabulary = field(init=False)

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        tasks: Any,
        users: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        task_ids: ArrayLike | Vocabulary | None = None,
        session: Session | None = None,
    ) -> Self:
        """Spend the budget on the data. Afterwards `coef_` may be released with its `statement_`.

        Args:
            X: features, one row per observation; add a column of ones for an intercept. With
                `engine=SparkEngine(spark)`, X is a frame of that session, and `y`, `tasks` and `users` are names of its
                columns.
            y: labels, one per row.
            tasks: the task of each row, integers or text.
            users: the user of each row. Several rows of a user for one task are replaced by their mean; labels of two
                classes must then agree.
            groups: the same as `users`, for scikit-learn tools that use this name; give at most one of the two.
            task_ids: the public list of tasks; without it, the fit reveals which tasks occur.
            session: a session with its own budget, noise and window, which replace those of the estimator.
        """
        if is_frame(X):
            with observed_on_spark(self.engine, X, y, tasks, one_of(users, groups), task_ids) as on_cluster:
                return self.fit_observations(on_cluster, session=session)
        observations = Observations.from_arrays(X, y, tasks, one_of(users, groups), task_ids)
        return self.fit_observations(observations, session=session)

    def fit_observations(self, observations: Observed, *, session: Session | None = None) -> Self:
        """Fit to rows that were checked and sorted before; see `fit`."""
        self._check()
        opened = self._declared(session, observations.data, self._assumed_public())
        engine = self._engine_or(LocalEngine(np.float64), opened)
        coefficients = self._learn(observations, opened, engine)
        self.statement_ = opened.statement()
        self.task_ids_ = observations.data.task_ids
        self.coef_ = coefficients
        return self

    def predict(self, X: ArrayLike, *, tasks: ArrayLike | None = None) -> Floats:  # noqa: N803
        """Return θ_i · x for every row x and its task i."""
        if tasks is None:
            raise unnamed("tasks", "task")
        x = finite_matrix(X, "X")
        if x.shape[1] != self.coef_.shape[1]:
            raise InputError(
                f"Expected X with {self.coef_.shape[1]} columns, as in the fit, got {x.shape[1]}.", argument="X"
            )
        codes = self.task_ids_.codes_of(tasks)
        if len(codes) != len(x):
            raise InputError(
                f"Expected tasks to have {len(x)} rows, one per row of X, got {len(codes)}.", argument="tasks"
            )
        return dot_rows(x, self.coef_[codes])

    def score(self, X: ArrayLike, y: ArrayLike, *, tasks: ArrayLike | None = None) -> float:  # noqa: N803
        """Return R² of the predictions, or for classes the fraction that is right. It is computed from raw data."""
        return score_of(self.predict(X, tasks=tasks), y, classes=self._predicts_classes)

    @property
    def _predicts_classes(self) -> bool:
        return False

    @abstractmethod
    def _learn(self, observations: Observed, session: Session, engine: Engine) -> Floats:
        """Make every release and return the coefficients of all tasks."""

    def _check(self) -> None:
        """Refuse invalid arguments, before anything is spent."""
        positive("feature_norm", self.feature_norm)
        for name, share in (("users_share", self.users_share), ("counts_share", self.counts_share)):
            if not 0 < share < 1:
                raise InputError(f"Expected {name} strictly between 0 and 1, got {share}.", argument=name)
        if not 0 <= self._exposure_share() < 1:
            raise InputError(
                f"Expected exposure_share of at least 0 and below 1, got {self.exposure_share}.",
                argument="exposure_share",
            )

    def _assumed_public(self) -> list[str]:
        return [f"the norm {self.feature_norm:g} to which features are clipped"]

    def _public_users(self) -> float | None:
        """Return the number of users, if it is not to be released."""
        if self.n_users is not None:
            return float(self.n_users)
        return float(self.allocation.n_users) if isinstance(self.allocation, KnownCounts) else None

    def _exposure_share(self) -> float:
        """Return the given share, or a small one if the allocation has no counts to estimate total weights from."""
        if self.exposure_share is not None:
            return self.exposure_share
        policy = self.allocation.policy if isinstance(self.allocation, KnownCounts) else self.allocation
        return _EXPOSURE_SHARE if isinstance(policy, EqualSplit | UniformSample | TailSample) else 0.0

    def _plan(self, session: Session, statistics: dict[str, float]) -> Plan:
        """Return the shares of the first releases and of the statistics; `statistics` are fractions of the rest."""
        releases = self.allocation.releases
        first: dict[str, Any] = {"counts": [self.counts_share / releases] * releases} if releases else {}
        if self._public_users() is None:
            first["users"] = self.users_share
        if self._exposure_share() > 0:
            first["exposure"] = self._exposure_share()
        rest = 1 - sum(sum(part) if isinstance(part, list) else part for part in first.values())
        if rest <= 0:
            raise InputError(
                f"Expected shares of the first releases that sum to less than 1, got {1 - rest:g}.", argument=None
            )
        return session.plan(**first, **{name: part * rest for name, part in statistics.items()})

    def _start(self, observations: Observed, session: Session, engine: Engine, plan: Plan) -> Start:
        """Release the number of users, the counts that the allocation asks for, and every task's total weight."""
        users = observations.users
        public = self._public_users()
        n_users = public or release_number_of_users(users, session, engine, plan.one("users"))
        shares = plan.several("counts") if self.allocation.releases else ()
        given = allocated(users, self.allocation, session, engine, shares, n_users)
        weights, expected = given.weights, given.expected
        if self._exposure_share() == 0:
            return Start(weights, np.maximum(expected.total, 0.0), 0.0, expected.typical)
        share = plan.one("exposure")
        released = session.release(Purpose.EXPOSURE, add_up_one(engine, users, TaskCounts(weights)), share)
        return Start(weights, np.maximum(released, 0.0), weights.moved(1.0) / share.mu, expected.typical)


def positive(name: str, value: float) -> None:
    """Refuse anything but a positive finite number."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"Expected a finite {name} > 0, got {value}.", argument=name)


def not_negative(name: str, value: float) -> None:
    """Refuse anything but a finite number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"Expected a finite {name} >= 0, got {value}.", argument=name)


def into_ball(coefficients: Floats, radius: float | None) -> Floats:
    """Project every row onto the ball of this radius; None leaves them unchanged."""
    if radius is None:
        return coefficients
    lengths = np.linalg.norm(coefficients, axis=1, keepdims=True)
    return np.asarray(coefficients * (radius / np.maximum(lengths, radius)))
