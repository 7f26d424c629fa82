"""Bugs of statistics over users with many rows: sizes, sensitivities, quantiles, and who is who."""

from __future__ import annotations

from functools import partial

import numpy as np

from apportion.data.grouping import group_rows
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES, Budget
from apportion.privacy.contributions import BoxedColumns, PublicRowWeights, RowTotal
from apportion.statistics import UserMean
from apportion.statistics.second_moments import Moments, ScaledRows
from planted.cases import PURE, Case, judged, likelihood, replayed_on

# -- private sizes, but the largest taken from the data --


def mean_of_private_sizes(rows, session, *, from_data):
    values, groups = rows
    largest = int(np.bincount(groups).max()) if from_data else 8
    estimator = UserMean(value_range=(0, 1), max_size=largest)
    return {"mean": estimator.fit(values, users=groups, session=session).mean_}


# -- what a cap does to the mean, or how far users differ, taken from the data --


def mean_with(rows, session, *, corrected, widened):
    """A mean over rows; planted: a correction for the cap, or a width of the interval, from raw values."""
    values, groups = rows
    found = UserMean(value_range=(0, 1)).fit(values, users=groups, session=session)
    sizes = np.bincount(groups)
    means = np.bincount(groups, values) / np.maximum(sizes, 1)
    capped = np.minimum(sizes, found.threshold_)
    moved = values.mean() - (capped * means).sum() / capped.sum() if corrected else 0.0
    spread = means.std() / np.sqrt(len(means)) if widened else 0.0
    return {"mean": found.mean_ + moved, "interval": found.interval_ + spread * np.array([-1, 1])}


# -- a covariance around the data's own mean --


def covariance_around(rows, session, *, own_mean):
    """Second moments around a public centre; planted: around the mean of all rows, which nobody paid for."""
    values, groups = rows
    columns = np.stack([values, 1 - values], axis=1)
    scaled = ScaledRows(np.zeros(2), np.ones(2))
    centre = 2 * columns.mean(axis=0) - 1 if own_mean else np.zeros(2)
    users = group_rows(groups, len(groups), single_user=True).users(values=columns)
    total = add_up_one(LocalEngine(np.float64), users, Moments(scaled, centre, 0.5).contribution)
    return {"moments": session.release("moments", total, session.plan(moments=1.0).one("moments"))}


# -- half the L1 sensitivity --

INDPTR = np.array([0, 2, 3])
WEIGHTS = np.array([0.25, 0.25, 0.5])


def total(values, session, *, halved):
    users = Users(INDPTR, {"values": values, "weights": WEIGHTS})
    weights = PublicRowWeights.from_rows(WEIGHTS, INDPTR, "fixed")
    statistic = add_up_one(LocalEngine(), users, RowTotal(BoxedColumns(0.0, 1.0), 1, weights))
    if halved:
        statistic._l1_bound = statistic.l1_sensitivity / 2
    return {"total": session.release_laplace("total", statistic, session.plan(total=1.0).one("total"))}


# -- a quantile brought back to the values that there are --


def median(values, rng, draws, *, clip_to_values):
    """The exponential mechanism on [0, 1]; ε = 1 for replacing one value, which moves each rank by at most 1."""
    inside = np.sort(np.clip(values, 0, 1))
    edges = np.concatenate([[0.0], inside, [1.0]])
    ranks = np.arange(len(inside) + 1)
    weights = np.diff(edges) * np.exp(-np.abs(ranks - len(inside) / 2) / 2)
    chosen = rng.choice(len(ranks), size=draws, p=weights / weights.sum())
    points = edges[chosen] + rng.random(draws) * np.diff(edges)[chosen]
    return np.clip(points, inside[0], inside[-1]) if clip_to_values else points


# -- one user's id decides who the others are --


def number_of_users(ids, rng, draws, *, by_column):
    """Laplace noise on the number of different ids, read as numbers if all are, or each as it stands."""
    numbers = by_column and all(text.isdigit() for text in ids)
    return len({int(text) if numbers else text for text in ids}) + rng.laplace(size=draws)


def cases():
    """Every bug of this file."""
    groups = np.repeat(np.arange(31), [16, *[1] * 30])
    values = np.where(groups == 0, 1.0, 0.5)
    kept = groups > 0
    rows, fewer = (values, groups), (values[kept], groups[kept] - 1)
    yield Case(
        "private sizes, the largest taken from the data", "E12", "replay",
        *(
            partial(
                replayed_on, partial(mean_of_private_sizes, from_data=wrong), rows, fewer, Budget(4.0, 1e-5), ADD_REMOVE
            )
            for wrong in (True, False)
        ),
    )  # fmt: skip
    for name, planted in (
        ("a correction for the cap from raw values", {"corrected": True, "widened": False}),
        ("an interval from raw differences of users", {"corrected": False, "widened": True}),
    ):
        yield Case(
            name, "habit", "replay",
            *(
                partial(replayed_on, partial(mean_with, **settings), rows, fewer, Budget(4.0, 0.0), ADD_REMOVE)
                for settings in (planted, {"corrected": False, "widened": False})
            ),
        )  # fmt: skip
    many = np.append(np.full(60, 0.3), 1.0), np.append(np.arange(60), 60)
    without = many[0][:-1], many[1][:-1]
    yield Case(
        "covariance around the data's own mean", "habit", "replay",
        *(
            partial(replayed_on, partial(covariance_around, own_mean=wrong), many, without, Budget(4.0, 1e-5))
            for wrong in (True, False)
        ),
    )  # fmt: skip
    ends = np.array([0.0, 0.0, 0.5]), np.array([1.0, 1.0, 0.5])
    yield Case(
        "half the L1 sensitivity", "E11", "likelihood",
        *(partial(likelihood, partial(total, halved=wrong), *ends, PURE, REPLACE_VALUES) for wrong in (True, False)),
    )  # fmt: skip
    values = [np.array([one, 0.5, 0.6]) for one in (0.0, 0.9)]
    yield Case(
        "quantile brought back to the values", "habit", "tester",
        *(
            partial(judged, partial(median, clip_to_values=wrong), *values, 1.0)
            for wrong in (True, False)
        ),
    )  # fmt: skip
    ids = ["0" * zeros + "7" for zeros in range(9)]
    yield Case(
        "one user's id changes who the others are", "habit", "tester",
        *(
            partial(judged, partial(number_of_users, by_column=wrong), [*ids, "abc"], ids, 1.0)
            for wrong in (True, False)
        ),
    )  # fmt: skip
