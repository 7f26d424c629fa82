"""Weights over a user's tasks, as values that make the weights of any users: Σ w² ≤ 1 for each user.

A user with many tasks has the same unit of sensitivity as one with few. The weights say how it is divided. They depend
only on one user's own task list and on public or released numbers, never on other users.

Equation numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.data.user_keys import pair_keys
from apportion.data.users import Users
from apportion.errors import InputError
from apportion.linalg import TaskWeights
from apportion.privacy.bounds import MARGIN, EqualWeights, FloatArray, Weights
from apportion.privacy.contributions import Weighting
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours
from apportion.privacy.sampling import Sample

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class TaskFactors(Weighting):
    """w_ij proportional to a public or released number ω_i of the task.

    Attributes:
        factors: ω.
        description: how they were made, for the statement.
        normalised: whether each user's weights are scaled up or down until their squares sum to 1; otherwise only down,
            if they sum to more (eq. 12).
        neighbours: the neighbour relation of sums formed with the weights.
    """

    factors: FloatArray
    description: str
    normalised: bool = True
    neighbours: Neighbours = ADD_REMOVE

    def form(self, users: Users) -> Weights:
        """Return the weights of these users."""
        raw = np.asarray(self.factors, np.float32)[users.column("tasks")]
        make = Weights.normalised if self.normalised else Weights.clipped
        return make(raw, users.indptr, self.description, self.neighbours)

    def of_tasks(self, n_tasks: int) -> TaskWeights | None:
        """Return the factors; None if some are negative or not finite.

        Only users of such tasks are to be refused.
        """
        factors = np.asarray(self.factors, np.float32).astype(np.float64)
        plain = factors.shape == (n_tasks,) and bool(np.isfinite(factors).all() and (factors >= 0).all())
        return TaskWeights(factors, only_down=not self.normalised) if plain else None


@dataclass(frozen=True, eq=False)
class SplitEqually(Weighting):
    """Every task of user j gets 1/√n^j: nothing is sampled, nothing dropped, sensitivity exactly 1.

    Summed over users, this measures weighted popularity Σ_j 1/√n^j, not the number of users n_i.
    """

    neighbours: Neighbours = ADD_REMOVE
    description: str = "equal split, 1/sqrt(rows of the user)"

    def form(self, users: Users) -> Weights:
        """Return the weights of these users."""
        return EqualWeights(users.indptr, self.description, self.neighbours)

    def of_tasks(self, n_tasks: int) -> TaskWeights:
        """Return the same number for every task."""
        return TaskWeights(np.ones(n_tasks))


def places_in_scale(users: Users, value_range: tuple[float, float]) -> NDArray[np.float32]:
    """Return the place of each row's value in a public scale: 0 at the bottom, 1 at the top."""
    low, high = value_range
    held = np.clip(users.column("values"), low, high).astype(np.float32)
    return np.asarray((held - np.float32(low)) / np.float32(high - low))


@dataclass(frozen=True, eq=False)
class SplitByValue(Weighting):
    """Each row of a user counts by the place of its value in the scale, and the user's squares sum to 1.

    A user with nothing but values at the bottom of the scale has no weight.

    Attributes:
        value_range: the public scale.
    """

    value_range: tuple[float, float]
    neighbours: Neighbours = ADD_REMOVE
    description: str = "split by the place of a value in the scale"

    def form(self, users: Users) -> Weights:
        """Return the weights of these users."""
        places = places_in_scale(users, self.value_range)
        return Weights.normalised(places, users.indptr, self.description, self.neighbours)


@dataclass(frozen=True, eq=False)
class KeptTasks(Weighting):
    """At most `limit` tasks of a user, with weight 1/√limit each.

    Attributes:
        limit: the largest number of tasks.
        description: which tasks are kept, for the statement.
        popularity: released popularity; the rarest tasks are kept. None to choose by a hash of user, task and `seed`.
        seed: a public seed.
    """

    limit: int
    description: str
    popularity: FloatArray | None = None
    seed: int = 0

    def form(self, users: Users) -> Weights:
        """Return the weights of these users."""
        tasks = users.column("tasks")
        order: NDArray[Any]
        if self.popularity is None:
            order = np.lexsort((tasks, pair_keys(users.keys, users.owner, tasks, self.seed), users.owner))
        else:
            order = np.lexsort((tasks, self.popularity[tasks], users.owner))
        rank = np.arange(users.n_rows) - np.repeat(users.indptr[:-1], users.sizes)
        weights = np.zeros(users.n_rows, np.float32)
        weights[order[rank < self.limit]] = (1 - MARGIN) / np.sqrt(self.limit)
        return Weights(weights, users.indptr, self.description)


