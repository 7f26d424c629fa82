"""Claim: on worst-case neighbours the best attacker gets close to each mechanism's ε, and not beyond it.

Whole fits are run on two neighbouring data sets that differ as much as the relation allows. An attacker who knows both
data sets and the mechanism tests the likelihood ratio of everything that a fit released (`apportion.auditing`). By
exact binomial bounds its success gives an ε that the mechanism cannot be below; where all releases are Gaussian, a
Gaussian-DP parameter first. A bound above ε would be a bug, one far below it an idle bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import SampleLimit, Smooth
from apportion.auditing import LikelihoodFinding, audit_likelihood
from apportion.privacy import (
    ADD_REMOVE,
    REPLACE_LABELS,
    REPLACE_VALUES,
    Budget,
    Neighbours,
    SeededNoise,
    Session,
)
from apportion.regression import LabelPrivateRegression, UserERM
from apportion.statistics import UserGroupBy, UserMean, UserQuantile
from apportion.statistics.paper_mean import PaperMean
from benchmarks.claim import Outcome, Rehearsal, print_table

CONFIDENCE = 0.999
DRAWS, QUICK_DRAWS = 30_000, 900
LEAST, QUICK_LEAST = 0.8, 0.3
QUICK = ("mean, Laplace", "median", "regression, Laplace")

Floats = NDArray[np.float64]
Fit = Callable[[Any, Session], Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """A mechanism and two neighbouring data sets that it tells apart best."""

    budget: Budget
    relation: Neighbours
    fit: Fit
    one: Any
    other: Any


def measure(quick: bool) -> Outcome | Rehearsal:
    """Audit every mechanism."""
    draws = QUICK_DRAWS if quick else DRAWS
    found = {name: _audited(case, draws) for name, case in cases().items() if name in QUICK or not quick}
    rows = [[name, f.claimed, f.lower_bound, f.lower_bound / f.claimed] for name, f in found.items()]
    print_table(["mechanism", "epsilon", "audited lower bound", "part of it"], rows)
    parts = {name: f.lower_bound / f.claimed for name, f in found.items()}
    value = {name: round(part, 4) for name, part in parts.items()}
    if quick:
        shown = all(QUICK_LEAST <= part <= 1 for part in parts.values())
        return Rehearsal(value, {f"{QUICK_LEAST} to 1 of epsilon shown by {draws} draws": shown})
    return Outcome(
        value=value,
        target={"part of epsilon": f"{LEAST} to 1"},
        holds=all(LEAST <= part <= 1 for part in parts.values()),
        headline=f"{len(parts)} mechanisms for users with many rows: the best attacker shows "
        f"{min(parts.values()):.2f} to {max(parts.values()):.2f} of each ε on worst-case neighbours, never more",
        settings={"draws": draws, "confidence": CONFIDENCE, "seeds": f"0 to {2 * draws - 1}"},
    )


def _audited(case: Case, draws: int) -> LikelihoodFinding:
    arguments = {"budget": case.budget, "neighbours": case.relation}
    return audit_likelihood(
        case.fit, case.one, case.other, arguments,
        noise=SeededNoise, draws=draws, confidence=CONFIDENCE,
    )  # fmt: skip


def cases() -> dict[str, Case]:
    """Every mechanism at its worst."""
    return {
        "mean, Laplace": _mean(Budget(2.0, 0.0)),
        "mean, Gaussian": _mean(Budget(4.0, 1e-5)),
        "mean of 3 columns, Laplace": _mean(Budget(2.0, 0.0), columns=3),
        "mean, at most 2 rows a user": _mean(Budget(2.0, 0.0), bounding=SampleLimit(2)),
        "mean, private sizes": _mean_of_private_sizes(),
        "mean over users": _mean_over_users(),
        "counts by group": _counts_by_group(),
        "median": _median(),
        "median of users, of a list": _median_of_list(),
        "median, private sizes": _median_of_private_sizes(),
        "regression, Laplace": _regression(Budget(2.0, 0.0)),
        "regression, Gaussian": _regression(Budget(4.0, 1e-5)),
        "logistic loss, 5 steps": _descent(),
    }


_GROUPS = np.repeat(np.arange(4), [5, 1, 2, 3])


def _mean(budget: Budget, columns: int = 1, bounding: Any = Smooth()) -> Case:  # noqa: B008 - frozen
    """The heaviest user at opposite corners of the box."""

    def fit(values: Floats, session: Session) -> Mapping[str, Any]:
        estimator = PaperMean(value_range=(0, 1), variance=0.0, bounding=bounding)
        return {"mean": estimator.fit(values, users=_GROUPS, session=session).mean_}

    one, other = np.full((2, len(_GROUPS), columns), 0.5)
    one[_GROUPS == 0], other[_GROUPS == 0] = 0.0, 1.0
    return Case(budget, REPLACE_VALUES, fit, one, other)


def _mean_of_private_sizes() -> Case:
    """A user with as many rows as count, all at one end, comes or goes."""

    def fit(rows: tuple[Floats, Any], session: Session) -> Mapping[str, Any]:
        estimator = PaperMean(value_range=(0, 1), variance=0.05, sizes="private", max_size=8)
        return {"mean": estimator.fit(rows[0], users=rows[1], session=session).mean_}

    sizes = [16, *[1] * 30]
    groups = np.repeat(np.arange(31), sizes)
    values = np.where(groups == 0, 1.0, 0.5)
    kept = groups > 0
    return Case(Budget(4.0, 1e-5), ADD_REMOVE, fit, (values, groups), (values[kept], groups[kept]))


def _mean_over_users() -> Case:
    """A user at one end comes or goes; sizes, then the means of few users."""

    def fit(rows: tuple[Floats, Any], session: Session) -> Mapping[str, Any]:
        estimator = UserMean(value_range=(0, 1), of="users")
        return {"mean": estimator.fit(rows[0], users=rows[1], session=session).mean_}

    values, groups = np.array([1.0, 0.0, 1.0, 0.0]), np.arange(4)
    return Case(Budget(4.0, 0.0), ADD_REMOVE, fit, (values, groups), (values[1:], groups[1:]))


def _counts_by_group() -> Case:
    """A user with more rows in each of three groups than anybody else comes or goes."""
    keys = ("a", "b", "c")

    def fit(rows: tuple[Any, Any], session: Session) -> Mapping[str, Any]:
        estimator = UserGroupBy("count", keys=keys)
        return {"counts": estimator.fit(users=rows[0], by=rows[1], session=session).estimates_["count"]}

    users = np.concatenate([np.zeros(120, int), np.repeat(np.arange(1, 60), 6)])
    groups = np.resize(np.array(keys), len(users))
    kept = users > 0
    return Case(Budget(4.0, 1e-5), ADD_REMOVE, fit, (users, groups), (users[kept], groups[kept]))


def _median_of_list() -> Case:
    """Two candidates; a user at the low one makes it better and the other worse."""

    def fit(rows: tuple[Floats, Any], session: Session) -> Mapping[str, Any]:
        estimator = UserQuantile(value_range=(0, 1), step=1.0, of="users")
        return {"median": estimator.fit(rows[0], users=rows[1], session=session).quantiles_}

    values = np.array([0.0, *[1.0] * 9])
    groups = np.arange(len(values))
    return Case(Budget(3.0, 0.0), ADD_REMOVE, fit, (values, groups), (values[1:], groups[1:]))


def _median() -> Case:
    """Most of the range has a rank above 1/2, a little of it one below; one user crosses from end to end."""
    groups = np.arange(11)

    def fit(values: Floats, session: Session) -> Mapping[str, Any]:
        estimator = UserQuantile(value_range=(0, 1), weights="paper", sizes="public")
        return {"median": estimator.fit(values, users=groups, session=session).quantiles_}

    others = [0.0] * 4 + [0.05] * 2 + [1.0] * 4
    one, other = (np.array([end, *others]) for end in (0.0, 1.0))
    return Case(Budget(3.0, 0.0), REPLACE_VALUES, fit, one, other)


def _median_of_private_sizes() -> Case:
    """A user at the low end makes the rare points below better and the common ones above worse."""

    def fit(rows: tuple[Floats, Any], session: Session) -> Mapping[str, Any]:
        estimator = UserQuantile(value_range=(0, 1), weights="paper", bounding=Smooth(1.0))
        return {"median": estimator.fit(rows[0], users=rows[1], session=session).quantiles_}

    values = np.array([0.0, *[0.0] * 4, *[0.15] * 2, *[1.0] * 5])
    groups = np.arange(len(values))
    return Case(Budget(3.0, 0.0), ADD_REMOVE, fit, (values, groups), (values[1:], groups[1:]))


def _regression(budget: Budget) -> Case:
    """One user whose labels all pull the same way, at both ends of their range."""
    features, groups = np.array([[1.0], [1.0], [1.0], [0.1]]), np.array([0, 0, 1, 2])
    estimator = LabelPrivateRegression(
        budget.epsilon, budget.delta, label_range=(0, 1), noise_variance=0.0, fit_intercept=False
    )
    weights = estimator.fit(features, np.zeros(4), users=groups).label_weights_
    estimator.set_params(bounding=weights)

    def fit(labels: Floats, session: Session) -> Mapping[str, Any]:
        return {"coefficients": estimator.fit(features, labels, users=groups, session=session).coef_}

    one, other = (np.array([end, end, 0.5, 0.5]) for end in (0.0, 1.0))
    return Case(budget, REPLACE_LABELS, fit, one, other)


def _descent() -> Case:
    """One user whose clipped gradients point one way or the opposite at every step."""
    groups = np.array([0, 0, 1, 2, 3])

    def fit(rows: tuple[Floats, Floats], session: Session) -> Mapping[str, Any]:
        estimator = UserERM(
            "logistic",
            gradient_bound=0.05,
            domain_radius=1.0,
            steps=5,
            fit_intercept=False,
            floor=False,
            sizes="public",
        )
        return {"coefficients": estimator.fit(rows[0], rows[1], users=groups, session=session).coef_}

    features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    one, other = ((features, np.array([label, label, 1.0, 0.0, 1.0])) for label in (0.0, 1.0))
    return Case(Budget(4.0, 1e-5), REPLACE_VALUES, fit, one, other)
