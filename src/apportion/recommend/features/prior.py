"""Features in a recommender: regressors of a prior, the main directions of features, and maps to new items.

All of it is computed from public features and released values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.policies import Allocation
from apportion.data.features import ItemFeatures
from apportion.data.sparse_rows import SparseRows
from apportion.data.user_data import UnlistedData, UserData
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.items import ItemsEstimator, ItemsGiven
from apportion.postprocessing import feature_prior
from apportion.postprocessing.feature_prior import Regressors
from apportion.privacy import Session
from apportion.recommend.als import Progress

Floats = NDArray[np.floating[Any]]

_RIDGE_STEPS = 10
_FEW_COLUMNS = 1000
_LEAST_VARIANCE = 1e-9


@with_constructor
class FeaturesEstimator(ItemsEstimator, ABC):
    """A private recommender that may use public item features.

    Args:
        features: public item features. They shift the prior mean of each item's vector. None to know items by id alone.
        items: which items there are. `"private"`: a list is released with their popularity, of those that enough users
            have. A list of ids: public. `"from-data"`: the items that occur, declared public, which reveals who has
            an item that nobody else has. None: the public list of the data if they have one, else `"private"`.
        random_state: seed of the public initial item vectors.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    n_users: int | None = None
    features: ItemFeatures | None = None
    items: ItemsGiven = None
    allocation: Allocation | None = None
    dimension: int | None = None
    rounds: int | None = None
    random_state: int = 0

    def fit(self, data: Any, *, session: Session | None = None, progress: Progress | None = None) -> Self:
        """Spend the budget on the data. Afterwards `model_` may be released with its `statement_`.

        Args:
            data: `Interactions`, a frame that supports Arrow, or with `engine=SparkEngine(spark)` one of its session.
            session: brings its own budget, noise and window, which replace those of the estimator.
            progress: is told how far the fit is.
        """
        with self._read(data) as read:
            return self._fit(read, session, progress)

    @abstractmethod
    def _fit(self, data: UserData | UnlistedData, session: Session | None, progress: Progress | None) -> Self:
        """Make every release, and keep the model."""

    def _public_features(self) -> list[str]:
        """Return what the statement says about the features."""
        if self.features is None:
            return []
        if not isinstance(self.features, ItemFeatures):
            raise InputError(
                f"Expected features as an ItemFeatures, from ItemFeatures.read or from_frame, "
                f"got {type(self.features).__name__}.",
                argument="features",
            )
        return [self.features.sentence]


def regressors(covariates: Floats, rows: SparseRows) -> Regressors:
    """Return covariates and features side by side; if some items have none, an indicator is a covariate."""
    with_features = rows.counts > 0
    if not with_features.all():
        covariates = np.concatenate([covariates, with_features[:, None]], axis=1)
    return Regressors.of(covariates, rows.to_scipy(), [group.size for group in rows.groups])


@dataclass(frozen=True, eq=False)
class Directions:
    """The leading directions in which items' features differ, longest first, and how any features map to them.

    Attributes:
        values: one row per item, centred, zero for items without features; columns are orthogonal, with lengths that
            show how much items differ in that direction.
        intercept: the value of zero features in each direction.
        coefficients: what each feature adds.
    """

    values: NDArray[np.float64]
    intercept: NDArray[np.float64]
    coefficients: NDArray[np.float64]

    @property
    def size(self) -> int:
        """The number of directions."""
        return len(self.intercept)

    def of_equal_length(self, count: int) -> NDArray[np.float64]:
        """Return the first directions, each of mean square 1."""
        chosen = self.values[:, :count]
        return np.asarray(chosen / np.sqrt(np.square(chosen).mean(axis=0)))


def leading_directions(rows: SparseRows, count: int) -> Directions:
    """Return principal components of the features; fewer than requested if there are fewer.

    A group with a total variance above 1 is first scaled down to 1, so that long lists of words do not dominate.
    """
    with_features = np.flatnonzero(rows.counts)
    if not len(with_features):
        raise InputError(
            "Expected features of at least one item of the data, got no informative ones.", argument="features"
        )
    matrix, mean, scale = _capped_groups(rows.take(with_features))
    few = matrix.shape[1] <= _FEW_COLUMNS
    variances, vectors = _small(matrix, mean) if few else _wide(matrix, mean, count)
    order = np.argsort(-variances)[:count]
    vectors = vectors[:, order[variances[order] > _LEAST_VARIANCE]]
    vectors = vectors * np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])])
    values = np.zeros((len(rows), vectors.shape[1]))
    values[with_features] = matrix @ vectors - mean @ vectors
    return Directions(values, -mean @ vectors, scale[:, None] * vectors)


def _small(matrix: Any, mean: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return variances and directions of all components, from the covariance of few columns."""
    covariance = (matrix.T @ matrix).toarray() / max(matrix.shape[0], 1) - np.outer(mean, mean)
    variances, vectors = np.linalg.eigh(covariance)
    return variances, vectors


def _wide(matrix: Any, mean: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return variances and directions of the first components of very many columns, by a Lanczos method."""
    from scipy.sparse.linalg import LinearOperator, svds

    centred = LinearOperator(
        matrix.shape,
        matvec=lambda x: matrix @ x.ravel() - mean @ x.ravel(),
        rmatvec=lambda y: matrix.T @ y.ravel() - mean * y.sum(),
        dtype=np.float64,
    )
    count = min(count, min(matrix.shape) - 1)
    if count < 1:
        return np.zeros(0), np.zeros((matrix.shape[1], 0))
    start = np.cos(np.arange(min(matrix.shape)))  # any fixed vector, so that the answer is always the same
    _, sizes, right = svds(centred, k=count, v0=start)
    return np.square(sizes) / matrix.shape[0], right.T


def _capped_groups(rows: SparseRows) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Return the features with every group at a total variance of at most 1, their mean, and the factors."""
    n_rows = max(len(rows), 1)
    values = rows.values.astype(np.float64)
    mean = np.bincount(rows.indices, values, minlength=rows.n_columns) / n_rows
    variance = np.bincount(rows.indices, values**2, minlength=rows.n_columns) / n_rows - mean**2
    scale = np.ones(rows.n_columns)
    for group in rows.groups:
        part = slice(group.first, group.last)
        scale[part] = 1 / np.sqrt(max(float(variance[part].sum()), 1.0))
    scaled = rows.to_scipy()
    scaled.data = scaled.data * scale[scaled.indices]
    return scaled, mean * scale, scale


def linear_map(
    targets: Floats, rows: SparseRows, weights: Floats | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return intercept and coefficients of a ridge regression of released values on features, with fitted strength.

    Args:
        targets: one row per item, or one number.
        rows: the items' features; items without any are left out.
        weights: the weight of each item; by default all equal.
    """
    with_features = np.flatnonzero(rows.counts)
    values = np.asarray(targets, np.float64).reshape(len(rows), -1)[with_features]
    explanatory = regressors(np.ones((len(with_features), 1)), rows.take(with_features))
    if weights is not None:
        roots = np.sqrt(weights[with_features] / max(float(weights[with_features].mean()), 1e-12))
        values, explanatory = values * roots[:, None], explanatory.scaled(roots)
    found = feature_prior.ridge(values, explanatory, _RIDGE_STEPS)
    return found[0], found[1:]


def log_popularity(popularity: Floats) -> NDArray[np.float64]:
    """Logarithms of released popularity, floored at a twentieth of its mean; as `postprocessing.popularity` has it."""
    return np.asarray(np.log(popularity + 0.05 * max(float(popularity.mean()), 1e-12)))
