"""Logistic regression on drug reviews: weights, sample limiting and no bound, at the paper's budgets and at real ones.

App. E.2, table 2. Label: a rating above the median; 8 features of 0 and 1, no intercept; gradients of rows are clipped
to norm 1; the loss is the average cross-entropy on the data that were fitted. Rows of a table:

- weights, h = 1 to 4: each user's total weight proportional to min(h, size);
- sample limit, h = 1 to 4: at most h rows of each user, drawn anew in every run;
- no bound: all rows alike;
- weights, h by formula, and sample limit, h by formula: the h that the library takes from public sizes and the budget.

What differs from the paper. It runs Algorithm 1 of Bassily, Smith and Thakurta (2014), a stochastic descent with one
user a step, accounted by amplification; here `UserERM` makes full-batch steps with exact accounting, so that losses are
comparable between rows, and between our tables, but not with the paper's numbers. Parameters stay in a ball of radius
10, not in the cube [-10, 10]^d that contains it. Neighbours replace one user's rows, and sizes are public, as in the
paper.

The paper's budgets are ε = 30, 40 and 50 at δ = 0.1: a mechanism that publishes one user in ten as they are has that δ,
so this is no guarantee worth the name (E13). The study is repeated at δ = 1/m² for m users, from ε = 1. Three things
are not private, for all rows alike: the median, the best h of a method, chosen on the data, and losses on the data.

`make claim NAME=contributions-logistic` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import ContributionPolicy, SampleLimit, Smooth, Unbounded
from apportion.privacy import SeededNoise
from apportion.regression.user_erm import UserERM
from papers.user_contributions import drugs

Floats = NDArray[np.float64]

RESULTS = Path(__file__).parent / "results"
WEIGHTS, LIMIT, NO_BOUND = "weights", "sample limit", "no bound"
WEIGHTS_BY_FORMULA, LIMIT_BY_FORMULA = "weights, h by formula", "sample limit, h by formula"
PAPERS_EPSILONS, PAPERS_DELTA = (30.0, 40.0, 50.0), 0.1
PAPERS_BEST = {30.0: (0.514, 0.553, 2.846), 40.0: (0.433, 0.472, 2.611), 50.0: (0.401, 0.423, 2.307)}
EPSILONS = (1.0, 3.0, 10.0, 30.0, 40.0, 50.0)
GRADIENT_BOUND, RADIUS = 1.0, 10.0


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows with a yes or no, and whose they are.

    Attributes:
        name: for tables.
        features: one row per label.
        labels: 0 or 1.
        groups: the user of each row.
    """

    name: str
    features: Floats
    labels: Floats
    groups: NDArray[np.generic]

    @classmethod
    def of_ratings(cls, name: str, features: Floats, ratings: Floats, groups: NDArray[np.generic]) -> Problem:
        """The label is whether a rating is above the median, which is taken from the data: not private."""
        return cls(name, features, (ratings > np.median(ratings)).astype(np.float64), groups)

    @cached_property
    def n_users(self) -> int:
        """How many users have rows."""
        return len(np.unique(self.groups))

    def loss(self, scores: Floats) -> float:
        """Average cross-entropy on the data."""
        return float(np.logaddexp(0.0, (1 - 2 * self.labels) * scores).mean())

    @cached_property
    def least_loss(self) -> float:
        """That of the best parameters, by Newton's method with a small ridge: no privacy, no bound on θ."""
        theta = np.zeros(self.features.shape[1])
        for _ in range(50):
            chances = 1 / (1 + np.exp(-self.features @ theta))
            slope = self.features.T @ (chances - self.labels) + 1e-6 * theta
            curved = (self.features.T * (chances * (1 - chances))) @ self.features + 1e-6 * np.eye(len(theta))
            theta = theta - np.linalg.solve(curved, slope)
        return self.loss(self.features @ theta)


def drug_reviews() -> Problem:
    """The paper's data, from APPORTION_DATA."""
    return Problem.of_ratings("drugs", *drugs.load_drugs())


def generated_reviews(seed: int = 0) -> Problem:
    """A stand-in of the same shape."""
    return Problem.of_ratings("generated drugs", *drugs.standin_drugs(seed))


@dataclass(frozen=True)
class Study:
    """What is run; a δ of None is 1/m²."""

    budgets: tuple[tuple[float, float | None], ...] = (
        *((epsilon, PAPERS_DELTA) for epsilon in PAPERS_EPSILONS),
        *((epsilon, None) for epsilon in EPSILONS),
    )
    thresholds: tuple[int, ...] = (1, 2, 3, 4)
    runs: int = 50

    def methods(self) -> dict[str, Callable[[int], ContributionPolicy]]:
        """How contributions are bounded in a run, by name."""
        made: dict[str, Callable[[int], ContributionPolicy]] = {}
        for h in self.thresholds:
            made[f"{WEIGHTS}, h = {h}"] = lambda run, h=h: Smooth(float(h))  # type: ignore[misc]
        for h in self.thresholds:
            made[f"{LIMIT}, h = {h}"] = lambda run, h=h: SampleLimit(h, run)  # type: ignore[misc]
        made[NO_BOUND] = lambda run: Unbounded()
        made[WEIGHTS_BY_FORMULA] = lambda run: Smooth()
        made[LIMIT_BY_FORMULA] = lambda run: SampleLimit(None, run)
        return made


