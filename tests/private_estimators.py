"""Every private estimator, in a small form, for the tests that all of them must pass."""

from __future__ import annotations

import numpy as np

from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender


def ratings(**arguments):
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 2, "rounds": 3, "engine": LocalEngine(np.float64)}
    return PrivateRatingRecommender(**{**defaults, **arguments})


def clicks(**arguments):
    defaults = {"epsilon": 2.0, "delta": 1e-5, "dimension": 2, "rounds": 3, "engine": LocalEngine(np.float64)}
    return PrivateClickRecommender(**{**defaults, **arguments})


PRIVATE_ESTIMATORS = {"ratings": ratings, "clicks": clicks}


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
