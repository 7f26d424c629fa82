"""The exact solution of eq. 9 for a public graph, in which it is not secret who has which task.

Eq. 9 minimises Σ_i cost_i / z_i subject to Σ_{i ∈ Ω^j} z_i ≤ 1 for every user j; z_i = ω_i² and cost_i = n_i^(−γ). Its
dual maximises 2 Σ_i √(cost_i q_i) − Σ_j λ_j over λ ≥ 0, where q_i = Σ_{j ∈ Ω_i} λ_j, with z_i = √(cost_i / q_i). The
step λ_j ← λ_j (Σ_{i ∈ Ω^j} z_i)² never lowers the dual; the answer comes with both bounds (docs/proofs/weights.md).

Equation numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.policies import Allocated, Count, Expected
from apportion.allocation.weightings import TaskFactors
from apportion.data import Interactions
from apportion.data.users import UserParts, Users, in_memory
from apportion.errors import InputError
from apportion.privacy.neighbours import REPLACE_VALUES_PUBLIC_GRAPH, Neighbours

Floats = NDArray[np.float64]

PUBLIC_GRAPH = "which user has which task is public"
_CHECKED_EVERY = 10  # number of steps


@dataclass(frozen=True, eq=False)
class CertifiedAllocation:
    """An allocation for a public graph, and how far it can be from the best.

    Attributes:
        omega: one weight per task; 0 for tasks that nobody has.
        objective: its objective.
        dual_bound: a lower bound on the objective of any allocation.
        steps: number of steps.
    """

    omega: Floats
    objective: float
    dual_bound: float
    steps: int

    @property
    def gap(self) -> float:
        """How far the objective can be above the best, as a fraction of the best."""
        return self.objective / self.dual_bound - 1 if self.dual_bound > 0 else 0.0


class PublicGraph:
    """Who has which task, in both directions, without empty users and tasks.

    Args:
        indptr: where each user's tasks begin, starting with 0.
        tasks: the tasks of all users, user after user.
        n_tasks: how many tasks there are.
    """

    def __init__(self, indptr: ArrayLike, tasks: ArrayLike, n_tasks: int) -> None:
        starts, listed = np.asarray(indptr, np.int64), np.asarray(tasks, np.intp)
        lengths = np.diff(starts)
        if starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != len(listed) or (lengths < 0).any():
            raise InputError(
                f"Expected offsets from 0 to {len(listed)}, one run per user; these do not fit the tasks.",
                argument="indptr",
            )
        if len(listed) and not (listed.min() >= 0 and listed.max() < n_tasks):
            raise InputError(
                f"Expected tasks from 0 to {n_tasks - 1}, got {listed.min()} to {listed.max()}.", argument="tasks"
            )
        counts = np.bincount(listed, minlength=n_tasks)
        self.n_tasks = n_tasks
        self.present = np.flatnonzero(counts)
        self.users_per_task: Floats = counts[self.present].astype(np.float64)
        self._users_begin = starts[:-1][lengths > 0]
        self._task_of = (np.cumsum(counts > 0) - 1)[listed]
        self._tasks_begin = np.cumsum(counts[self.present]) - counts[self.present]
        user_of = np.repeat(np.arange(len(self._users_begin)), lengths[lengths > 0])
        self._user_of = user_of[np.argsort(self._task_of, kind="stable")]

    @property
    def n_users(self) -> int:
        """The number of users who have a task."""
        return len(self._users_begin)

    def over_tasks(self, values: Floats) -> Floats:
        """Return, for every user, the sum of its tasks' values."""
        return np.add.reduceat(values[self._task_of], self._users_begin) if self.n_users else np.zeros(0)

    def over_users(self, values: Floats) -> Floats:
        """Return, for every task, the sum of its users' values."""
        return np.add.reduceat(values[self._user_of], self._tasks_begin) if self.n_users else np.zeros(0)

    def largest_over_users(self, values: Floats) -> Floats:
        """Return, for every task, the largest of its users' values."""
        return np.maximum.reduceat(values[self._user_of], self._tasks_begin) if self.n_users else np.zeros(0)

    def costs(self, cost: ArrayLike) -> Floats:
        """Return the checked costs of the tasks that somebody has."""
        given = np.asarray(cost, np.float64)
        if given.shape != (self.n_tasks,):
            raise InputError(
                f"Expected one cost for each of {self.n_tasks} tasks, got shape {given.shape}.", argument="cost"
            )
        wanted = given[self.present]
        if not (np.isfinite(wanted).all() and (wanted > 0).all()):
            raise InputError("Expected a positive, finite cost for every task that somebody has.", argument="cost")
        return wanted

    def on_all_tasks(self, values: Floats) -> Floats:
        """Return values of the tasks that somebody has, with 0 for the others."""
        spread = np.zeros(self.n_tasks)
        spread[self.present] = values
        return spread


