"""Allocation policies for estimators. A policy says what must be released first, and then makes the weights.

An estimator gives a policy a way to release weighted counts. The policy asks as often as it declares in `releases` and
returns a `Weighting`, which makes the weights of any users. The policy sees only released values, so the weights of a
user depend only on those and on that user's own tasks.

Equation numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import weightings
from apportion.data.users import UserParts
from apportion.errors import InputError
from apportion.privacy.contributions import Weighting
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours


@dataclass(frozen=True)
class ReleasedCounts:
    """Released estimates of Σ_j w_ij for every task i.

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
        """Estimate n_i, if the sums are of the equal split w_ij = 1/√n^j.

        Σ_i Σ_j 1/√n^j = Σ_j √n^j, so the typical √n^j is the sum of all totals divided by the number of users, and
        n_i is about total_i times that. It is exact if all users have equally many tasks; otherwise it is too small for
        tasks that heavy users prefer.
        """
        return self.total * self.typical_root

    @property
    def users_stddev(self) -> float:
        """The standard deviation of the noise in `users_per_task`."""
        return self.stddev * self.typical_root

    @property
    def typical_root(self) -> float:
        """The mean of √n^j over users, if the sums are of the equal split."""
        return max(float(self.total.sum()) / self.n_users, 1.0)

    def floored(self, fraction: float) -> NDArray[np.float64]:
        """Return the totals, none below this fraction of their mean (or below a tiny constant)."""
        return np.maximum(self.total, max(fraction * float(self.total.mean()), 1e-9))


Count = Callable[[Weighting], ReleasedCounts]
TASKS_PER_USER = 50.0  # a public guess, for policies that release nothing


@dataclass(frozen=True)
class Expected:
    """Estimated sums of the weights that a policy gave, from released values.

    Attributes:
        total: approximate Σ_j w_ij for every task i.
        typical: approximate weight of one observation of task i, the factor of the task's loss.
    """

    total: NDArray[np.float64]
    typical: NDArray[np.float64]


@dataclass(frozen=True)
class Allocated:
    """The result of a policy.

    Attributes:
        weights: how every user weighs its tasks.
        expected: estimated sums of the weights; released or public.
        counts: the counts that were released for the weights, in order.
    """

    weights: Weighting
    expected: Expected
    counts: tuple[ReleasedCounts, ...] = ()


class Allocation(Protocol):
    """How a user's unit of sensitivity is divided over its tasks."""

    @property
    def releases(self) -> int:
        """How many times the policy asks for counts."""

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation of sums formed with its weights; add or remove a user by default."""

    def allocate(self, users: UserParts, count: Count, n_users: float) -> Allocated:
        """Return the weights. `count` releases Σ_j w_ij for weights of its choice; `n_users` is released or public.

        Only the length of the users' task list is used, unless the policy assumes that more is public.
        """


class CountedPolicy(ABC):
    """A policy whose weights depend on released counts, or on nothing."""

    neighbours: ClassVar[Neighbours] = ADD_REMOVE

    @abstractmethod
    def weights(self, n_tasks: int, count: Count) -> Weighting:
        """Return how every user weighs its tasks."""

    @abstractmethod
    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Estimate the sums of those weights from `released`, the counts that the policy asked for."""

    def allocate(self, users: UserParts, count: Count, n_users: float) -> Allocated:
        """Return the weights and the estimates, with the released counts."""
        made: list[ReleasedCounts] = []

        def counted(weights: Weighting) -> ReleasedCounts:
            made.append(count(weights))
            return made[-1]

        weights = self.weights(users.n_tasks, counted)
        return Allocated(weights, self.expected(made, n_users, users.n_tasks), tuple(made))


@dataclass(frozen=True)
class EqualSplit(CountedPolicy):
    """Equal weights 1/√n^j for all tasks of a user: the paper's unweighted objective, normalised per user."""

    releases: int = 0

    def weights(self, n_tasks: int, count: Count) -> Weighting:
        """Return 1/√n^j."""
        return weightings.SplitEqually()

    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Return the estimate for users with `TASKS_PER_USER` tasks each, spread evenly."""
        return _flat(TASKS_PER_USER, n_users, n_tasks)


@dataclass(frozen=True)
class Adaptive(CountedPolicy):
    """Popularity to the power −exponent, scaled up or down until each user's squares sum to 1.

    Attributes:
        exponent: 1/4 and 1/2 are the optima for convex and strongly convex losses.
        floor: popularity is floored at this fraction of its mean.
    """

    exponent: float = 0.25
    floor: float = 0.05
    releases: int = 1

    def weights(self, n_tasks: int, count: Count) -> Weighting:
        """Release popularity, then weight by it."""
        released = count(weightings.SplitEqually())
        return weightings.adaptive(released.floored(self.floor), self.exponent)

    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Return estimates; see `expected_of_normalised`."""
        counts = released[0]
        return expected_of_normalised(counts.floored(self.floor) ** -self.exponent, counts)


