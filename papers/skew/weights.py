"""How much the exact and the joint allocation gain over the closed form, and whether a private ridge's error follows.

Graphs are skewed on both sides: the popularity of tasks falls as a power of their rank, the activity of users is
log-normal, and rare tasks belong to everybody alike, or more to heavy users, or more to light ones. For each graph and
each way to choose weights the study reports the objective F = Σ_i n_i^(2−γ) / (Σ_j w_ij)², which is eq. 9 where
w_ij = ω_i, and the test error of ridge regressions solved from sums released with those weights. Tasks are linear as in
App. C of the paper: features u_j and parameters θ_i in the unit ball of five dimensions, labels u_j · θ_i with a noise
of standard deviation 0.001.

Weights that need the graph, or counts taken from it, are for neighbours of one graph, which differ in the values and
features of one user; all of them are compared under that relation. Policies that release the counts they need are for
adding or removing a user, which is more: their errors are compared among themselves alone.

`make claim NAME=skew-weights` runs it; the number of users is public here, the list of tasks too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.allocation import Adaptive, Allocation, SplitEqually, TaskFactors, adaptive, closed_form
from apportion.data import Interactions
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.estimators.counts import allocated
from apportion.privacy import REPLACE_VALUES_PUBLIC_GRAPH, Budget, Neighbours, Session
from apportion.privacy.bounds import Labels, Rows
from apportion.privacy.contributions import Kernels, TaskCounts, TaskGrams, TaskMoments, Weighting
from apportion.privacy.noise import SeededNoise
from apportion.published.skew import Joint, joint_weights, solve_joint, solve_public_graph

Floats = NDArray[np.float64]

DIMENSION, LABEL_NOISE, DELTA = 5, 1e-3, 1e-5
COUNT_SHARE = 0.1  # of the budget, for the methods that release counts
RIDGE = 2.0  # in standard deviations of the noise in a Gram matrix
SCALED, CLIPPED, NORMALISED = "closed form, scaled", "closed form, clipped", "closed form, normalised"
EXACT, EXACT_NORMALISED, JOINT = "exact", "exact, normalised", "joint"
EQUAL, PRIVATE_ADAPTIVE, PRIVATE_JOINT = "equal split", "adaptive, released counts", "joint, released counts"


@dataclass(frozen=True)
class Skew:
    """How uneven a graph is.

    Attributes:
        tasks: popularity of the task of rank r is proportional to r**-tasks.
        users: standard deviation of the logarithm of users' activity.
        tail: who has the rare tasks: "everybody", "heavy" users or "light" users.
    """

    tasks: float
    users: float
    tail: str = "everybody"

    def __str__(self) -> str:
        return f"tasks {self.tasks:g}, users {self.users:g}, tail: {self.tail}"


SKEWS = tuple(
    Skew(tasks, users, tail)
    for tasks in (0.5, 1.0, 1.5)
    for users, tail in ((0.0, "everybody"), (0.75, "everybody"), (1.5, "everybody"), (1.5, "heavy"), (1.5, "light"))
)


@dataclass(frozen=True)
class Size:
    """How large a graph is, and how often each release is repeated."""

    n_users: int = 10_000
    n_tasks: int = 400
    tasks_per_user: int = 20
    seeds: int = 20


@dataclass(frozen=True, eq=False)
class Problem:
    """Observations to learn from and to test on, and each user's features."""

    train: Interactions
    test: Interactions
    features: Floats


