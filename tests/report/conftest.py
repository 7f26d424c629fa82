"""A small model made by hand, with a statement whose numbers are easy to recognise."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data import Vocabulary
from apportion.privacy import Purpose, gaussian
from apportion.privacy.purposes import release_name
from apportion.privacy.statement import Statement, Tuning
from apportion.recommend.model import FoldIn, RatingModel

from made_releases import a_release

NAMES = (
    release_name(Purpose.OVERVIEW),
    release_name(Purpose.POPULARITY),
    Purpose.ITEM_SUMS.at(round=1),
    Purpose.SHARED_MOMENTS.at(round=1),
    Purpose.ITEM_SUMS.at(round=2),
)
SHARES = (0.01, 0.09, 0.3, 0.05, 0.5)


def make_statement(epsilon=1.0, delta=1e-6, *, n_tasks=40, releasable=True, shares=SHARES):
    mu = gaussian.mu_of(epsilon, delta)
    shapes = ((2,), (n_tasks,), (n_tasks, 3), (6,), (n_tasks, 3))
    releases = tuple(
        a_release(
            name, "gaussian", shape, share, mu * share**0.5, 1.25, "weights <= 1 & so on", 1.25 / (mu * share**0.5)
        )
        for name, shape, share in zip(NAMES, shapes, shares, strict=True)
    )
    return Statement(
        epsilon=epsilon,
        delta=delta,
        spent_epsilon=0.9731 * epsilon,
        spent_mu=mu * sum(shares) ** 0.5,
        releases=releases,
        public=("the list of 40 tasks", "the scale <1 to 5>"),
        tuning="nothing was tuned on this data",
        tuning_kind=Tuning.DECLARED,
        noise="operating system entropy" if releasable else "seeded generator (seed 3)",
        releasable=releasable,
        window="spring of 2003",
        version="0.1.0",
    )


def make_model(statement="made", *, n_tasks=40, dimension=3, ids=None, **arguments):
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((n_tasks, dimension)).astype(np.float32)
    features = np.concatenate([np.ones((n_tasks, 1), np.float32), vectors], axis=1)
    width = features.shape[1]
    popularity = (200.0 * np.arange(1, n_tasks + 1) ** -1.2).astype(np.float32)
    return RatingModel(
        fold_in=FoldIn(
            features, np.ones(n_tasks, np.float32), np.eye(width, dtype=np.float32), np.zeros(width, np.float32)
        ),
        vectors=vectors,
        popularity=popularity,
        reliability=popularity / (popularity + 10),
        task_ids=Vocabulary(np.arange(100, 100 + n_tasks) if ids is None else ids, name="task"),
        statement=make_statement(n_tasks=n_tasks, **arguments) if statement == "made" else statement,
        offset=3.5,
        value_range=(1.0, 5.0),
        settings={"dimension": dimension, "exponent": 0.25},
    )


@pytest.fixture
def model():
    return make_model()


@pytest.fixture
def build():
    """The maker itself, for tests that need another model."""
    return make_model