def solve_public_graph(
    indptr: ArrayLike, tasks: ArrayLike, cost: ArrayLike, tolerance: float = 1e-3, max_steps: int = 50_000
) -> CertifiedAllocation:
    """Minimise Σ_i cost_i / ω_i² subject to Σ_{i ∈ Ω^j} ω_i² ≤ 1 for every user j (eq. 9), for a public graph.

    A step costs two passes over the graph; a gap of 1e-3 takes tens of steps, one of 1e-6 up to thousands.

    Args:
        indptr: where each user's tasks begin, starting with 0.
        tasks: the tasks of all users, user after user.
        cost: one positive number per task, n_i^(−γ) in eq. 9; ignored for tasks that nobody has.
        tolerance: the largest gap to the best, as a fraction of it.
        max_steps: when to give up.

    Raises:
        ArithmeticError: if the gap is still above the tolerance after `max_steps`.

    >>> solution = solve_public_graph([0, 1, 3], [0, 0, 1], [1.0, 1.0], tolerance=1e-6)
    >>> np.round(solution.omega**2, 3), round(solution.objective, 3)
    (array([0.5, 0.5]), 4.0)
    """
    refuse_bad_tolerance(tolerance)
    graph = PublicGraph(indptr, tasks, np.size(cost))
    costs = graph.costs(cost)
    multipliers = np.ones(graph.n_users)
    best, objective, bound = np.zeros(len(costs)), np.inf if len(costs) else 0.0, 0.0
    for step in range(max_steps):
        pull = graph.over_users(multipliers)
        squares = np.sqrt(costs / pull)
        load = graph.over_tasks(squares)
        if step % _CHECKED_EVERY == 0 or step == max_steps - 1:
            feasible = squares / graph.largest_over_users(load)
            attained = float((costs / feasible).sum())
            if attained < objective:
                best, objective = feasible, attained
            if len(costs):
                bound = max(bound, float(np.sqrt(costs * pull).sum() ** 2 / multipliers.sum()))
            if objective <= bound * (1 + tolerance):
                return CertifiedAllocation(graph.on_all_tasks(np.sqrt(best)), objective, bound, step)
        multipliers *= np.square(load)
    raise ArithmeticError(
        f"The gap to the best allocation is {objective / bound - 1:.3g} after {max_steps} steps, not {tolerance:g}."
    )


def exact_weights(data: Interactions, gamma: float, tolerance: float = 1e-3) -> TaskFactors:
    """Return the weights w_ij = ω_i of eq. 9, exact up to the tolerance, for a public graph.

    Privacy: ω depends on everybody's task list. Sums formed with these weights state REPLACE_VALUES_PUBLIC_GRAPH: they
    are private for values and features only, **not for who has which task**, and no session for adding or removing a
    user releases them.

    Args:
        data: the interactions; their values are not used.
        gamma: 1 for strongly convex losses and ridge, 0 for convex ones.
        tolerance: the largest gap to the best objective, as a fraction of it.
    """
    return Exact(gamma, tolerance).weighed(data.as_users)[0]


@dataclass(frozen=True)
class PublicGraphPolicy:
    """The common part of policies for a public graph. They release nothing, and the sums of their weights are public.

    Attributes:
        gamma: 1 for strongly convex losses and ridge, 0 for convex ones.
        tolerance: the largest gap to the best objective, as a fraction of it.
        assumes: what must be public for any guarantee to hold.
        neighbours: the relation that a session must protect: the same graph, with the values of one user replaced.
    """

    gamma: float = 1.0
    tolerance: float = 1e-3
    releases: int = 0
    assumes: ClassVar[tuple[str, ...]] = (PUBLIC_GRAPH,)
    neighbours: ClassVar[Neighbours] = REPLACE_VALUES_PUBLIC_GRAPH


def summed(users: Users, total: Floats) -> Expected:
    """Return the sums of the weights, which are public like the graph."""
    counts = np.bincount(users.column("tasks"), minlength=users.n_tasks)
    typical = np.where(counts > 0, total / np.maximum(counts, 1), 1.0)  # a task that nobody has could get all weight
    return Expected(total, typical)


@dataclass(frozen=True)
class Exact(PublicGraphPolicy):
    """Solves eq. 9 exactly for a public graph.

    **The result is private only if the graph is public**: see `exact_weights`.
    """

    def allocate(self, users: UserParts, count: Count, n_users: float) -> Allocated:
        """Solve for this graph; nothing is released."""
        held = in_memory(users, "An exact solution for the whole graph")
        weights, total = self.weighed(held)
        return Allocated(weights, summed(held, total))

    def weighed(self, users: Users) -> tuple[TaskFactors, Floats]:
        """Return the weights and their sums."""
        costs, tasks = public_costs(users, self.gamma), users.column("tasks")
        omega = solve_public_graph(users.indptr, tasks, costs, self.tolerance).omega
        description = f"exact solution of eq. 9, gamma {self.gamma:g}, {PUBLIC_GRAPH}"
        total = omega * np.bincount(tasks, minlength=users.n_tasks)
        return TaskFactors(omega, description, normalised=False, neighbours=self.neighbours), total


def public_costs(users: Users, gamma: float) -> Floats:
    """Return n_i^(−γ) for the tasks that somebody has, 1 for the others."""
    if not np.isfinite(gamma):
        raise InputError(f"Expected a finite gamma, got {gamma}.", argument="gamma")
    counts = np.bincount(users.column("tasks"), minlength=users.n_tasks)
    return np.maximum(counts, 1).astype(np.float64) ** -float(gamma)


def refuse_bad_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that is not positive."""
    if not tolerance > 0:
        raise InputError(f"Expected a tolerance > 0, got {tolerance}.", argument="tolerance")