def skewed_graph(skew: Skew, size: Size, rng: np.random.Generator) -> Interactions:
    """Each user takes as many tasks as its activity says, by popularity, whose power depends on who has the tail."""
    activity = np.exp(skew.users * rng.standard_normal(size.n_users))
    wanted = np.rint(activity / activity.mean() * size.tasks_per_user)
    degrees = np.clip(wanted, 1, size.n_tasks // 2).astype(np.int64)
    rank = activity.argsort().argsort() / size.n_users  # 0 for the lightest user
    power = {"everybody": np.ones(size.n_users), "heavy": 1.5 - rank, "light": 0.5 + rank}[skew.tail] * skew.tasks
    appeal = rng.permutation(-np.log(np.arange(1.0, size.n_tasks + 1)))
    keys = power[:, None] * appeal + rng.gumbel(size=(size.n_users, size.n_tasks))
    order = np.argsort(-keys, axis=1)
    users, places = np.nonzero(np.arange(size.n_tasks) < degrees[:, None])
    return Interactions.from_arrays(users, order[users, places], task_ids=np.arange(size.n_tasks))


def linear_problem(skew: Skew, size: Size, seed: int) -> Problem:
    """Labels of linear tasks on a skewed graph, split 80 to 20."""
    rng = np.random.default_rng(seed)
    graph = skewed_graph(skew, size, rng)
    features, parameters = _in_unit_ball(rng, size.n_users), _in_unit_ball(rng, size.n_tasks)
    labels = np.einsum("nd,nd->n", features[graph.users], parameters[graph.tasks])
    labelled = graph.with_values(labels + LABEL_NOISE * rng.standard_normal(len(labels)))
    train, test = labelled.split_by_value(rng, (0.8, 0.2))
    return Problem(train, test, features)


def objective(data: Interactions, sums: Floats, gamma: float) -> float:
    """F of the weights with these sums, over the tasks that somebody has."""
    counts = np.bincount(data.tasks, minlength=data.n_tasks)
    present = counts > 0
    return float((counts[present] ** (2.0 - gamma) / sums[present] ** 2).sum())


def sums_of(data: Interactions, weights: Weighting) -> Floats:
    """Σ_j w_ij, by a release whose noise (4e-5) does not matter: the data are synthetic."""
    session = Session(Budget(1e9, DELTA), noise=SeededNoise(0), neighbours=weights.neighbours)
    share = session.plan(all=1.0).one("all")
    counts = add_up_one(LocalEngine(threads=1), data.as_users, TaskCounts(weights))
    sums: Floats = session.release("sums", counts, share)
    return sums


# -- ways to choose weights --


def public_weights(data: Interactions, gamma: float, n_users: int) -> dict[str, Weighting]:
    """Weights that need public counts (the closed forms) or the graph (exact and joint), all for a public graph."""
    counts = np.maximum(np.bincount(data.tasks, minlength=data.n_tasks), 1.0)
    exponent, indptr = (1 + gamma) / 4, data.by_user.indptr
    omega = counts**-exponent
    largest = float(np.add.reduceat(np.square(omega)[data.tasks], indptr[:-1][np.diff(indptr) > 0]).max())
    exact = solve_public_graph(indptr, data.tasks, counts**-gamma).omega
    known = np.where(exact > 0, exact, exact.max())  # a task that nobody has needs some number
    made = {
        SCALED: _same_for_all_users(omega / np.sqrt(largest)),
        CLIPPED: closed_form(counts, exponent, n_users),
        NORMALISED: adaptive(counts, exponent),
        EXACT: _same_for_all_users(exact),
        EXACT_NORMALISED: adaptive(known, -1.0),
        JOINT: joint_weights(data, gamma),
    }
    of_graph = {name: replace(weights, neighbours=REPLACE_VALUES_PUBLIC_GRAPH) for name, weights in made.items()}
    return {EQUAL: SplitEqually(REPLACE_VALUES_PUBLIC_GRAPH), **of_graph}


def private_policies(gamma: float) -> dict[str, Allocation]:
    """Policies that release the counts they need."""
    return {PRIVATE_ADAPTIVE: Adaptive((1 + gamma) / 4), PRIVATE_JOINT: Joint(gamma)}


def private_weights(data: Interactions, policy: Allocation, session: Session, n_users: int) -> Weighting:
    """A policy's weights; all its counts together cost `COUNT_SHARE` of the budget."""
    shares = session.plan(counts=[COUNT_SHARE / policy.releases] * policy.releases).several("counts")
    return allocated(data.as_users, policy, session, LocalEngine(threads=1), shares, float(n_users)).weights


def _same_for_all_users(omega: Floats) -> TaskFactors:
    return TaskFactors(omega, "one weight per task, feasible for every user", normalised=False)


# -- one private ridge --


@dataclass(frozen=True, eq=False)
class UserFeatures:
    """The features of every user, who carry them as a column; all are in the unit ball."""

    norm: float = 1.0

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        """Clipped, since the column is not known to be bounded."""
        return Rows.clipped(users.of_user("features"), self.norm)


@dataclass(frozen=True, eq=False)
class UserLabels:
    """The labels of every row."""

    bound: float = 1.0

    def __call__(self, users: Users, kernels: Kernels) -> Labels:
        """Clipped to the bound."""
        return Labels.clipped(users.column("values").astype(np.float64), self.bound)


class PrivateRidge:
    """All tasks' ridge regressions from one Gram and one moment release, and their error on held-out observations."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._engine = LocalEngine(threads=1)
        self._users = problem.train.as_users.with_user_columns(features=problem.features)

    def sums(self, weights: Weighting) -> tuple[Any, Any]:
        """What is released, still sealed."""
        rows, labels = UserFeatures(), UserLabels()
        grams, moments = self._engine.add_up(
            self._users, [TaskGrams(weights, rows), TaskMoments(weights, rows, labels)]
        )
        return grams, moments

    def error(self, sums: tuple[Any, Any], session: Session) -> float:
        """Release with what is left of the budget, half each; solve; root mean squared error on the test rows."""
        left = 1 - session.spent
        shares = session.plan(grams=left / 2, moments=left / 2)
        grams = session.release("grams", sums[0], shares.one("grams"))
        moments = session.release("moments", sums[1], shares.one("moments"))
        base = RIDGE * sums[0].l2_sensitivity / shares.one("grams").mu * np.eye(DIMENSION)
        solved, _ = linalg.solve_packed(linalg.project_psd(grams), moments, base, threads=1)
        test = self._problem.test
        predicted = np.einsum("nd,nd->n", self._problem.features[test.users], solved[test.tasks])
        return float(np.sqrt(np.mean(np.square(predicted - test.values))))


# -- the study --


@dataclass(frozen=True)
class Row:
    """One graph and one way to choose weights.

    Attributes:
        skew: of the graph.
        method: how weights were chosen.
        public_graph: whether neighbours are of one graph, which is public; else they add or remove a user.
        objective: F for γ = 1, the mean over seeds where counts are released; one for each ε.
        rmse: mean over seeds of the test error, for each ε.
        standard_error: of that mean.
    """

    skew: Skew
    method: str
    public_graph: bool
    objective: dict[float, float]
    rmse: dict[float, float]
    standard_error: dict[float, float]


def measure_skew(skew: Skew, size: Size, epsilons: tuple[float, ...], seed: int) -> list[Row]:
    """All methods on one graph; γ = 1, as ridge regression is strongly convex."""
    problem = linear_problem(skew, size, seed)
    ridge = PrivateRidge(problem)
    rows = []
    for method, weights in public_weights(problem.train, 1.0, size.n_users).items():
        value, sums = objective(problem.train, sums_of(problem.train, weights), 1.0), ridge.sums(weights)
        relation = weights.neighbours
        runs = {e: [(value, ridge.error(sums, session)) for session in _sessions(e, size, relation)] for e in epsilons}
        rows.append(_row(skew, method, runs, public_graph=True))
    for method, policy in private_policies(1.0).items():
        relation = policy.neighbours
        runs = {e: [_fit(problem, ridge, policy, each) for each in _sessions(e, size, relation)] for e in epsilons}
        rows.append(_row(skew, method, runs, public_graph=False))
    return rows


def _fit(problem: Problem, ridge: PrivateRidge, policy: Allocation, session: Session) -> tuple[float, float]:
    """F and the error of one run whose weights depend on what it releases."""
    weights = private_weights(problem.train, policy, session, problem.train.n_users)
    value = objective(problem.train, sums_of(problem.train, weights), 1.0)
    return value, ridge.error(ridge.sums(weights), session)


def _sessions(epsilon: float, size: Size, neighbours: Neighbours) -> Iterator[Session]:
    for seed in range(size.seeds):
        yield Session(Budget(epsilon, DELTA), noise=SeededNoise(seed), neighbours=neighbours)


def _row(skew: Skew, method: str, runs: dict[float, list[tuple[float, float]]], *, public_graph: bool) -> Row:
    values = {e: float(np.mean([value for value, _ in each])) for e, each in runs.items()}
    errors = {e: np.array([error for _, error in each]) for e, each in runs.items()}
    spread = {e: float(each.std(ddof=1) / np.sqrt(len(each))) for e, each in errors.items()}
    means = {e: float(each.mean()) for e, each in errors.items()}
    return Row(skew, method, public_graph, values, means, spread)


@dataclass(frozen=True)
class Gains:
    """Objectives on one graph, without noise: how far each is above the best, which is the joint one."""

    skew: Skew
    gamma: float
    scaled: float
    clipped: float
    normalised: float
    exact: float
    largest_gap: float


def objective_gains(skew: Skew, gamma: float, size: Size, seed: int) -> Gains:
    """F of the closed forms and of the exact solution, divided by F of the joint solution."""
    data = skewed_graph(skew, size, np.random.default_rng(seed))
    counts = np.maximum(np.bincount(data.tasks, minlength=data.n_tasks), 1.0)
    exact = solve_public_graph(data.by_user.indptr, data.tasks, counts**-gamma)
    joint = solve_joint(data.by_user.indptr, data.tasks, counts**-gamma)
    weights = public_weights(data, gamma, size.n_users)
    scaled, clipped, normalised = (
        objective(data, sums_of(data, weights[name]), gamma) / joint.objective for name in (SCALED, CLIPPED, NORMALISED)
    )
    gap = max(exact.gap, joint.gap)
    return Gains(skew, gamma, scaled, clipped, normalised, exact.objective / joint.objective, gap)


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's: the correlation of ranks."""
    one, other = (values.argsort().argsort() - (len(values) - 1) / 2 for values in (first, second))
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def agreement(rows: list[Row], epsilon: float) -> tuple[float, int]:
    """Of the pairs of methods on one graph whose errors differ by 3 standard errors: how many are ordered rightly.

    Both methods of a pair have the same neighbours.
    """
    right = total = 0
    for k, one in enumerate(rows):
        for other in rows[k + 1 :]:
            apart = one.rmse[epsilon] - other.rmse[epsilon]
            noise = np.hypot(one.standard_error[epsilon], other.standard_error[epsilon])
            alike = one.skew == other.skew and one.public_graph == other.public_graph
            if alike and abs(apart) > 3 * noise:
                total += 1
                right += (one.objective[epsilon] - other.objective[epsilon]) * apart > 0
    return right / max(total, 1), total


def _in_unit_ball(rng: np.random.Generator, n: int) -> Floats:
    drawn = rng.standard_normal((n, DIMENSION))
    projected: Floats = drawn / np.maximum(np.linalg.norm(drawn, axis=1, keepdims=True), 1.0)
    return projected
