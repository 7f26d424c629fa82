"""Allocations as parts that estimators take: each says what must be released first, and then gives the weights.

An estimator hands a policy its data and a way to release weighted counts; the policy asks as often as it declares in
`releases` and returns `Weights`. What it asked for was released, so the weights of a user depend on that user's own
tasks and on released values.

Equation numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import tasks
from apportion.data import Interactions
from apportion.errors import InputError
from apportion.privacy.bounds import Weights


@dataclass(frozen=True)
class TaskCounts:
    """What a release says of Σ_j w_ij for every task i.

    Attributes:
        total: estimates of the sums, none negative.
        stddev: standard deviation of the noise they were released with.
        n_users: the number of users, released or declared public.
    """

    total: NDArray[np.float64]
    stddev: float
    n_users: float

    @property
    def users_per_task(self) -> NDArray[np.float64]:
        """Estimates of n_i, where the sums are of the equal split w_ij = 1/√n^j.

        Σ_i Σ_j 1/√n^j = Σ_j √n^j, so the typical √n^j is the sum of all totals divided by the number of users, and
        n_i is about total_i times that. Exact if all users have equally many tasks; otherwise tasks that heavy users
        prefer come out too small.
        """
        return self.total * self._typical

    @property
    def users_stddev(self) -> float:
        """Standard deviation of the noise in `users_per_task`."""
        return self.stddev * self._typical

    @property
    def _typical(self) -> float:
        return max(float(self.total.sum()) / self.n_users, 1.0)

    def floored(self, fraction: float) -> NDArray[np.float64]:
        """The totals, none below this fraction of their mean (or below a tiny constant)."""
        return np.maximum(self.total, max(fraction * float(self.total.mean()), 1e-9))


Count = Callable[[Weights], TaskCounts]


class Allocation(Protocol):
    """How a user's unit of sensitivity is divided over its tasks."""

    @property
    def releases(self) -> int:
        """How many times it asks for counts."""

    def weights(self, data: Interactions, count: Count) -> Weights:
        """The weights of every observation; `count` releases Σ_j w_ij for weights of its choice."""


@dataclass(frozen=True)
class EqualSplit:
    """Every task of a user alike: 1/√n^j. The paper's unweighted objective, normalised per user."""

    releases: int = 0

    def weights(self, data: Interactions, count: Count) -> Weights:
        """Return 1/√n^j."""
        return tasks.equal_split(data)


@dataclass(frozen=True)
class Adaptive:
    """Popularity to the power −exponent, scaled up or down until each user's squares sum to 1.

    Attributes:
        exponent: 1/4 and 1/2 are the optima for convex and strongly convex losses.
        floor: popularity is floored at this fraction of its mean.
    """

    exponent: float = 0.25
    floor: float = 0.05
    releases: int = 1

    def weights(self, data: Interactions, count: Count) -> Weights:
        """Release popularity, then weight by it."""
        released = count(tasks.equal_split(data))
        return tasks.adaptive(data, released.floored(self.floor), self.exponent)


@dataclass(frozen=True)
class ClosedForm:
    """Eq. 16, clipped per user (eq. 12); with `slack`, eq. 19 and 20.

    Attributes:
        exponent: μ of eq. 16; (1 + γ)/4 gives eq. 11.
        slack: s of eq. 19, in standard deviations of the released counts.
        floor: counts are floored at this fraction of their mean.
    """

    exponent: float = 0.5
    slack: float = 0.0
    floor: float = 0.05
    releases: int = 1

    def weights(self, data: Interactions, count: Count) -> Weights:
        """Release popularity, turn it into counts, then weight by them."""
        released = count(tasks.equal_split(data))
        users = np.maximum(released.users_per_task, max(self.floor * float(released.users_per_task.mean()), 1e-9))
        return tasks.closed_form(data, users + self.slack * released.users_stddev, self.exponent, released.n_users)


@dataclass(frozen=True)
class UniformSample:
    """At most `limit` tasks of a user, chosen at random, with equal weight."""

    limit: int = 50
    seed: int = 0
    releases: int = 0

    def weights(self, data: Interactions, count: Count) -> Weights:
        """Choose by a hash of user, task and seed."""
        return tasks.uniform_sample(data, self.limit, self.seed)


@dataclass(frozen=True)
class TailSample:
    """The `limit` rarest tasks of a user by released popularity, with equal weight (Chien et al., 2021)."""

    limit: int = 50
    releases: int = 1

    def weights(self, data: Interactions, count: Count) -> Weights:
        """Release popularity, then keep the rarest."""
        return tasks.tail_sample(data, count(tasks.equal_split(data)).total, self.limit)


@dataclass(frozen=True)
class KnownCounts:
    """Any policy, with counts that are public: nothing is released.

    Attributes:
        policy: what to do with the counts; it must want those of the equal split, once.
        total: public Σ_j w_ij, or anything proportional to popularity.
        n_users: public number of users.
    """

    policy: Any
    total: Any
    n_users: float
    releases: int = 0

    def weights(self, data: Interactions, count: Count) -> Weights:
        """Give the policy the public counts."""
        total = np.asarray(self.total, np.float64)
        if total.shape != (data.n_tasks,):
            raise InputError(f"Expected one public count for each of {data.n_tasks} tasks, got {total.shape}.")
        known: Weights = self.policy.weights(data, lambda _weights: TaskCounts(total, 0.0, self.n_users))
        return known
