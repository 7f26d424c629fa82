"""Scores of single users for private selection: each from that user's own rows and a released model, within [-1, 1].

Some of a user's rows, chosen by a hash of user and task, are held back. The user's vector is computed from the others,
and the score says how well the model predicts the held-back rows. High is good. A user with fewer than two rows has no
score (NaN). A score does not depend on other users; `tuning` releases the sum over users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.data.user_keys import pair_keys
from apportion.linalg.fixed_order import row_products
from apportion.recommend.model import ClickModel, RatingModel

KEPT_BACK: Final = 0.2  # fraction of a user's rows that is held back, at least one row
DEPTH: Final = 20  # length of a ranking of clicks
_USERS_AT_A_TIME: Final = 256
_SEED: Final = 0x76616C69_64617465  # key for the choice of rows; public

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A score, and how its mean over users is shown.

    Attributes:
        name: its name on pages.
        of_users: the score of each user code, in [-1, 1] or NaN.
        shown: turns a mean score and the model into the figure that is shown.
        shown_noise: turns the noise of the mean into the noise of the figure.
    """

    name: str
    of_users: Callable[[Any, Interactions], Floats]
    shown: Callable[[float, Any], float]
    shown_noise: Callable[[float, Any], float]


def keep_back(data: Interactions) -> tuple[Interactions, Interactions]:
    """Divide each user's rows into shown and held-back ones. A user with one row shows it."""
    keys = pair_keys(data.as_users.keys, data.users, data.tasks, _SEED)
    order = np.lexsort((data.tasks, keys, data.users))
    rank = np.empty(data.n_observations, np.int64)
    rank[order] = np.arange(data.n_observations) - data.by_user.indptr[data.users]
    counts = data.by_user.counts
    n_back = np.where(counts > 1, np.maximum(1, np.floor(KEPT_BACK * counts)), 0)
    back = rank < n_back[data.users]
    return data.where(~back), data.where(back)


def accuracy_scores(model: RatingModel, data: Interactions) -> Floats:
    """Return 1 − 2 min(e, c)/c for each user's mean squared error e on the held-back rows, with the cap c."""
    history, targets = keep_back(data)
    low, high = model.value_range
    predicted = np.asarray(model.predict(history, targets), np.float64)
    squares = np.square(predicted - np.clip(targets.values, low, high))
    errors = _mean_by_user(np.nan_to_num(squares, nan=np.inf), targets)
    return np.asarray(1 - 2 * np.minimum(errors / error_cap(model), 1.0))


def recall_scores(model: ClickModel, data: Interactions) -> Floats:
    """Return 2 r − 1 for each user's recall r of the held-back rows, among the top tasks that were not shown."""
    history, targets = keep_back(data)
    vectors = model.user_vectors(history)
    features = np.asarray(model.fold_in.features, np.float32)
    depth = min(DEPTH, data.n_tasks)
    is_hit = np.zeros(targets.n_observations)
    users = np.flatnonzero(data.by_user.counts)
    for start in range(0, len(users), _USERS_AT_A_TIME):
        block = users[start : start + _USERS_AT_A_TIME]
        scores = row_products(
            vectors[block], features
        )  # adds up in a fixed order, so that other users in a block have no effect
        shown, sought = _rows_of(history, block), _rows_of(targets, block)
        scores[np.searchsorted(block, history.users[shown]), history.tasks[shown]] = -np.inf
        last = -np.partition(-scores, depth - 1, axis=1)[:, depth - 1]
        row = np.searchsorted(block, targets.users[sought])
        is_hit[sought] = scores[row, targets.tasks[sought]] >= last[row]
    most = np.minimum(targets.by_user.counts, depth)[targets.users]
    hits = np.bincount(targets.users, is_hit / np.maximum(most, 1), minlength=data.n_users)
    recall = np.where(targets.by_user.counts > 0, np.minimum(hits, 1.0), np.nan)
    return np.asarray(2 * recall - 1)


def error_cap(model: RatingModel) -> float:
    """Return the cap on errors: an eighth of the squared width of the scale, 2 for one to five stars."""
    low, high = model.value_range
    return (high - low) ** 2 / 8


SCORES: Final[dict[str, Score]] = {
    RatingModel.kind: Score(
        "mean squared error of users, each capped at an eighth of the scale's squared width",
        accuracy_scores,
        lambda mean, model: (1 - mean) / 2 * error_cap(model),
        lambda noise, model: noise / 2 * error_cap(model),
    ),
    ClickModel.kind: Score(
        f"recall at {DEPTH}, mean over users",
        recall_scores,
        lambda mean, model: (1 + mean) / 2,
        lambda noise, model: noise / 2,
    ),
}


def _mean_by_user(values: Floats, targets: Interactions) -> Floats:
    counts = targets.by_user.counts
    sums = np.bincount(targets.users, values, minlength=targets.n_users)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _rows_of(data: Interactions, users: NDArray[np.int64]) -> slice:
    """Return the observations from the first to the last of these users, in order."""
    return slice(int(data.by_user.indptr[users[0]]), int(data.by_user.indptr[users[-1] + 1]))
