"""The linear regression study of section 6: prediction error of the optimal weights and of sample limiting, by ε.

Labels are private, features and whose row it is are public; pure ε-DP by Laplace noise, neighbours replace one user's
labels. Rows of a table:

- ours: the optimal matrix C for the total variance of the coefficients, the paper's method;
- ours, for predictions: the same for the variance of predictions, which goes past the paper;
- ours, σ² paid for: as the first, with the variance of labels estimated within the budget;
- sample limit, best h on the data: least squares on at most h rows of each user, with the h of the least mean error on
  the data, as the paper has it: no ε covers that choice;
- sample limit, h by formula: the h of the least total variance, a function of public values;
- sample limit, h = max: least squares on all rows.

As in the paper, the range of labels is that of the data, and σ² is that of ordinary least squares on the data (but in
the third row): the same for all rows, and not private (E13). The error is the mean square of what is left of the labels
on the same data, averaged over runs; the runs of one table differ in the noise and in which rows a limit keeps, and all
methods see the same runs. Beside it stands its expectation over the noise, in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import SampleLimit
from apportion.data.grouping import Grouping, group_rows
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import REPLACE_LABELS, BoundedSum, Budget, SeededNoise, Session
from apportion.privacy.contributions import BoxedColumns, LabelTotal, LabelVectors
from apportion.regression.label_private import LabelPrivateRegression
from apportion.regression.label_weights.optimal import LabelWeights, least_squares_weights, optimal_label_weights

Floats = NDArray[np.float64]
Groups = NDArray[np.integer[Any]] | NDArray[np.str_]
Say = Callable[[str], None]

OURS, PREDICTIONS, PAID = "ours", "ours, for predictions", "ours, σ² paid for"
BEST_LIMIT, FORMULA_LIMIT = "sample limit, best h on the data", "sample limit, h by formula"
ALL_ROWS = "sample limit, h = max"
METHODS = (OURS, PREDICTIONS, PAID, BEST_LIMIT, FORMULA_LIMIT, ALL_ROWS)
EPSILONS = (1.0, 2.0, 3.0)
RUNS = 10
TOLERANCE = 1e-6  # of the weights' total variance, relative to the least one


@dataclass(frozen=True, eq=False)
class Problem:
    """One regression: rows with labels, and whose they are.

    Attributes:
        name: for tables.
        features: one row per label, with a column of ones where there is an intercept.
        labels: what is private.
        groups: the user of each row.
    """

    name: str
    features: Floats
    labels: Floats
    groups: Groups

    @cached_property
    def grouping(self) -> Grouping:
        """Which rows belong to one user."""
        return group_rows(self.groups, len(self.labels))

    @property
    def label_range(self) -> tuple[float, float]:
        """The range of the labels, from the data: not private."""
        return float(self.labels.min()), float(self.labels.max())

    @property
    def width(self) -> float:
        """How wide that range is."""
        return self.label_range[1] - self.label_range[0]

    @cached_property
    def least_squares_error(self) -> float:
        """The error of ordinary least squares, below which no linear model can be on these data."""
        found = np.linalg.lstsq(self.features, self.labels, rcond=None)[0]
        return self.error(np.asarray(found, np.float64))

    @property
    def noise_variance(self) -> float:
        """σ² of labels by ordinary least squares on the data: not private."""
        n_rows, n_features = self.features.shape
        return float(self.least_squares_error * n_rows / (n_rows - n_features))

    def error(self, coefficients: Floats) -> float:
        """Mean squared error of the predictions."""
        return float(np.square(self.labels - self.features @ coefficients).mean())

    def about(self) -> str:
        """Sizes in words."""
        sizes = self.grouping.sizes
        low, high = self.label_range
        return (
            f"{len(self.labels)} rows, {self.features.shape[1]} coefficients, {len(sizes)} users with {sizes.min()} to "
            f"{sizes.max()} rows, labels from {low:.4g} to {high:.4g}, σ² = {self.noise_variance:.4g}"
        )


class Estimate:
    """A linear estimate C y of one problem, before its noise; its weights do not depend on labels.

    Args:
        problem: whose labels it takes.
        weights: C, for features in user-major order.
        back: from what the weights estimate to coefficients of the features.
    """

    def __init__(self, problem: Problem, weights: LabelWeights, back: Floats) -> None:
        self._problem = problem
        self._back = back
        labels = problem.grouping.arranged(problem.labels)
        vectors = LabelVectors.from_rows(weights.rows, problem.grouping.indptr)
        users = problem.grouping.users(values=problem.labels).with_columns(vectors=weights.rows)
        total = LabelTotal(BoxedColumns(*problem.label_range), vectors)
        self._total: BoundedSum = add_up_one(LocalEngine(), users, total)
        self._offset = sum(problem.label_range) / 2 * weights.rows.sum(axis=0)
        self._error_without_noise = problem.error(self._back @ (weights.rows.T @ labels))
        self.squares = float(np.square(weights.rows).sum())
        self.cap: float = weights.cap
        self.gap = weights.gap

    def total_variance(self, epsilon: float) -> float:
        """Of labels and noise, for labels scaled to a range of 1: public, given σ² and the range."""
        problem = self._problem
        scaled = problem.noise_variance / problem.width**2
        return scaled * self.squares + _price(problem, epsilon) * self.cap**2

    def run(self, epsilon: float, seed: int) -> Floats:
        """Release the coefficients once, with this noise."""
        session = Session(Budget(epsilon, 0.0), noise=SeededNoise(seed), neighbours=REPLACE_LABELS)
        share = session.plan(coefficients=1.0).one("coefficients")
        released = session.release_laplace("coefficients", self._total, share)
        return np.asarray(self._back @ (self._problem.width * np.asarray(released) + self._offset))

    def error(self, epsilon: float, seed: int) -> float:
        """The error of one run."""
        return self._problem.error(self.run(epsilon, seed))

    def expected_error(self, epsilon: float) -> float:
        """The error's expectation over Laplace noise, which has variance 2 (B T/ε)² in every coordinate."""
        seen = self._problem.features @ self._back
        per_variance = float(np.square(seen).sum()) / len(seen)
        variance = 2 * (self._problem.width * self.cap / epsilon) ** 2
        return self._error_without_noise + variance * per_variance


