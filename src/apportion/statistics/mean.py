"""The mean over rows or over users, with an interval. The target is named and does not depend on ε."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from apportion.allocation.users import ContributionPolicy, Smooth
from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_rows
from apportion.data.users import UserParts
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.contributions import ContributionsEstimator, Noisy, Sizes, one_of_words
from apportion.estimators.frames import is_elsewhere, rows_of_frame
from apportion.privacy import Session, Share
from apportion.privacy.contributions import Contribution
from apportion.privacy.purposes import Name
from apportion.privacy.statement import STATISTICS_DEFAULTS
from apportion.statistics.paper_mean import PaperMean
from apportion.statistics.target_mean import Found, TargetMean
from apportion.statistics.user_parts import Target, UserMeans
from apportion.statistics.user_statistic import UserStatistic
from apportion.statistics.value_box import ValueBox

Weights = Literal["target", "paper"]
Interval = Literal["rows", "population"]

_OF_THE_PAPER = ("bounding", "variance", "variance_share", "correlation", "sizes_share")


@with_constructor
class UserMean(ContributionsEstimator, UserStatistic):
    """The mean of values in a known range under user-level differential privacy.

    Args:
        delta: 0 for pure ε-DP by Laplace noise; above 0 for Gaussian noise.
        value_range: (low, high), public; two numbers, or two lists, one number a column. Values outside are clipped.
        of: "rows" for the mean over all rows; "users" for the mean over users of each user's own mean.
        weights: "target" estimates that mean even if values depend on how many rows a user has; "paper" takes the
            weights of Epasto et al. (2020), which are unbiased only if they do not. "paper" ignores `of`.
        sizes: "private" protects how many rows a user has; "public" does not, and needs the paper's weights.
        max_size: public; a user with more rows counts as if it had this many.
        interval_for: "rows" for intervals of the mean of these rows; "population" for the mean of the population from
            which these users were drawn.
        simultaneous: whether the intervals of several columns hold together, or each on its own.
        level: the coverage of the intervals.
        bounding: with the paper's weights, how each user's contribution is bounded: Smooth(), SampleLimit() or
            Unbounded().
        variance: with the paper's weights, the public variance of one value: a number, or one for each column.
        variance_share: with the paper's weights, the share of the budget for estimating the variance.
        correlation: with the paper's weights, the assumed correlation between two values of one user; public.
        sizes_share: with the paper's weights, the share of the budget for a histogram of sizes.

    Attributes:
        mean_: a number, or one for each column.
        interval_: (low, high) of the interval for each.
        noise_stddev_: the standard deviation of the privacy noise in each mean.
        hidden_user_: how far one more user with `max_size` rows, all at one end of the range, would move each mean; an
            estimate. No release shows one user, so intervals do not hold this. Not there with the paper's weights.
        threshold_: h; rows of a user beyond this many add no weight.
        statement_: the privacy statement.

    Privacy: adding or removing one user; with the paper's weights and public sizes, replacing the values of one user.
    The range is public.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, hours = rng.integers(0, 2000, 10_000), rng.uniform(0, 8, 10_000)
        >>> mean = UserMean(epsilon=1.0, value_range=(0, 24)).fit(hours, users=users)
        >>> round(float(mean.mean_))
        4
        >>> mean.statement_.delta
        0.0
    """

    epsilon: float = 1.0
    delta: float = 0.0
    _: KW_ONLY
    value_range: tuple[Any, Any]
    of: Target = "rows"
    weights: Weights = "target"
    sizes: Sizes = "private"
    max_size: int = 1 << 10
    interval_for: Interval = "rows"
    simultaneous: bool = True
    level: float = 0.95
    bounding: ContributionPolicy = Smooth()
    variance: Any = None
    variance_share: float = 0.1
    correlation: float = 0.0
    sizes_share: float = 0.1

    mean_: Any = field(init=False)
    interval_: Any = field(init=False)
    noise_stddev_: Any = field(init=False)
    hidden_user_: Any = field(init=False)
    threshold_: float = field(init=False)

    def _fit(self, X: Any, users: ArrayLike, session: Session | None) -> Self:  # noqa: N803
        if self.weights == "paper":
            return self._follow_paper(X, users, session)
        if is_elsewhere(X):
            with rows_of_frame(self.engine, X, users) as (on_cluster, columns):
                return self._found(on_cluster, columns, session, flat=columns == 1)
        values = finite_rows(X, "X")
        owners = group_rows(users, len(values), single_user=True).users(values=values)
        return self._found(owners, values.shape[1], session, flat=np.ndim(X) == 1)

    def _found(self, owners: UserParts, columns: int, session: Session | None, *, flat: bool) -> Self:
        box = ValueBox.of(self.value_range, columns)
        opened = self._session(session, [f"the range of values, {box.words}", *self._about_largest()])
        means = UserMeans(box.low, box.high, self.of, float(self.max_size))
        level = 1 - (1 - self.level) / columns if self.simultaneous else self.level
        release = partial(self._paid, opened, owners)
        fit = TargetMean(owners, means, columns, opened, release, self.interval_for == "population", level)
        self._publish(fit.found(), box, flat=flat)
        self.statement_ = opened.statement()
        return self

    def _check(self) -> None:
        self._check_target(_OF_THE_PAPER)
        one_of_words("interval_for", self.interval_for, ("rows", "population"))
        if not 0 < self.level < 1:
            raise InputError(f"Expected a level between 0 and 1, got {self.level:g}.", argument="level")

    def _words_on_defaults(self) -> str:
        return STATISTICS_DEFAULTS

    def _paid(self, session: Session, users: UserParts, name: Name, contribution: Contribution, share: Share) -> Noisy:
        return self._release(session, name, users, contribution, share)

    def _publish(self, found: Found, box: ValueBox, *, flat: bool) -> None:
        restored = {
            "mean_": box.restored(found.means - 0.5),
            "interval_": np.stack([box.restored(ends - 0.5) for ends in found.ends.T], axis=1),
            "noise_stddev_": found.noise * box.width,
            "hidden_user_": found.hidden * box.width,
        }
        for name, column in restored.items():
            setattr(self, name, column[0] if flat else column)
        self.threshold_ = found.cap

    def _follow_paper(self, values: ArrayLike, users: ArrayLike, session: Session | None) -> Self:
        """Fit with the paper's weights and copy its results."""
        own = self.get_params()
        paper = PaperMean(**{name: own[name] for name in PaperMean(value_range=self.value_range).get_params()})
        fitted = paper.fit(values, users=users, session=session)
        for name in ("mean_", "interval_", "noise_stddev_", "threshold_", "statement_"):
            setattr(self, name, getattr(fitted, name))
        return self
