"""Baselines for every model: predictions that learn nothing about tastes.

Most are fitted on raw counts and means, without privacy: their results belong on an internal page. `PrivatePopularity`
spends a whole budget on popularity alone.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import SplitEqually
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.engines.protocol import add_up_one
from apportion.errors import InputError
from apportion.privacy import Session
from apportion.privacy.contributions import TaskCounts
from apportion.privacy.purposes import Purpose


class GlobalMean:
    """Predicts the mean of the training ratings for every user and task."""

    mean_: float

    def fit(self, train: Interactions) -> Self:
        """Compute the mean."""
        self.mean_ = _mean(train)
        return self

    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.float32]:
        """Return the mean for every target."""
        return np.full(targets.n_observations, self.mean_, np.float32)


class BiasModel:
    """Predicts global mean + task bias + user bias, each a mean of residuals damped towards 0.

    b_i = Σ_j (r_ij - m) / (n_i + task_damping), then b_j = Σ_i (r_ij - m - b_i) / (n_j + user_damping) from
    the history that comes with the targets, so that the model also serves users who were not in training.

    Args:
        task_damping: number of ratings at the global mean to add to every task.
        user_damping: number of ratings without bias to add to every user.
    """

    mean_: float
    task_bias_: NDArray[np.float64]

    def __init__(self, *, task_damping: float = 10.0, user_damping: float = 5.0) -> None:
        self.task_damping = task_damping
        self.user_damping = user_damping

    def fit(self, train: Interactions) -> Self:
        """Compute the mean and the biases of the tasks."""
        for damping in (self.task_damping, self.user_damping):
            if not damping > 0:
                raise InputError(f"Expected damping > 0, got {damping}.", argument=None)
        self.mean_ = _mean(train)
        residuals = train.values - self.mean_
        self.task_bias_ = _damped_means(train.tasks, residuals, train.n_tasks, self.task_damping)
        return self

    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.float32]:
        """Return mean plus biases for every target; a user without history has bias 0."""
        residuals = history.values - self.mean_ - self.task_bias_[history.tasks]
        user_bias = _damped_means(history.users, residuals, history.n_users, self.user_damping)
        predicted = self.mean_ + self.task_bias_[targets.tasks] + user_bias[targets.users]
        return predicted.astype(np.float32)


class Popularity:
    """Scores every task by the number of users who have it in training, the same for everybody."""

    counts_: NDArray[np.float64]

    def fit(self, train: Interactions) -> Self:
        """Count the users of each task."""
        self.counts_ = np.bincount(train.tasks, minlength=train.n_tasks).astype(np.float64)
        return self

    def score(self, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the counts, one row per user (a view, not a copy)."""
        return np.broadcast_to(self.counts_, (len(users), len(self.counts_)))


class PrivatePopularity:
    """Scores every task by its popularity, released with the noise of a whole budget.

    Args:
        session: the session, whose whole budget is spent.
    """

    counts_: NDArray[np.float64]

    def __init__(self, session: Session) -> None:
        self.session = session

    def fit(self, train: Interactions) -> Self:
        """Release each task's weighted count of users."""
        share = self.session.plan(popularity=1.0).one("popularity")
        counts = add_up_one(LocalEngine(), train.as_users, TaskCounts(SplitEqually(self.session.neighbours)))
        self.counts_ = np.asarray(self.session.release(Purpose.POPULARITY.at(), counts, share), np.float64)
        return self

    def score(self, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the counts, one row per user (a view, not a copy)."""
        return np.broadcast_to(self.counts_, (len(users), len(self.counts_)))


def _mean(train: Interactions) -> float:
    if train.n_observations == 0:
        raise InputError("Expected at least one training observation, got 0.", argument="train")
    return float(train.values.mean(dtype=np.float64))


def _damped_means(
    codes: NDArray[np.int32], residuals: NDArray[np.floating], n_codes: int, damping: float
) -> NDArray[np.float64]:
    totals = np.bincount(codes, weights=residuals, minlength=n_codes)
    result: NDArray[np.float64] = totals / (np.bincount(codes, minlength=n_codes) + damping)
    return result
