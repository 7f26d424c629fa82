"""The non-private limit to compare with: alternating least squares in the same model classes.

Ratings: y ≈ mean + b_j + a_i + q_j · v_i, ridge on everything. Clicks: observed pairs are 1 and every pair carries the
weight `unobserved` towards 0 (implicit ALS). One epoch is an exact solve of the user side, then of the item side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.data import Interactions, Segments
from apportion.errors import InputError
from apportion.estimators.base import Estimator
from apportion.recommend.model import ClickModel, FoldIn, RatingModel

Progress = Callable[[str, int, int], None]
FIXED = 1e6  # prior precision that fixes a coordinate at its prior mean


class RatingRecommender(Estimator):
    """Biased matrix factorisation of ratings by alternating least squares. No privacy.

    Args:
        dimension: length of the latent vectors.
        epochs: number of alternations.
        ridge: penalty on users' latent vectors.
        bias_ridge: penalty on users' biases.
        item_ridge: penalty on items' latent vectors, times the root of the number of their ratings: popular items
            are rated by many light users, whose few ratings a large vector would overfit.
        item_bias_ridge: penalty on items' biases, times the same root.
        value_range: scale of the values; predictions stay within it.
        random_state: seed of the initial item vectors.
    """

    def __init__(
        self,
        dimension: int = 12,
        epochs: int = 15,
        ridge: float = 6.0,
        bias_ridge: float = 3.0,
        item_ridge: float = 2.0,
        item_bias_ridge: float = 0.1,
        value_range: tuple[float, float] = (1.0, 5.0),
        random_state: int = 0,
    ) -> None:
        self.dimension = dimension
        self.epochs = epochs
        self.ridge = ridge
        self.bias_ridge = bias_ridge
        self.item_ridge = item_ridge
        self.item_bias_ridge = item_bias_ridge
        self.value_range = value_range
        self.random_state = random_state

    def fit(self, data: Interactions, *, progress: Progress | None = None) -> Self:
        """Fit to all observations."""
        _check(self.dimension, self.epochs)
        values = np.clip(data.values, *self.value_range).astype(np.float32)
        mean = float(values.mean(dtype=np.float64))
        user_base = np.diag([self.bias_ridge, *[self.ridge] * self.dimension]).astype(np.float32)
        item_base = np.diag([self.item_bias_ridge, *[self.item_ridge] * self.dimension]).astype(np.float32)
        rng = np.random.default_rng(self.random_state)
        items = np.zeros((data.n_tasks, 1 + self.dimension), dtype=np.float32)
        items[:, 1:] = 0.1 * rng.standard_normal((data.n_tasks, self.dimension))
        by_user, by_task = data.by_user, data.by_task
        per_rating = np.repeat(1 / np.sqrt(np.maximum(by_task.counts, 1)), by_task.counts).astype(np.float32)
        centred = values - np.float32(mean)
        for epoch in range(self.epochs):
            users = _solve(by_user, _with_constant(items), centred - items[data.tasks, 0], user_base)
            labels = (centred - users[data.users, 0])[by_task.order]
            items = _solve(by_task, _with_constant(users), labels, item_base, per_rating)
            if progress:
                progress("epoch", epoch + 1, self.epochs)
        self.model_ = self._model(data, mean, items)
        return self

    def _model(self, data: Interactions, mean: float, items: NDArray[Any]) -> RatingModel:
        features = np.concatenate([np.ones((len(items), 1), np.float32), items], axis=1)
        precision = np.array([self.bias_ridge, FIXED, *[self.ridge] * self.dimension], np.float32)
        prior_mean = np.eye(len(precision), dtype=np.float32)[1]  # the item's own bias enters with factor 1
        counts = data.by_task.counts.astype(np.float32)
        return RatingModel(
            fold_in=FoldIn(features, np.ones(len(items), np.float32), np.diag(precision), precision * prior_mean),
            vectors=items[:, 1:],
            popularity=counts,
            reliability=counts / (counts + self.ridge),
            task_ids=data.task_ids,
            statement=None,
            offset=mean,
            value_range=self.value_range,
            settings=self.get_params(),
        )


class ClickRecommender(Estimator):
    """Implicit alternating least squares for clicks. No privacy.

    Args:
        dimension: length of the latent vectors.
        epochs: number of alternations.
        unobserved: weight of every pair towards 0, relative to weight 1 of an observed pair towards 1.
        ridge: penalty on latent vectors.
        random_state: seed of the initial item vectors.
    """

    def __init__(
        self,
        dimension: int = 64,
        epochs: int = 10,
        unobserved: float = 0.1,
        ridge: float = 5.0,
        random_state: int = 0,
    ) -> None:
        self.dimension = dimension
        self.epochs = epochs
        self.unobserved = unobserved
        self.ridge = ridge
        self.random_state = random_state

    def fit(self, data: Interactions, *, progress: Progress | None = None) -> Self:
        """Fit to all observed pairs."""
        _check(self.dimension, self.epochs)
        rng = np.random.default_rng(self.random_state)
        items = rng.standard_normal((data.n_tasks, self.dimension)).astype(np.float32)
        items *= 0.1 / np.sqrt(self.dimension)
        ones = np.ones(data.n_observations, np.float32)
        for epoch in range(self.epochs):
            users = _solve(data.by_user, items, ones, self._base(items))
            items = _solve(data.by_task, users, ones, self._base(users))
            if progress:
                progress("epoch", epoch + 1, self.epochs)
        counts = data.by_task.counts.astype(np.float32)
        base = self._base(items)
        self.model_ = ClickModel(
            fold_in=FoldIn(items, np.ones(len(items), np.float32), base, np.zeros(len(base), np.float32)),
            vectors=items,
            popularity=counts,
            reliability=counts / (counts + self.ridge),
            task_ids=data.task_ids,
            statement=None,
            settings=self.get_params(),
        )
        return self

    def _base(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        gram = self.unobserved * (vectors.T @ vectors)
        return gram + self.ridge * np.eye(self.dimension, dtype=np.float32)


def _solve(
    segments: Segments,
    features: NDArray[Any],
    labels: NDArray[Any],
    base: NDArray[Any],
    weights: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Do one exact half-epoch."""
    return linalg.segment_solve(segments.indptr, segments.indices, features, weights=weights, labels=labels, base=base)


def _with_constant(parameters: NDArray[Any]) -> NDArray[Any]:
    """Return features of the other side's regression: a constant 1 in place of the bias."""
    features = parameters.copy()
    features[:, 0] = 1
    return features


def _check(dimension: int, epochs: int) -> None:
    if dimension < 1 or epochs < 1:
        raise InputError(f"Expected dimension and epochs of at least 1, got {dimension} and {epochs}.", argument=None)
