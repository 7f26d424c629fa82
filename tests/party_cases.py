"""Tasks of parties for tests: generated, some of them extreme, and every kind of fit in a small form."""

from __future__ import annotations

import numpy as np

from apportion.allocation.rounds import Geometric
from apportion.parties import ProtectedMultiTask
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK


def tasks_with_test_rows(seed, n_tasks=200, n_rows=12, dimension=10, rank=2, sparse=False):
    rng = np.random.default_rng(seed)
    models = rng.standard_normal((n_tasks, rank)) @ rng.standard_normal((rank, dimension)) * 2
    if sparse:
        models = np.where(np.arange(dimension) < rank, 4 * rng.standard_normal((n_tasks, dimension)), 0.0)
    features = rng.standard_normal((n_tasks, 10 * n_rows, dimension))
    labels = np.einsum("mkd,md->mk", features, models) + 2 * rng.standard_normal(features.shape[:2])
    return (features[:, :n_rows], labels[:, :n_rows]), (features[:, n_rows:], labels[:, n_rows:])


def error(models, test):
    features, labels = test
    return float(np.square(np.einsum("mkd,md->mk", features, models) - labels).mean() / labels.var())


def low_rank_tasks(seed, n_tasks=40, n_rows=12, dimension=6, rank=2, *, logistic=False):
    """Lists of features and labels; sizes vary, some tasks have more rows than features and some fewer."""
    rng = np.random.default_rng(seed)
    models = 3 * rng.standard_normal((n_tasks, rank)) @ rng.standard_normal((rank, dimension))
    sizes = rng.integers(2, 2 * n_rows, n_tasks)
    features = [rng.standard_normal((size, dimension)) for size in sizes]
    labels = [x @ w + rng.standard_normal(len(x)) for x, w in zip(features, models, strict=True)]
    return features, [np.where(y > 0, 1.0, 0.0) for y in labels] if logistic else labels


def stacked(features, labels, order=None):
    """The same rows in one matrix with a column of groups, shuffled if an order is asked for."""
    groups = np.repeat(np.arange(len(features)), [len(x) for x in features])
    rows, column = np.concatenate(features), np.concatenate(labels)
    if order is not None:
        shuffled = np.random.default_rng(order).permutation(len(rows))
        rows, column, groups = rows[shuffled], column[shuffled], groups[shuffled]
    return rows, column, groups


def one_direction(n_tasks, dimension, axis, scale=1.0):
    """Tasks whose models all lie on one axis, nearly without noise: what they send is at the bound, and alike."""
    rng = np.random.default_rng(5)
    features = [rng.standard_normal((20, dimension)) for _ in range(n_tasks)]
    return features, [scale * x[:, axis] + 1e-6 * rng.standard_normal(len(x)) for x in features]


def small(**settings):
    """A maker of small fits with some settings fixed."""

    def make(**arguments):
        return ProtectedMultiTask(**{"epsilon": 2.0, "delta": 1e-5, **settings, **arguments})

    return make


FITS = {
    "em": small(),
    "em, three rounds": small(rounds=3),
    "em, whole posterior": small(contribution="posterior"),
    "em, intercepts": small(fit_intercept=True),
    "em, clipped": small(clip_norm=2.0),
    "em, without the mean": small(share_mean=False),
    "em, logistic": small(loss="logistic"),
    "low-rank": small(structure="low-rank", rounds=3),
    "low-rank, paper's release by release": small(structure="low-rank", rounds=3, pooled=False, clip_norm=2.0),
    "low-rank, plain, geometric": small(structure="low-rank", rounds=3, accelerated=False, schedule=Geometric(0.8)),
    "low-rank, strongly convex": small(structure="low-rank", rounds=3, condition=100.0),
    "low-rank, logistic": small(structure="low-rank", rounds=2, loss="logistic"),
    "group-sparse": small(structure="group-sparse", rounds=3),
    "low-rank+sparse": small(structure="low-rank+sparse", rounds=3),
    "relations": small(structure="relations", rounds=3),
    "em, rows protected": small(instance_epsilon=3.0),
}
RELATIONS = {"add or remove": ADD_REMOVE_TASK, "replace": REPLACE_TASK}


def published(model):
    """Everything that leaves with a fit: no party's own model is among it."""
    rounds = {
        f"{name} {k}": getattr(one, name)
        for k, one in enumerate(model.released_)
        for name in ("matrix", "stddev", "shared", "values", "kept", "mean")
    }
    common = {
        f"{name} {k}": getattr(one.common, name)
        for k, one in enumerate(model.released_)
        if one.common is not None
        for name in ("direction", "share", "size", "size_stddev", "doubt")
    }
    return {**rounds, **common, "statement": model.statement_}
