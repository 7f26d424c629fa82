"""The joint allocation over users and tasks: weights w_ij = a_j ω_i, both sides chosen together.

It minimises F(w) = Σ_i cost_i (n_i / s_i)², s_i = Σ_{j ∈ Ω_i} w_ij, subject to Σ_{i ∈ Ω^j} w_ij² ≤ 1 for every user j.
With w_ij = ω_i that is eq. 9; here every user may have its own scale. The best weights are ω normalised per user,
a_j = 1/‖ω_{Ω^j}‖, where ω solves

    ω_i = (cost_i n_i² / t_i³)^(1/4),   t_i = Σ_{j ∈ Ω_i} 1/‖ω_{Ω^j}‖ = s_i / ω_i.

The right-hand side is a contraction in log ω with factor 3/4, so repeating it finds the solution, with a bound on the
remaining gap (docs/proofs/weights.md). s_i is a weighted count of sensitivity 1: if the graph is private, each
repetition costs one release. From equal weights, t_i is the popularity that `SplitEqually` measures; if all users are
alike, it is proportional to n_i, and the first step is eq. 11, exponent (1 + γ)/4.

Equation numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from apportion.allocation.policies import Allocated, Count, CountedPolicy, Expected, ReleasedCounts
from apportion.allocation.weightings import TaskFactors
from apportion.data import Interactions
from apportion.data.users import UserParts, Users, in_memory
from apportion.errors import InputError
from apportion.published.skew.exact import (
    PUBLIC_GRAPH,
    CertifiedAllocation,
    Floats,
    PublicGraph,
    PublicGraphPolicy,
    public_costs,
    refuse_bad_tolerance,
    summed,
)


def solve_joint(
    indptr: ArrayLike, tasks: ArrayLike, cost: ArrayLike, tolerance: float = 1e-6, max_steps: int = 1_000
) -> CertifiedAllocation:
    """Minimise Σ_i cost_i (n_i / Σ_j w_ij)² subject to Σ_i w_ij² ≤ 1 for every user j, for a public graph.

    Args:
        indptr: where each user's tasks begin, starting with 0.
        tasks: the tasks of all users, user after user.
        cost: one positive number per task, n_i^(−γ) as in eq. 9; ignored for tasks that nobody has.
        tolerance: the largest gap to the best, as a fraction of it.
        max_steps: when to give up.

    Returns:
        ω, scaled to a largest value of 1; the weights are ω_i / ‖ω_{Ω^j}‖.

    Raises:
        ArithmeticError: if the gap is still above the tolerance after `max_steps`.

    >>> solution = solve_joint([0, 1, 3], [0, 0, 1], [1.0, 1.0])
    >>> np.round(solution.omega, 3), solution.gap <= 1e-6
    (array([0.646, 1.   ]), True)
    """
    refuse_bad_tolerance(tolerance)
    graph = PublicGraph(indptr, tasks, np.size(cost))
    scaled_costs = graph.costs(cost) * graph.users_per_task**2
    omega = np.ones(len(scaled_costs))
    objective = bound = 0.0
    for step in range(max_steps):
        norms = np.sqrt(graph.over_tasks(omega**2))
        over_users = graph.over_users(1 / norms)
        objective = float((scaled_costs / (omega * over_users) ** 2).sum())
        if len(omega):
            bound = float(np.cbrt(scaled_costs * omega**2).sum() ** 3 / norms.sum() ** 2)
        if objective <= bound * (1 + tolerance):
            scale = omega.max(initial=0.0) or 1.0
            return CertifiedAllocation(graph.on_all_tasks(omega / scale), objective, bound, step)
        omega = _next_omega(scaled_costs, over_users)
    raise ArithmeticError(
        f"The gap to the best allocation is {objective / bound - 1:.3g} after {max_steps} steps, not {tolerance:g}."
    )


def joint_weights(data: Interactions, gamma: float, tolerance: float = 1e-6) -> TaskFactors:
    """Return the jointly best weights over users and tasks for a public graph. See `ExactJoint`."""
    return ExactJoint(gamma, tolerance).weighed(data.as_users)[0]


@dataclass(frozen=True)
class ExactJoint(PublicGraphPolicy):
    """The joint allocation for a public graph. **Private only if the graph is public**; `Joint` is for private graphs.

    Privacy: as with `exact_weights`, ω depends on everybody's task list. Releases with these weights are private for
    values and features only, **not for who has which task**, and their statements say so.
    """

    tolerance: float = 1e-6

    def allocate(self, users: UserParts, count: Count, n_users: float) -> Allocated:
        """Solve for this graph; nothing is released."""
        held = in_memory(users, "An exact solution for the whole graph")
        weights, total = self.weighed(held)
        return Allocated(weights, summed(held, total))

    def weighed(self, users: Users) -> tuple[TaskFactors, Floats]:
        """Return the weights and their sums."""
        costs, tasks = public_costs(users, self.gamma), users.column("tasks")
        omega = solve_joint(users.indptr, tasks, costs, self.tolerance).omega
        graph = PublicGraph(users.indptr, tasks, users.n_tasks)
        present = omega[graph.present]
        sums = present * graph.over_users(1 / np.sqrt(graph.over_tasks(present**2)))
        description = f"joint over users and tasks, gamma {self.gamma:g}, {PUBLIC_GRAPH}"
        return TaskFactors(omega, description, neighbours=self.neighbours), graph.on_all_tasks(sums)


@dataclass(frozen=True)
class Joint(CountedPolicy):
    """The joint allocation by released counts: a few steps of the fixed point, one release each.

    Every round releases s_i = Σ_j w_ij for the weights of the round before (the first: the equal split) and takes one
    step with t_i = s_i / ω_i. A user's weights depend on its own tasks and on released values.

    Privacy: `rounds` releases of counts, each of sensitivity 1 to adding or removing one user.

    Attributes:
        gamma: 1 for strongly convex losses and ridge, 0 for convex ones.
        rounds: number of steps; one step from the equal split is eq. 11 if all users are alike.
        floor: released sums are floored at this fraction of their mean.
    """

    gamma: float = 1.0
    rounds: int = 2
    floor: float = 0.05

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"Expected at least 1 round, got {self.rounds}.", argument="rounds")
        if not (np.isfinite(self.gamma) and self.floor >= 0):
            raise InputError(
                f"Expected a finite gamma and a floor >= 0, got {self.gamma} and {self.floor}.", argument=None
            )

    @property
    def releases(self) -> int:
        """The number of releases: one for each round."""
        return self.rounds

    def weights(self, n_tasks: int, count: Count) -> TaskFactors:
        """Release and step, `rounds` times."""
        released: list[ReleasedCounts] = []
        for _ in range(self.rounds):
            omega = self._omegas(released, n_tasks)[-1]
            released.append(count(TaskFactors(omega, self._description)))
        return TaskFactors(self._omegas(released, n_tasks)[-1], self._description)

    def expected(self, released: Sequence[ReleasedCounts], n_users: float, n_tasks: int) -> Expected:
        """Return expected sums from the last release: Σ_j w_ij ≈ ω_i t_i / r, r² = Σ ω² t / Σ ω'² t."""
        *_, before, omega = self._omegas(released, n_tasks)
        over_users = np.maximum(released[-1].total, 1e-9) / before
        ratio = np.sqrt((omega**2 * over_users).sum() / (before**2 * over_users).sum())
        total = omega * over_users / ratio
        return Expected(total, total / np.maximum(released[0].users_per_task, 1e-9))

    def _omegas(self, released: Sequence[ReleasedCounts], n_tasks: int) -> list[Floats]:
        """Return equal weights, and the weights after each release, scaled to a largest value of 1."""
        omegas = [np.ones(n_tasks)]
        for counts in released:
            users = released[0].floored(self.floor) * released[0].typical_root
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                omega = _next_omega(users ** (2 - self.gamma), counts.floored(self.floor) / omegas[-1])
                omega = omega / omega.max()
            if not np.isfinite(omega).all():  # check every task, whichever user has it
                raise InputError(
                    f"Weights for gamma = {self.gamma:g} are not finite; use a gamma nearer to 1, or a floor.",
                    argument=None,
                )
            omegas.append(np.maximum(omega, _LEAST_OMEGA))
        return omegas

    @property
    def _description(self) -> str:
        return f"joint over users and tasks, gamma {self.gamma:g}, by released counts, normalised"


_LEAST_OMEGA = 1e-6  # relative to the largest, so that no square underflows, whichever user has the task


def _next_omega(scaled_costs: Floats, over_users: Floats) -> Floats:
    """Return (cost_i n_i² / t_i³)^(1/4), where `over_users` is t."""
    return np.asarray(np.sqrt(np.sqrt(scaled_costs / over_users**3)))