def _price(problem: Problem, epsilon: float) -> float:
    """A: what a squared unit of sensitivity costs, for labels scaled to a range of 1."""
    return 2.0 * int(problem.features.shape[1]) / epsilon**2


def optimal_estimate(problem: Problem, epsilon: float, *, for_predictions: bool = False) -> Estimate:
    """The best C, for coefficients or for predictions."""
    features, back = problem.grouping.arranged(problem.features), np.eye(problem.features.shape[1])
    if for_predictions:  # features whose XᵀX is n times the identity
        triangle = np.linalg.qr(features).R / math.sqrt(len(features))
        triangle *= np.where(np.diag(triangle) < 0, -1.0, 1.0)[:, None]  # whatever the order of the users
        back = np.asarray(np.linalg.inv(triangle), np.float64)
        features = features @ back
    weights = optimal_label_weights(
        features,
        problem.grouping.indptr,
        variance=problem.noise_variance / problem.width**2,
        price=_price(problem, epsilon),
        norm=1,
        tolerance=TOLERANCE,
    )
    return Estimate(problem, weights, back)


def limited_estimate(problem: Problem, limit: int | None, seed: int = 0) -> Estimate | None:
    """Least squares on at most so many rows of each user, or on all; None where they do not determine it."""
    indptr = problem.grouping.indptr
    kept = None if limit is None else SampleLimit(limit, seed).row_weights(indptr, 1.0).rows > 0
    features = problem.grouping.arranged(problem.features)
    try:
        weights = least_squares_weights(features, indptr, variance=0.0, price=0.0, norm=1, kept=kept)
    except InputError:
        return None
    return Estimate(problem, weights, np.eye(problem.features.shape[1]))


def limits_to_try(problem: Problem) -> list[int]:
    """Every limit up to 20 rows, then a geometric sequence up to all rows."""
    largest = int(problem.grouping.sizes.max())
    geometric = {round(limit) for limit in np.geomspace(1, largest, 60)}
    return sorted(geometric | set(range(1, min(largest, 20) + 1)))


@dataclass(frozen=True)
class Score:
    """The error of one method.

    Attributes:
        runs: in each run.
        expected: expectation over the noise, averaged over runs; nan where the weights are random too.
        limit: h, where there is one: that of most runs.
        gap: how far the weights' total variance may be above the least one, as a fraction; nan where none was sought.
    """

    runs: tuple[float, ...]
    expected: float
    limit: int | None = None
    gap: float = math.nan

    @property
    def mean(self) -> float:
        """Over runs."""
        return float(np.mean(self.runs))


