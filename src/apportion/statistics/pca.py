"""Principal components of rows that belong to users: those of a released covariance matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from apportion.data.numbers import finite_rows
from apportion.data.users import UserParts
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.privacy import NoiseSource, Session
from apportion.statistics.covariance import UserCovariance


class UserPCA(UserCovariance):
    """Principal components of users' rows, every user counting one, under user-level differential privacy.

    The components are the eigenvectors of the released covariance matrix: nothing further is spent on them. A component
    whose variance is not several times `noise_stddev_` times the root of the number of columns is mostly noise.

    Args:
        n_components: how many; None for as many as there are columns.
        epsilon: ε of the whole fit.
        delta: δ, above 0: noise is Gaussian.
        value_range: (low, high), public, numbers or one for each column; values beyond are clipped.
        level: of the intervals of the covariance matrix.
        public: further sentences for the statement on what is assumed public.
        window: the time span of the data, for the statement.
        tuning: how settings were chosen, for the statement, if any was given.
        noise: `"secure"` (default, from the operating system), `"exact"` (exact arithmetic as well), or a source.
        engine: where sums are formed; None for this machine's processors.

    Attributes:
        components_: one row for each, by falling variance; the entry that is largest in size is positive.
        explained_variance_: along each.
        explained_variance_ratio_: over the whole variance.
        covariance_: see `UserCovariance`, as for the others.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, shared = rng.integers(0, 4000, 20_000), rng.normal(0, 1, (20_000, 1))
        >>> rows = shared * [1.0, 1.0, 0.0] + 0.2 * rng.normal(0, 1, (20_000, 3))
        >>> found = UserPCA(1, epsilon=2.0, value_range=(-5, 5)).fit(rows, users=users)
        >>> found.components_.shape, found.transform(rows[:2]).shape
        ((1, 3), (2, 1))
    """

    components_: Any
    explained_variance_: Any
    explained_variance_ratio_: Any

    def __init__(
        self,
        n_components: int | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        value_range: tuple[Any, Any],
        level: float = 0.95,
        public: Sequence[str] = (),
        window: str = "not declared",
        tuning: str | None = None,
        noise: NoiseSource | str | None = None,
        engine: Engine | None = None,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            value_range=value_range,
            level=level,
            public=public,
            window=window,
            tuning=tuning,
            noise=noise,
            engine=engine,
        )
        self.n_components = n_components

    def fit(
        self,
        X: Any,  # noqa: N803
        y: object = None,
        *,
        users: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        session: Session | None = None,
    ) -> Self:
        """Spend the budget on the covariance matrix, and take its eigenvectors; arguments as of `UserCovariance`."""
        return super().fit(X, users=users, groups=groups, session=session)

    def _fit(self, owners: UserParts, columns: int, session: Session | None) -> Self:
        wanted = columns if self.n_components is None else self.n_components
        if not 1 <= wanted <= columns:
            raise InputError(f"Expected from 1 to {columns} components, got {wanted}.", argument="n_components")
        super()._fit(owners, columns, session)
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
