"""What statistics of users' rows share: one `fit`, and the engine that forms their sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from numpy.typing import ArrayLike

from apportion.data.grouping import one_of
from apportion.estimators.private import EngineEstimator
from apportion.privacy import Session


class UserStatistic(EngineEstimator, ABC):
    """A private statistic of rows, each of which belongs to a user."""

    delta: float

    def fit(
        self,
        X: Any,  # noqa: N803
        y: object = None,
        *,
        users: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        session: Session | None = None,
    ) -> Self:
        """Spend the budget on the data. Afterwards, attributes that end in _ may be released.

        Args:
            X: values, one per row, or a matrix where several columns are estimated; with `engine=SparkEngine(spark)`
                a frame of that session, or `FolderNumbers`: all columns but that of the users.
            y: ignored, for compatibility.
            users: the user of each row, integers or text; the name of a column of a Spark frame.
            groups: the same as `users`, for tools of scikit-learn that pass this word; give one of the two.
            session: brings its own budget, noise and window; those of the estimator are then not used.
        """
        self._check()
        return self._fit(X, one_of(users, groups), session)

    def _check(self) -> None:
        """Refuse invalid settings, before the data are looked at."""

    @abstractmethod
    def _fit(self, X: Any, users: ArrayLike, session: Session | None) -> Self:  # noqa: N803
        """Make every release, and keep what was found."""
