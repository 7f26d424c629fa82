"""Generated data with features that matter, for where the real sets are not at hand."""

from __future__ import annotations

import numpy as np

from apportion.data import Interactions
from apportion.data.sparse_rows import ColumnRange, SparseRows

GROUPS = (ColumnRange("genre", 0, 8), ColumnRange("year", 8, 16))


def item_features(n_items: int, rng: np.random.Generator) -> SparseRows:
    """Two genres (or one twice) and a year for each item."""
    columns = np.stack([*rng.integers(0, 8, (2, n_items)), rng.integers(8, 16, n_items)], axis=1).ravel()
    return SparseRows.from_entries(np.repeat(np.arange(n_items), 3), columns, np.ones(3 * n_items), n_items, GROUPS)


def feature_driven_ratings(
    n_users: int, n_items: int, per_user: int, *, seed: int = 0, own: float = 0.3
) -> tuple[Interactions, SparseRows]:
    """Long-tailed ratings of items that are what their features say, and a part of their own of this size."""
    rng = np.random.default_rng(seed)
    rows = item_features(n_items, rng)
    shown = rows.averaged().to_scipy()
    items = np.asarray(shown @ rng.standard_normal((16, 3))) + own * rng.standard_normal((n_items, 3))
    tastes = 0.7 * rng.standard_normal((n_users, 3))
    tastes[:, 0] = 1.0
    users, tasks = _pairs(n_users, n_items, per_user, rng)
    scores = 3 + 0.7 * np.einsum("nd,nd->n", tastes[users], items[tasks])
    values = np.clip(np.round(scores + 0.6 * rng.standard_normal(len(users))), 1, 5).astype(np.float32)
    return Interactions.from_arrays(users, tasks, values, task_ids=np.arange(n_items)), rows


def feature_driven_clicks(
    n_users: int, n_items: int, per_user: int, *, seed: int = 0
) -> tuple[Interactions, SparseRows]:
    """Clicks on popular items and on items whose features suit the user."""
    rng = np.random.default_rng(seed)
    rows = item_features(n_items, rng)
    items = np.asarray(rows.averaged().to_scipy() @ rng.standard_normal((16, 3)))
    tastes = 2.0 * rng.standard_normal((n_users, 3))
    appeal = -0.7 * np.log(np.arange(n_items) + 3.0)
    scores = appeal + tastes @ items.T + rng.gumbel(size=(n_users, n_items))
    tasks = np.argpartition(-scores, per_user, axis=1)[:, :per_user].ravel()
    users = np.repeat(np.arange(n_users), per_user)
    return Interactions.from_arrays(users, tasks, np.ones(len(users), np.float32), task_ids=np.arange(n_items)), rows


def _pairs(n_users: int, n_items: int, per_user: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """For every user so many items, popular ones more often."""
    appeal = -0.8 * np.log(np.arange(n_items) + 3.0) + rng.gumbel(size=(n_users, n_items))
    return np.repeat(np.arange(n_users), per_user), np.argpartition(-appeal, per_user, axis=1)[:, :per_user].ravel()
