"""Every private estimator, in a small form, for the tests that all of them must pass."""

from __future__ import annotations

import numpy as np

from apportion.allocation import Adaptive, ClosedForm, EqualSplit, TailSample, UniformSample
from apportion.auditing import audit
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.privacy import Budget, SeededNoise
from apportion.recommend import (
    AlternatingMinimisation,
    GradientDescent,
    PrivateClickRecommender,
    PrivateRatingRecommender,
    SufficientStatistics,
)


def ratings(**arguments):
    engine = LocalEngine(np.float64, chunk=17)
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 3, "engine": engine}
    return PrivateRatingRecommender(**{**defaults, **arguments})


def clicks(**arguments):
    engine = LocalEngine(np.float64, chunk=17)
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 3, "engine": engine}
    return PrivateClickRecommender(**{**defaults, **arguments})


def clicks_of_default_size(**arguments):
    return clicks(**{"dimension": None, "rounds": None, **arguments})


def alternating(kind, update, policy):
    """Alternating minimisation with these parts, in a small form."""

    def make(**arguments):
        engine = LocalEngine(np.float64, chunk=17)
        defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 3, "rounds": 2, "engine": engine}
        return AlternatingMinimisation(
            **{**defaults, "kind": kind, "update": update, "allocation": policy, "user_ridge": 0.1, **arguments}
        )

    return make


PRIVATE_ESTIMATORS = {
    "ratings": ratings,
    "clicks": clicks,
    "clicks of default size": clicks_of_default_size,
    "ratings, statistics, uniform sample": alternating("ratings", SufficientStatistics(), UniformSample(5)),
    "ratings, statistics, tail sample": alternating("ratings", SufficientStatistics(), TailSample(5)),
    "ratings, statistics, adaptive": alternating("ratings", SufficientStatistics(), Adaptive(0.5)),
    "ratings, gradient, uniform sample": alternating("ratings", GradientDescent(clip=0.3), UniformSample(5)),
    "ratings, gradient, tail sample": alternating("ratings", GradientDescent(clip=0.3), TailSample(5)),
    "ratings, gradient, adaptive": alternating("ratings", GradientDescent(clip=0.3), Adaptive(0.25)),
    "clicks, statistics, closed form": alternating("clicks", SufficientStatistics(), ClosedForm(0.5, slack=1.0)),
    "clicks, gradient, equal split": alternating("clicks", GradientDescent(clip=0.05, even=True), EqualSplit()),
}


def published(model):
    """Everything of a model that leaves with it."""
    arrays = {name: getattr(model.fold_in, name) for name in model.fold_in.__dataclass_fields__}
    arrays |= {name: getattr(model, name) for name in ("vectors", "popularity", "reliability", "offset", "value_range")}
    return {**arrays, "settings": model.settings, "tasks": model.task_ids.ids, "statement": model.statement}


def audit_estimator(make, data, user, *, epsilon, seed):
    """Record and replay one estimator; returns one finding per release."""

    def fit(some, session):
        return published(make().fit(some, session=session).model_)

    return audit(fit, data, user, {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed)})


def at_the_bound():
    """Data in which users 0 and 1 contribute as much as anybody may.

    User 0 has many tasks with extreme and contrary values, so that residuals are large; user 1's values are all the
    highest, so that the mean is.
    """
    rng = np.random.default_rng(0)
    n_users, n_tasks = 40, 150
    rows = [(0, task, 5.0 if task % 2 else 1.0) for task in range(n_tasks)]
    rows += [(1, task, 5.0) for task in range(60)]
    for user in range(2, n_users):
        chosen = rng.choice(n_tasks, 30, replace=False)
        rows += [(user, int(task), float(rng.integers(1, 6))) for task in chosen]
    users, tasks, values = zip(*rows, strict=True)
    return Interactions.from_arrays(users, tasks, values, task_ids=np.arange(n_tasks)), (0, 1)