@dataclass(frozen=True, eq=False)
class Losses:
    """All methods at one budget; run k of each has the same noise seed.

    Attributes:
        problem: its name.
        epsilon: ε.
        delta: δ.
        least: the loss without privacy.
        by_method: losses of the runs.
        thresholds: h of each method in its last run.
    """

    problem: str
    epsilon: float
    delta: float
    least: float
    by_method: dict[str, Floats]
    thresholds: dict[str, float]

    def best(self, family: str) -> str:
        """The method of a family, weights or sample limit, with the least mean loss on the data."""
        within = [name for name in self.by_method if name.startswith(f"{family}, h = ")]
        return min(within, key=lambda name: float(self.by_method[name].mean()))

    @property
    def compared(self) -> tuple[str, str, str]:
        """The best weights, the best sample limit, no bound: in the order that is claimed."""
        return self.best(WEIGHTS), self.best(LIMIT), NO_BOUND

    @property
    def means(self) -> tuple[float, ...]:
        """Their mean losses."""
        return tuple(float(self.by_method[name].mean()) for name in self.compared)

    @property
    def t_statistics(self) -> tuple[float, float]:
        """Of the two differences between neighbours in that order, run by run."""
        first, second, third = (self.by_method[name] for name in self.compared)
        return _t(second - first), _t(third - second)

    @property
    def in_order(self) -> bool:
        """Whether each mean is below the next."""
        first, second, third = self.means
        return first < second < third


def _t(differences: Floats) -> float:
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return float(differences.mean()) / max(error, 1e-300)


def losses(problem: Problem, study: Study) -> Iterator[Losses]:
    """Every method at every budget, one budget after another."""
    for epsilon, given in study.budgets:
        delta = 1 / problem.n_users**2 if given is None else given
        runs: dict[str, Floats] = {}
        thresholds: dict[str, float] = {}
        for name, bounding in study.methods().items():
            fits = [fitted(problem, epsilon, delta, bounding(run), run) for run in range(study.runs)]
            runs[name] = np.array([problem.loss(fit.decision_function(problem.features)) for fit in fits])
            thresholds[name] = fits[-1].threshold_
        yield Losses(problem.name, epsilon, delta, problem.least_loss, runs, thresholds)


def fitted(problem: Problem, epsilon: float, delta: float, bounding: ContributionPolicy, seed: int) -> UserERM:
    """One fit in the paper's setting; steps are the library's, from each method's own noise."""
    model = UserERM(
        "logistic",
        epsilon,
        delta,
        feature_norm=drugs.FEATURE_NORM,
        gradient_bound=GRADIENT_BOUND,
        domain_radius=RADIUS,
        fit_intercept=False,
        bounding=bounding,
        floor=False,
        sizes="public",
        noise=SeededNoise(seed),
    )
    return model.fit(problem.features, problem.labels, users=problem.groups)


def header(found: Sequence[Losses]) -> list[str]:
    """Names of the columns of `table`."""
    return ["method", *(f"ε = {each.epsilon:g}" for each in found)]


def table(found: Sequence[Losses]) -> list[list[str]]:
    """Budgets of one δ: a row per method, mean loss over runs with its standard error, and h where a formula chose."""
    rows = []
    for name in found[0].by_method:
        cells = []
        for each in found:
            runs = each.by_method[name]
            chosen = f", h = {each.thresholds[name]:.3g}" if name.endswith("by formula") else ""
            cells.append(f"{runs.mean():.4f}±{runs.std(ddof=1) / math.sqrt(len(runs)):.4f}{chosen}")
        rows.append([name, *cells])
    for place, name in enumerate(("t: best limit − best weights", "t: no bound − best limit")):
        rows.append([name, *(f"{each.t_statistics[place]:.1f}" for each in found)])
    rows.append(["without privacy", *(f"{each.least:.4f}" for each in found)])
    return rows


def by_delta(found: Sequence[Losses]) -> dict[tuple[str, float], list[Losses]]:
    """Parts for one table each: a problem at one δ."""
    parts: dict[tuple[str, float], list[Losses]] = {}
    for each in found:
        parts.setdefault((each.problem, each.delta), []).append(each)
    return parts


def title(problem: str, delta: float) -> str:
    """Of a table; says what the guarantee is worth."""
    worth = ": no guarantee worth the name" if delta >= PAPERS_DELTA else ""
    return f"{problem}, δ = {delta:.2g}{worth}"


def write(study: Study, found: Sequence[Losses], folder: Path = RESULTS) -> None:
    """Write all tables as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Logistic regression on drug reviews (table 2)",
        "",
        f"Average cross-entropy on the data, mean ± standard error over {study.runs} runs. The noise is seeded. The t",
        "of a difference is over runs with the same seeds. The best h of a method is chosen on the data, alike for",
        "both, and no ε covers that; the h of the rows by formula comes from public sizes and the budget.",
    ]
    for (problem, delta), part in by_delta(found).items():
        names = header(part)
        lines += ["", f"## {title(problem, delta)}", "", f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
        lines += [f"| {' | '.join(row)} |" for row in table(part)]
    printed = [f"{epsilon:g}: {' / '.join(map(str, best))}" for epsilon, best in PAPERS_BEST.items()]
    lines += ["", f"The paper's best weights / best limit / no bound, at δ = 0.1, by ε: {'; '.join(printed)}."]
    (folder / "table-2.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
