"""The paper's bounds checked by measurement: excess empirical risk over sweeps of m, n, d and β.

The bounds (13), (14) and (15) hold for any data. To see their powers rather than merely stay below them, the data are
such that the inequalities of the proofs are nearly equalities:

- features are uniform on the sphere of radius Γ_x = 1, so that d enters through the noise alone, and labels are linear
  with parameters of length Γ_* = 1;
- λ = 2 is large beside the features' second moment 1/d, so that the Hessian of a task is about λ n_i, as in the proofs;
- task i has n_i = p_i n users, drawn uniformly (Assumption 4.1), with p_i log-uniform between 0.1 and 0.9, so that
  task sizes differ by a factor of 9 whatever m and n are;
- noise is small beside λ n_i ω_i: the regime in which a linear expansion holds.

Õ hides the factor c(n) by which ω must fall so that no user exceeds the budget. Here c is set to what the user who
takes part in every task needs, `headroom`, which depends on the distribution of p alone: no weight is ever clipped, and
c is the same over a sweep. (Lemma A.4, which is to give c(n) = O(log n), uses ω_i² ≤ B. That needs n_i ≥ n/m for γ = 1:
a user of a rarer task is clipped whatever c log n is. With the p above it holds for m ≥ 10.)

The paper's budget β is μ² = 2β here. Sizes of tasks are public (`KnownCounts`), so that λ ω_i n_i can be added after
the release exactly. Excess risk is that of the unweighted objective (eq. 1), in closed form, since it is quadratic.

- (13): Algorithm 1, γ = 1, half of the budget for Gram matrices. Powers m², n⁻¹, d¹, β⁻¹.
- (15): Algorithm 2, squared loss with ridge, rule (b) and its T, last iterate. The same powers.
- (14): Algorithm 2, squared loss on the unit ball, rule (a) and its T, last iterate, γ = 0. An upper bound, with the
  constant of the lemma it rests on: for step sizes ‖C‖/(G√t), E f(θ_T) − f* ≤ 2 ‖C‖ G (2 + log T)/√T (Shamir and
  Zhang, 2013, Theorem 2), so that the sum over tasks is at most Σ_i 2 ‖C‖ Γ √(n_i² + T d/(2 ω_i²)) (2 + log T)/√T.
- (21): Algorithm 1 with weights from n̂_i + s, |n̂_i − n_i| ≤ s, against exact counts, same noise: the ratio of excess
  risks is at most 1 + (2/m) Σ s/n_i. What the ridge is multiplied with is released in both runs.

`make claim NAME=skew-theory` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import ClosedForm, KnownCounts
from apportion.data import Interactions, Vocabulary
from apportion.engines import LocalEngine
from apportion.privacy import Budget, SeededNoise
from apportion.privacy.gaussian import epsilon_of
from apportion.regression import MultiTaskERM, MultiTaskRidge, Observations

Floats = NDArray[np.float64]

RIDGE, DELTA = 2.0, 1e-6
LOW, HIGH = 0.1, 0.9  # of the users take part in the rarest and in the most popular task
POWERS = {"m": 2.0, "n": -1.0, "d": 1.0, "β": -1.0}
DIAMETER, STEEPEST = 2.0, 4.0  # of the unit ball; of the squared loss on it


@dataclass(frozen=True)
class Point:
    """One setting: m tasks, n users, d features, budget β."""

    m: int = 32
    n: int = 2000
    d: int = 8
    beta: float = 0.5

    def moved(self, axis: str, value: float) -> Point:
        """The same setting with another value on one axis."""
        sizes = {"m": self.m, "n": self.n, "d": self.d}
        return Point(**{**sizes, axis: int(value)}, beta=self.beta) if axis in sizes else Point(**sizes, beta=value)


@dataclass(frozen=True)
class Sweeps:
    """What is measured, and how often."""

    ridge: Mapping[str, Sequence[float]] = field(
        default_factory=lambda: {
            "m": (16, 32, 64, 128),
            "n": (1000, 2000, 4000, 8000),
            "d": (4, 8, 16, 32),
            "β": (0.25, 0.5, 1.0, 2.0),
        }
    )
    descent: Mapping[str, Sequence[float]] = field(
        default_factory=lambda: {
            "m": (16, 32, 64, 128),
            "n": (1000, 1414, 2000, 2828),
            "d": (4, 8, 16, 32),
            "β": (0.25, 0.5, 1.0, 2.0),
        }
    )
    ridge_base: Point = Point()
    descent_base: Point = Point()
    count_errors: Sequence[float] = (0.1, 0.5, 1.0)  # s, as a fraction of the rarest task's users
    ridge_seeds: int = 20
    descent_seeds: int = 6
    bound_seeds: int = 2


@dataclass(frozen=True, eq=False)
class Tasks:
    """Private rows, public sizes of tasks, and the quadratic objective of every task."""

    rows: Observations
    sizes: Floats
    grams: Floats
    moments: Floats

    def excess(self, coefficients: Floats, ridge: float) -> float:
        """Σ_i L_i(θ_i) − min L_i, over all of R^d, for (θ·x − y)² + ridge ‖θ‖² summed over observations."""
        hessians = self.grams + (ridge * self.sizes)[:, None, None] * np.eye(self.grams.shape[1])
        apart = coefficients - np.linalg.solve(hessians, self.moments[:, :, None])[:, :, 0]
        return float(np.einsum("td,tde,te->", apart, hessians, apart))


def fractions(m: int) -> Floats:
    """p_i: the quantiles of a log-uniform distribution on [LOW, HIGH]."""
    return np.asarray(LOW * (HIGH / LOW) ** ((np.arange(m) + 0.5) / m))


def headroom(gamma: float) -> float:
    """c: Σ_i ω_i² of a user who takes part in all tasks, over the mean of that sum over users; for many tasks."""
    p = fractions(4096)
    return float((p ** (-(1 + gamma) / 2)).mean() / (p ** ((1 - gamma) / 2)).mean())


def draw(point: Point, seed: int) -> Tasks:
    """Draw users, features and labels."""
    rng = np.random.default_rng(seed)
    sizes = np.rint(fractions(point.m) * point.n).astype(np.int64)
    users = np.concatenate([rng.choice(point.n, size, replace=False) for size in sizes])
    tasks = np.repeat(np.arange(point.m), sizes)
    order = np.lexsort((tasks, users))
    users, tasks = users[order], tasks[order]
    features, parameters = (_on_sphere(rng, count, point.d) for count in (len(users), point.m))
    labels = np.einsum("nd,nd->n", features, parameters[tasks])
    names = (Vocabulary.of_range(point.n, name="user"), Vocabulary.of_range(point.m, name="task"))
    data = Interactions.from_codes(users, tasks, user_ids=names[0], task_ids=names[1])
    of_task = [features[tasks == task] for task in range(point.m)]
    grams = np.stack([x.T @ x for x in of_task])
    moments = np.stack([x.T @ labels[tasks == task] for task, x in enumerate(of_task)])
    return Tasks(Observations(data, features, labels), sizes.astype(np.float64), grams, moments)


def _on_sphere(rng: np.random.Generator, count: int, dimension: int) -> Floats:
    vectors = rng.standard_normal((count, dimension))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def weights(sizes: Floats, n: int, gamma: float) -> KnownCounts:
    """Eq. 11 with β̄ = β/c, in this library's units: ω_i/√β from counts that are taken as public.

    `KnownCounts` wants sums of the equal split, from which it reckons n_i as total_i · Σ total / n.
    """
    users = n / headroom(gamma)
    return KnownCounts(ClosedForm((1 + gamma) / 4, floor=0.0), sizes * np.sqrt(users / sizes.sum()), users)


def omega(sizes: Floats, n: int, gamma: float) -> Floats:
    """ω_i/√β of the weights above."""
    scale = np.sqrt(n / headroom(gamma) / (sizes ** ((1 - gamma) / 2)).sum())
    return np.asarray(scale * sizes ** (-(1 + gamma) / 4))


def budget(beta: float) -> Budget:
    """(α, αβ)-RDP for every α is what μ² = 2β of Gaussian DP gives."""
    return Budget(epsilon_of(float(np.sqrt(2 * beta)), DELTA), DELTA)


def excess_of_ridge(
    tasks: Tasks, point: Point, seed: int, counts: Floats | None = None, exposure_share: float = 0.0
) -> float:
    """Algorithm 1 with γ = 1, weights from the true sizes or from others."""
    spent = budget(point.beta)
    model = MultiTaskRidge(
        spent.epsilon,
        DELTA,
        ridge=RIDGE,
        solve="psd",
        gram_share=0.5,
        exposure_share=exposure_share,
        allocation=weights(tasks.sizes if counts is None else counts, point.n, gamma=1.0),
        noise=SeededNoise(seed),
        engine=LocalEngine(np.float64),
    )
    return tasks.excess(model.fit_observations(tasks.rows).coef_, RIDGE)


def excess_of_descent(tasks: Tasks, point: Point, seed: int, *, strongly_convex: bool) -> tuple[float, int]:
    """Algorithm 2 with rule (b) and γ = 1, or rule (a) and γ = 0; also the number of steps."""
    spent = budget(point.beta)
    ridge = RIDGE if strongly_convex else 0.0
    model = MultiTaskERM(
        "squared",
        spent.epsilon,
        DELTA,
        ridge=ridge,
        rule="strongly convex" if strongly_convex else "convex",
        max_steps=20_000,
        average=False,
        floor=False,
        exposure_share=0.0,
        allocation=weights(tasks.sizes, point.n, gamma=float(strongly_convex)),
        noise=SeededNoise(seed),
        engine=LocalEngine(np.float64),
    )
    coefficients = model.fit_observations(tasks.rows).coef_
    return tasks.excess(coefficients, ridge), model.n_steps_


@dataclass(frozen=True)
class Slope:
    """Excess risk along one axis: its power by least squares on logarithms, and the one predicted.

    Attributes:
        axis: m, n, d or β.
        values: where it was measured.
        excess: mean excess risk there.
        slope: the measured power.
        error: its standard error, from the spread over seeds.
        predicted: the bound's power.
        over_bound: measured excess over the bound's expression with constant 1 and the factor c, at every value.
    """

    axis: str
    values: tuple[float, ...]
    excess: tuple[float, ...]
    slope: float
    error: float
    predicted: float
    over_bound: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """Relative distance of the measured power from the predicted one."""
        return abs(self.slope / self.predicted - 1)


Measure = Callable[[Tasks, Point, int], float]


def slopes(
    base: Point, sweep: Mapping[str, Sequence[float]], measure: Measure, n_seeds: int, steepest: float
) -> list[Slope]:
    """Sweep every axis from the base point; `steepest` is Γ of the bound Γ² d m² c / (n λ β)."""
    found = []
    for axis, values in sweep.items():
        points = [base.moved(axis, value) for value in values]
        excess = np.array([_repeated(measure, point, n_seeds) for point in points])
        design = np.vander(np.log(np.asarray(values, np.float64)), 2)
        fitted = np.linalg.pinv(design) @ np.log(excess)  # one line per seed
        means = excess.mean(axis=1)
        slope = float((np.linalg.pinv(design) @ np.log(means))[0])
        bound = [steepest**2 * p.d * p.m**2 * headroom(1.0) / (p.n * RIDGE * p.beta) for p in points]
        ratios = tuple(float(ratio) for ratio in means / np.array(bound))
        error = float(fitted[0].std(ddof=1) / np.sqrt(n_seeds))
        listed = tuple(float(value) for value in values)
        found.append(Slope(axis, listed, tuple(means.tolist()), slope, error, POWERS[axis], ratios))
    return found


def _repeated(measure: Measure, point: Point, n_seeds: int) -> list[float]:
    """One draw of the data, several of the noise."""
    tasks = draw(point, seed=0)
    return [measure(tasks, point, seed) for seed in range(n_seeds)]


def ridge_slopes(sweeps: Sweeps) -> list[Slope]:
    """(13)."""
    return slopes(sweeps.ridge_base, sweeps.ridge, excess_of_ridge, sweeps.ridge_seeds, 1.0)


def descent_slopes(sweeps: Sweeps) -> list[Slope]:
    """(15)."""

    def measure(tasks: Tasks, point: Point, seed: int) -> float:
        return excess_of_descent(tasks, point, seed, strongly_convex=True)[0]

    return slopes(sweeps.descent_base, sweeps.descent, measure, sweeps.descent_seeds, STEEPEST)


@dataclass(frozen=True)
class Bounded:
    """A measured quantity, and what it must not exceed."""

    where: str
    measured: float
    bound: float


def convex_bounds(sweeps: Sweeps) -> list[Bounded]:
    """(14): excess risk of rule (a) at every point of the sweep, against its bound with the lemma's constant.

    The minimum is taken over all of R^d, which makes the measured excess larger than within the ball.
    """
    found: dict[Point, Bounded] = {}
    for axis, values in sweeps.descent.items():
        for value in values:
            point = sweeps.descent_base.moved(axis, value)
            if point not in found:
                found[point] = _convex_bound(point, sweeps.bound_seeds)
    return list(found.values())


def _convex_bound(point: Point, n_seeds: int) -> Bounded:
    tasks = draw(point, seed=0)
    runs = [excess_of_descent(tasks, point, seed, strongly_convex=False) for seed in range(n_seeds)]
    steps = runs[0][1]
    noise = steps * point.d / (2 * point.beta * np.square(omega(tasks.sizes, point.n, 0.0)))
    lengths = STEEPEST * np.sqrt(np.square(tasks.sizes) + noise)
    bound = float((2 * DIAMETER * lengths * (2 + np.log(steps)) / np.sqrt(steps)).sum())
    where = f"m={point.m}, n={point.n}, d={point.d}, β={point.beta:g}, T={steps}"
    return Bounded(where, float(np.mean([excess for excess, _ in runs])), bound)


@dataclass(frozen=True)
class CountCost:
    """What approximate counts cost: the ratio of excess risks, its standard error, and the paper's factors.

    Attributes:
        relative_error: s over the users of the rarest task.
        ratio: mean excess with approximate counts over mean excess with exact ones, same noise.
        error: its standard error.
        predicted: (1/m) Σ (n̂_i + s)/n_i of eq. 21.
        factor: 1 + (2/m) Σ s/n_i, its upper bound.
    """

    relative_error: float
    ratio: float
    error: float
    predicted: float
    factor: float


def count_costs(sweeps: Sweeps) -> list[CountCost]:
    """(21): excess risk with counts that are off by up to s, against exact counts."""
    point, share = sweeps.ridge_base, 0.05
    tasks, rng = draw(point, seed=0), np.random.default_rng(1)
    seeds = range(sweeps.ridge_seeds)
    exact = np.array([excess_of_ridge(tasks, point, seed, exposure_share=share) for seed in seeds])
    found = []
    for relative in sweeps.count_errors:
        slack = relative * tasks.sizes.min()
        padded = tasks.sizes + rng.uniform(-slack, slack, point.m) + slack
        rough = np.array([_with_rough_counts(tasks, point, seed, padded, share) for seed in seeds])
        ratios = rough / exact.mean()
        error = float((ratios - exact / exact.mean() * ratios.mean()).std(ddof=1) / np.sqrt(len(seeds)))
        predicted = float((padded / tasks.sizes).mean())
        found.append(
            CountCost(relative, float(ratios.mean()), error, predicted, float(1 + 2 * (slack / tasks.sizes).mean()))
        )
    return found


def _with_rough_counts(tasks: Tasks, point: Point, seed: int, padded: Floats, share: float) -> float:
    """Eq. 19: ω̂_i = (n̂_i + s)^(−1/2) / √(m/(n β̄)); the sum under the root is of the exact form, m, whatever n̂ is."""
    return excess_of_ridge(tasks, point, seed, counts=padded, exposure_share=share)
