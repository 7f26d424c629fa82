"""Random small data sets for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from apportion.data import Interactions


def random_interactions(seed, *, n_users=12, n_tasks=9, density=0.4, low=1, high=5):
    """Long-tailed small data: popular and rare tasks, heavy and light users, every user has a row."""
    rng = np.random.default_rng(seed)
    appeal = density * 2 * rng.random(n_tasks) ** 2
    activity = 2 * rng.random(n_users)
    seen = rng.random((n_users, n_tasks)) < np.outer(activity, appeal)
    seen[np.arange(n_users), rng.integers(0, n_tasks, n_users)] = True
    users, tasks = np.nonzero(seen)
    values = rng.integers(low, high + 1, len(users)).astype(np.float32)
    return Interactions.from_arrays(users, tasks, values, task_ids=np.arange(n_tasks))


def interactions(**kwargs):
    return st.integers(0, 2**32 - 1).map(lambda seed: random_interactions(seed, **kwargs))