@dataclass(frozen=True, eq=False)
class OnTasks(Weighting):
    """Move each user's weight onto some tasks: 0 elsewhere, and the user's sum of squares unchanged.

    A user's new weights depend on its own tasks, its own weights and the chosen tasks, which must be public or
    released. A user with none of the tasks has no weight.

    Attributes:
        before: the original weights.
        tasks: for every task, whether it is chosen.
        where: the tasks in words, for the statement.
    """

    before: Weighting
    tasks: NDArray[np.bool_]
    where: str

    @property
    def description(self) -> str:  # type: ignore[override]
        """How the weights are made."""
        return f"{self.before.description}, on {self.where} alone"

    @property
    def neighbours(self) -> Neighbours:  # type: ignore[override]
        """The neighbour relation of the weights before."""
        return self.before.neighbours

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether the weights before may be negative."""
        return self.before.signed

    def form(self, users: Users) -> Weights:
        """Return the weights of these users."""
        return self.before.of(users).on_rows(self.tasks[users.column("tasks")], self.description)


@dataclass(frozen=True, eq=False)
class OnSample(Weighting):
    """The weights of the users in a Poisson sample, and 0 for all others."""

    before: Weighting
    sample: Sample
    used_once: ClassVar[bool] = True

    @property
    def description(self) -> str:  # type: ignore[override]
        """The description of the weights before."""
        return self.before.description

    @property
    def neighbours(self) -> Neighbours:  # type: ignore[override]
        """The neighbour relation of the weights before."""
        return self.before.neighbours

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether the weights before may be negative."""
        return self.before.signed

    def form(self, users: Users) -> Weights:
        """Return the weights of these users."""
        return self.before.of(users).of_users(self.sample.members(users.keys))


@dataclass(frozen=True, eq=False)
class TimesFactors(Weighting):
    """Each weight times a number of its own row, divided by `clip`. Each user's weights are then clipped to norm 1.

    Multiply a release made with the result by `clip` to get the units of the numbers.

    Attributes:
        before: the weights.
        numbers: makes the numbers of the rows of a run of users, each from its own user's rows and released values.
        clip: the norm to which a user's weighted numbers are clipped.
    """

    before: Weighting
    numbers: Callable[[Any], Floats]
    clip: float
    signed: bool = True
    used_once: ClassVar[bool] = True

    @property
    def description(self) -> str:  # type: ignore[override]
        """How the weights are made."""
        return f"{self.before.description}, times residuals clipped to {self.clip:g}"

    @property
    def neighbours(self) -> Neighbours:  # type: ignore[override]
        """The neighbour relation of the weights before."""
        return self.before.neighbours

    def form(self, users: Users) -> Weights:
        """Return the weights of these users."""
        return self.before.of(users).times(self.numbers(users), self.clip)


def adaptive(popularity: FloatArray, exponent: float) -> TaskFactors:
    """Return w_ij ∝ popularity_i^(−exponent), scaled up or down until each user's squares sum to 1.

    An exponent of 0 is the equal split, 1/4 and 1/2 are the optima of eq. 11 for convex and strongly convex
    losses. Unlike eq. 12, light users are scaled up as well.
    """
    omega = _powers(popularity, exponent)
    return TaskFactors(omega / omega.max(), f"adaptive, popularity^-{exponent:g}, normalised")


def closed_form(counts: FloatArray, exponent: float, n_users: float) -> TaskFactors:
    """Return eq. 16 with a user budget of 1, clipped per user by eq. 12; eq. 11 at exponent (1 + γ)/4.

    ω_i = n̂_i^(−μ) / √(Σ_i' n̂_i'^(1 − 2μ) / n), where μ is the exponent and c(n) = 1: eq. 12 enforces the
    bound, whatever the log factor would have been.

    Args:
        counts: released or public numbers of users per task.
        exponent: μ of eq. 16.
        n_users: public or released number of users.
    """
    omega = closed_form_of_tasks(counts, exponent, n_users)
    largest = float(np.finfo(np.float32).max) ** 0.25  # no square overflows, whichever user has the task
    return TaskFactors(np.minimum(omega, largest), f"closed form, counts^-{exponent:g}, clipped", normalised=False)


def closed_form_of_tasks(counts: FloatArray, exponent: float, n_users: float) -> NDArray[np.float64]:
    """Return ω of eq. 16 for every task, before any user's weights are clipped."""
    if not n_users > 0:
        raise InputError(f"Expected a positive number of users, got {n_users}.", argument="n_users")
    return np.asarray(_powers(counts, exponent) / np.sqrt(_powers(counts, 2 * exponent - 1).sum() / n_users))


def uniform_sample(limit: int, seed: int) -> KeptTasks:
    """Keep at most `limit` tasks of each user, chosen uniformly, with weight 1/√limit each."""
    return KeptTasks(_checked(limit), f"uniform sample of {limit} tasks per user", seed=seed)


def tail_sample(popularity: FloatArray, limit: int) -> KeptTasks:
    """Keep each user's `limit` rarest tasks by released popularity, with weight 1/√limit each."""
    return KeptTasks(_checked(limit), f"the {limit} rarest tasks of a user", popularity)


def _checked(limit: int) -> int:
    if limit < 1:
        raise InputError(f"Expected a limit of at least 1 task per user, got {limit}.", argument="limit")
    return limit


def _powers(popularity: FloatArray, exponent: float) -> NDArray[np.float64]:
    values = np.asarray(popularity, dtype=np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError(
            "Expected positive popularity for every task; floor released counts first.", argument="popularity"
        )
    with np.errstate(over="ignore"):
        powers = values**-exponent
    if not np.isfinite(powers).all():  # check every task, whichever user has it
        raise InputError(
            f"Popularity to the power {-exponent:g} is not finite; use a smaller exponent.", argument="exponent"
        )
    return powers