@dataclass(frozen=True)
class ClosedForm(CountedPolicy):
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

    def weights(self, n_tasks: int, count: Count) -> Weighting:
        """Release popularity, turn it into counts, then weight by them."""
        released = count(weightings.SplitEqually())
        return weightings.closed_form(self._counts(released), self.exponent, released.n_users)

    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Return the weights before they are clipped."""
        omega = weightings.closed_form_of_tasks(self._counts(released[0]), self.exponent, released[0].n_users)
        return Expected(omega * released[0].users_per_task, omega)

    def _counts(self, released: ReleasedCounts) -> NDArray[np.float64]:
        users = released.users_per_task
        floored = np.maximum(users, max(self.floor * float(users.mean()), 1e-9))
        return np.asarray(floored + self.slack * released.users_stddev)


@dataclass(frozen=True)
class UniformSample(CountedPolicy):
    """At most `limit` tasks of a user, chosen at random, with equal weight."""

    limit: int = 50
    seed: int = 0
    releases: int = 0

    def weights(self, n_tasks: int, count: Count) -> Weighting:
        """Choose by a hash of user, task and seed."""
        return weightings.uniform_sample(self.limit, self.seed)

    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Return the estimate for users with `limit` tasks each, spread evenly."""
        return _flat(self.limit, n_users, n_tasks)


@dataclass(frozen=True)
class TailSample(CountedPolicy):
    """The `limit` rarest tasks of a user by released popularity, with equal weight (Chien et al., 2021)."""

    limit: int = 50
    releases: int = 1

    def weights(self, n_tasks: int, count: Count) -> Weighting:
        """Release popularity, then keep the rarest."""
        return weightings.tail_sample(count(weightings.SplitEqually()).total, self.limit)

    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Return the estimate for users with `limit` tasks each, spread evenly."""
        return _flat(self.limit, n_users, n_tasks)


@dataclass(frozen=True)
class KnownCounts(CountedPolicy):
    """Any policy with public counts: nothing is released.

    Attributes:
        policy: the policy that uses the counts; it must ask once, for the counts of the equal split.
        total: public Σ_j w_ij, or anything proportional to popularity.
        n_users: public number of users.
    """

    policy: CountedPolicy
    total: Any
    n_users: float
    releases: int = 0

    @property
    def assumes(self) -> tuple[str, ...]:
        """What must be public for this to be private."""
        return ("how many users every task has, and how many there are in all, as given",)

    def weights(self, n_tasks: int, count: Count) -> Weighting:
        """Give the policy the public counts."""
        total = np.asarray(self.total, np.float64)
        if total.shape != (n_tasks,):
            raise InputError(
                f"Expected one public count for each of {n_tasks} tasks, got {total.shape}.", argument="total"
            )
        return self.policy.weights(n_tasks, lambda _weights: ReleasedCounts(total, 0.0, self.n_users))

    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Return the policy's estimates, given the public counts."""
        counts = ReleasedCounts(np.asarray(self.total, np.float64), 0.0, self.n_users)
        return self.policy.expected([counts], self.n_users, n_tasks)


def expected_of_normalised(omega: NDArray[np.float64], counts: ReleasedCounts) -> Expected:
    """Return estimates for ω_i / √(Σ_{i' of j} ω_i'²), given counts of the equal split.

    With r² the mean of ω² over observations, a user of n^j tasks has about w_ij = ω_i / (r √n^j).
    """
    total = np.maximum(counts.total, 1e-9)
    root = np.sqrt((np.square(omega) * total).sum() / total.sum())
    return Expected(omega * total / root, omega / (root * counts.typical_root))


def _flat(tasks_per_user: float, n_users: float, n_tasks: int) -> Expected:
    root = np.sqrt(tasks_per_user)
    return Expected(np.full(n_tasks, n_users * root / n_tasks), np.full(n_tasks, 1 / root))
