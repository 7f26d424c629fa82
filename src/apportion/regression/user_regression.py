"""What regressions on users' rows share: the method `fit`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from numpy.typing import ArrayLike

from apportion.data.grouping import one_of
from apportion.estimators.private import EngineEstimator
from apportion.privacy import Session

Progress = Callable[[str, int, int], None]


class UserRegression(EngineEstimator, ABC):
    """A private regression on rows, each of which belongs to a user."""

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        users: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        session: Session | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Spend the budget on the data. Afterwards, attributes that end in _ may be released.

        Args:
            X: features, one row per label. With `engine=SparkEngine(spark)`, X is a frame of that session, and `y` and
                `users` are names of its columns.
            y: labels, one per row.
            users: the user of each row, integers or text.
            groups: the same as `users`, for scikit-learn tools that use this name; give at most one of the two.
            session: a session with its own budget, noise and window, which replace those of the estimator.
            progress: called with the kind of step, the number done and the total.
        """
        self._check()
        return self._fit(X, y, one_of(users, groups), session, progress)

    @abstractmethod
    def _check(self) -> None:
        """Refuse invalid settings, before the data are looked at."""

    @abstractmethod
    def _fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        users: ArrayLike,
        session: Session | None,
        progress: Progress | None,
    ) -> Self:
        """Make every release, and keep the model."""