@dataclass(frozen=True)
class Scores:
    """All methods on one problem at one ε.

    Attributes:
        problem: its name.
        about: its sizes in words.
        epsilon: ε.
        least_squares: the error without privacy.
        by_method: as named in `METHODS`.
    """

    problem: str
    about: str
    epsilon: float
    least_squares: float
    by_method: Mapping[str, Score] = field(hash=False)

    def factors(self) -> dict[str, float]:
        """The error of each method over that of ours, means over runs."""
        return {name: score.mean / self.by_method[OURS].mean for name, score in self.by_method.items()}

    @property
    def gap(self) -> float:
        """The largest gap of weights that were sought; above `TOLERANCE` some search has failed."""
        return max((score.gap for score in self.by_method.values() if not math.isnan(score.gap)), default=0.0)

    def in_papers_order(self) -> bool:
        """Whether ours is below both limits, and both below all rows: by the runs and in expectation."""
        return self.in_expected_order() and _ordered({name: score.mean for name, score in self.by_method.items()})

    def in_expected_order(self) -> bool:
        """The same in expectation alone."""
        return _ordered({name: score.expected for name, score in self.by_method.items()})


def _ordered(errors: Mapping[str, float]) -> bool:
    return all(errors[OURS] < errors[limit] < errors[ALL_ROWS] for limit in (BEST_LIMIT, FORMULA_LIMIT))


def measure(
    problem: Problem,
    epsilons: Sequence[float] = EPSILONS,
    runs: int = RUNS,
    methods: Sequence[str] = METHODS,
    say: Say | None = None,
) -> list[Scores]:
    """Every method at every ε; what does not depend on ε is made once."""
    limited = {h: [limited_estimate(problem, h, run) for run in range(runs)] for h in limits_to_try(problem)}
    everything = limited_estimate(problem, None)
    assert everything is not None
    make: dict[str, Callable[[float], Score]] = {
        OURS: lambda epsilon: _fixed(optimal_estimate(problem, epsilon), epsilon, runs),
        PREDICTIONS: lambda epsilon: _fixed(optimal_estimate(problem, epsilon, for_predictions=True), epsilon, runs),
        PAID: lambda epsilon: _paid(problem, epsilon, runs),
        BEST_LIMIT: lambda epsilon: _best_limit(limited, epsilon),
        FORMULA_LIMIT: lambda epsilon: _formula_limit(limited, epsilon, runs),
        ALL_ROWS: lambda epsilon: _fixed(everything, epsilon, runs),
    }
    found = []
    for epsilon in epsilons:
        scores = {name: make[name](epsilon) for name in methods}
        found.append(Scores(problem.name, problem.about(), epsilon, problem.least_squares_error, scores))
        if say is not None:
            say(f"{problem.name}, ε = {epsilon:g}: " + "; ".join(f"{k} {s.mean:.4g}" for k, s in scores.items()))
    return found


def _fixed(estimate: Estimate, epsilon: float, runs: int) -> Score:
    errors = tuple(estimate.error(epsilon, run) for run in range(runs))
    return Score(errors, estimate.expected_error(epsilon), gap=estimate.gap)


def _paid(problem: Problem, epsilon: float, runs: int) -> Score:
    """The estimator as it is, with σ² estimated within ε, so that weights differ from run to run."""
    errors, gaps = [], []
    for run in range(runs):
        model = LabelPrivateRegression(
            epsilon,
            label_range=problem.label_range,
            fit_intercept=False,
            tolerance=TOLERANCE,
            noise=SeededNoise(run),
            target="coefficients",
            bounding="paper",
        )
        errors.append(problem.error(model.fit(problem.features, problem.labels, users=problem.groups).coef_))
        gaps.append(model.gap_)
    return Score(tuple(errors), math.nan, gap=max(gaps))


Limited = Mapping[int, Sequence[Estimate | None]]


def _best_limit(limited: Limited, epsilon: float) -> Score:
    """The best limit by the runs and, for the expectation, the best limit in expectation."""
    scores = []
    for limit, tried in limited.items():
        made = [estimate for estimate in tried if estimate is not None]
        if len(made) == len(tried):
            errors = tuple(estimate.error(epsilon, run) for run, estimate in enumerate(made))
            expected = float(np.mean([estimate.expected_error(epsilon) for estimate in made]))
            scores.append(Score(errors, expected, limit))
    best = min(scores, key=lambda score: score.mean)
    return Score(best.runs, min(score.expected for score in scores), best.limit)


def _formula_limit(limited: Limited, epsilon: float, runs: int) -> Score:
    """In every run the limit with the least total variance, as the estimator takes it."""
    chosen: list[tuple[int, Estimate]] = []
    for run in range(runs):
        made = [(limit, tried[run]) for limit, tried in limited.items()]
        usable = [(limit, estimate) for limit, estimate in made if estimate is not None]
        chosen.append(min(usable, key=lambda pair: pair[1].total_variance(epsilon)))
    errors = tuple(estimate.error(epsilon, run) for run, (_, estimate) in enumerate(chosen))
    expected = float(np.mean([estimate.expected_error(epsilon) for _, estimate in chosen]))
    return Score(errors, expected, int(np.bincount([limit for limit, _ in chosen]).argmax()))
