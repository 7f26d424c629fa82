"""Principal components of rows that belong to users: those of a released covariance matrix."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from apportion.data.numbers import finite_rows
from apportion.data.users import UserParts
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.privacy import Session
from apportion.statistics.covariance import CovarianceEstimator


@with_constructor
class UserPCA(CovarianceEstimator):
    """Principal components of users' rows, every user counting one, under user-level differential privacy.

    The components are the eigenvectors of the released covariance matrix: nothing further is spent on them. A component
    whose variance is not several times `noise_stddev_` times the root of the number of columns is mostly noise.

    Args:
        n_components: how many; None for as many as there are columns.

    Attributes:
        components_: one row for each, by falling variance; the entry that is largest in size is positive.
        explained_variance_: the variance along each component.
        explained_variance_ratio_: the same as a share of the whole variance.
        covariance_: the released matrix; this and other attributes are those of `UserCovariance`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, shared = rng.integers(0, 4000, 20_000), rng.normal(0, 1, (20_000, 1))
        >>> rows = shared * [1.0, 1.0, 0.0] + 0.2 * rng.normal(0, 1, (20_000, 3))
        >>> found = UserPCA(1, epsilon=2.0, value_range=(-5, 5)).fit(rows, users=users)
        >>> found.components_.shape, found.transform(rows[:2]).shape
        ((1, 3), (2, 1))
    """

    n_components: int | None = None
    epsilon: float = 1.0
    delta: float = 1e-6

    components_: Any = field(init=False)
    explained_variance_: Any = field(init=False)
    explained_variance_ratio_: Any = field(init=False)

    def _found(self, owners: UserParts, columns: int, session: Session | None) -> Self:
        wanted = columns if self.n_components is None else self.n_components
        if not 1 <= wanted <= columns:
            raise InputError(f"Expected from 1 to {columns} components, got {wanted}.", argument="n_components")
        super()._found(owners, columns, session)
        values, vectors = np.linalg.eigh(self.covariance_)
        variances, rows = np.maximum(values[::-1], 0.0), vectors.T[::-1][:wanted]
        largest = rows[np.arange(wanted), np.abs(rows).argmax(axis=1)]
        self.components_ = rows * np.where(largest < 0, -1.0, 1.0)[:, None]
        self.explained_variance_ = variances[:wanted]
        self.explained_variance_ratio_ = variances[:wanted] / max(float(variances.sum()), 1e-300)
        return self

    def transform(self, X: ArrayLike) -> Any:  # noqa: N803
        """Coordinates of rows along the components. This releases nothing: it is for rows that one may see."""
        return (finite_rows(X, "X") - self.mean_) @ self.components_.T
