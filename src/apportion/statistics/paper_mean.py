"""The mean of users' values, each user's contribution bounded smoothly, with an interval.

Algorithm 1 of Epasto et al., "Smoothly Bounding User Contributions in Differential Privacy" (2020), with the optimal
weights, also for vectors, with Laplace or Gaussian noise. The paper reads the variance from the data; here it is given
or paid for.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.users import ContributionPolicy, Smooth
from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_rows
from apportion.data.users import UserParts, in_memory
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.contributions import (
    Bounded,
    ContributionsEstimator,
    Noisy,
    Sizes,
    capped_weights,
    publicly_weighed,
)
from apportion.estimators.frames import is_elsewhere, rows_of_frame
from apportion.postprocessing.intervals import half_widths
from apportion.privacy import PublicRowWeights, Purpose, Session, Share
from apportion.privacy.budget import Plan
from apportion.privacy.contributions import BoxedColumns, RowTotal
from apportion.privacy.purposes import Name, ReleaseName
from apportion.statistics.user_statistic import UserStatistic
from apportion.statistics.value_box import ValueBox

Floats = NDArray[np.float64]

_LARGEST_VARIANCE = 0.25  # of values within [-1/2, 1/2]
_CAREFUL = 1.0  # standard deviations that an estimated variance is raised by; errs on the wide side (measured)


@with_constructor
class PaperMean(ContributionsEstimator, UserStatistic):
    """The paper's weighted mean of values in a known range, unbiased if values do not depend on sizes.

    Args:
        delta: 0 for pure ε-DP by Laplace noise; above 0 for Gaussian noise.
        value_range: (low, high), public; two numbers, or two lists, one number a column. Values outside are clipped.
        variance: of one value, if it is public: a number, or one for each column. None estimates it with
            `variance_share` of the budget, or takes the largest that the range allows if that is 0.
        variance_share: share of the budget for the variance.
        correlation: assumed, public, between two values of one user; 0 for independent values, as in the paper.
        bounding: how each user's contribution is bounded: Smooth(), SampleLimit() or Unbounded().
        sizes: "public" if everybody may know how many rows each user has; "private" to protect that too.
        sizes_share: share of the budget for a histogram of sizes, from which the threshold is chosen, if they are
            private.
        max_size: a public bound on the threshold where sizes are private.
        level: coverage of the interval.

    Attributes:
        mean_: a number, or one for each column.
        interval_: (low, high) of the interval for each, for a mean of values drawn independently for each user.
        noise_stddev_: the standard deviation of the privacy noise in each mean.
        variance_: of one value: as given, estimated, or the largest possible.
        threshold_: h; rows of a user beyond this many add no weight.
        statement_: the privacy statement.

    Privacy: with public sizes, replacing the values of one user; with private ones, adding or removing one user. The
    range, the variance if given, and the correlation are public.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, hours = rng.integers(0, 2000, 10_000), rng.uniform(0, 8, 10_000)
        >>> mean = PaperMean(epsilon=1.0, value_range=(0, 24)).fit(hours, users=users)
        >>> round(float(mean.mean_))
        4
        >>> mean.statement_.delta
        0.0
    """

    epsilon: float = 1.0
    delta: float = 0.0
    _: KW_ONLY
    value_range: tuple[Any, Any]
    variance: Any = None
    variance_share: float = 0.1
    correlation: float = 0.0
    bounding: ContributionPolicy = Smooth()
    sizes: Sizes = "public"
    sizes_share: float = 0.1
    max_size: int = 1 << 20
    level: float = 0.95

    mean_: Any = field(init=False)
    interval_: Any = field(init=False)
    noise_stddev_: Any = field(init=False)
    variance_: Any = field(init=False)
    threshold_: float = field(init=False)

    def _fit(self, X: Any, users: ArrayLike, session: Session | None) -> Self:  # noqa: N803
        if is_elsewhere(X):
            with rows_of_frame(self.engine, X, users) as (on_cluster, width):
                return self._found(on_cluster, width, session, flat=width == 1)
        values = finite_rows(X, "X")
        grouping = group_rows(users, len(values), single_user=self._sizes_are_private)
        return self._found(grouping.users(values=values), values.shape[1], session, flat=np.ndim(X) == 1)

    def _found(self, owners: UserParts, width: int, session: Session | None, *, flat: bool) -> Self:
        box = ValueBox.of(self.value_range, width)
        given = self._given_variance(box)
        opened = self._session(session, self._assumed_public(box, given is not None))
        plan = self._plan(opened, estimates_variance=given is None)
        spread = _Spread(given, given) if given is not None else self._spread(owners, box, opened, plan)
        share = plan.one("mean")
        trade_off = float(spread.likely.mean()) / self._price(width, opened, share)
        found = self._bounded(owners, trade_off, opened, _maybe(plan, "sizes"), self.correlation)
        name = ReleaseName(Purpose.MEAN, label="mean by the paper's weights")
        estimate = self._released(name, BoxedColumns(box.low, box.high), width, found, opened, share)
        self._publish(estimate, spread, box, flat=flat)
        self.threshold_ = found.threshold
        self.statement_ = opened.statement()
        return self

    def _given_variance(self, box: ValueBox) -> Floats | None:
        """The variance of scaled values, if it is public."""
        if self.variance is None:
            if self.variance_share > 0:
                return None
            return np.full(len(box.low), _LARGEST_VARIANCE)
        given = np.broadcast_to(np.asarray(self.variance, np.float64), box.low.shape)
        if not ((given >= 0) & np.isfinite(given)).all():
            raise InputError(f"Expected a finite variance of at least 0, got {self.variance}.", argument="variance")
        return np.minimum(given / np.square(box.width), _LARGEST_VARIANCE)

    def _assumed_public(self, box: ValueBox, is_given: bool) -> list[str]:
        about = [f"the range of values, {box.words}"]
        if is_given and self.variance is not None:
            about.append(f"the variance of one value, declared as {self.variance}")
        if self.correlation:
            about.append(f"the correlation of two values of one user, declared as {self.correlation:g}")
        return about

    def _plan(self, session: Session, *, estimates_variance: bool) -> Plan:
        first = {**self._sizes_fractions(), **({"variance": self.variance_share} if estimates_variance else {})}
        rest = 1 - sum(first.values())
        if not 0 <= self.correlation <= 1:
            raise InputError(f"Expected a correlation from 0 to 1, got {self.correlation}.", argument="correlation")
        if rest <= 0 or not 0 < self.level < 1:
            asked = f"{1 - rest:g} and a level of {self.level:g}"
            raise InputError(
                f"Expected first shares below 1 in all and a level between 0 and 1, got {asked}.", argument=None
            )
        return session.plan(**first, mean=rest)

    def _price(self, width: int, session: Session, share: Share) -> float:
        """Variance of the noise in one coordinate for each squared unit of the largest total weight."""
        columns = width + self._sizes_are_private
        if session.budget.pure:
            return 2 * (columns / share.pure_epsilon) ** 2 / (4 if self._sizes_are_private else 1)
        return columns / share.mu**2 / (4 if self._sizes_are_private else 1)

    def _spread(self, users: UserParts, box: ValueBox, session: Session, plan: Plan) -> _Spread:
        """Estimate the variance of every column from first and second moments in which each user counts the same."""
        width = len(box.low)
        if self._sizes_are_private:
            equal = Bounded(capped_weights(1.0), 1.0, users)
        else:
            held = in_memory(users, "Weights by public sizes")
            sizes = held.sizes
            each = np.repeat(1 / np.maximum(sizes, 1) / (sizes > 0).sum(), sizes)
            equal = publicly_weighed(held, each, "every user with the same total weight", 1.0)
        share = plan.one("variance")
        values = BoxedColumns(box.low, box.high, squares=True)
        found = self._released(Purpose.FIRST_MOMENTS, values, width, equal, session, share)
        first, second = found.values[:width], (found.values[width:] + 0.5) / 4
        likely = np.clip(second - np.square(first), 0.0, _LARGEST_VARIANCE)
        of_first, of_second = found.noise_variance[0], found.noise_variance[width]
        noise = math.sqrt(of_second / 16 + 4 * float(np.square(first).max()) * of_first)
        sampling = math.sqrt(found.sampling / 64)  # a square within [0, 1/4] has variance at most 1/64
        careful = likely + _CAREFUL * math.hypot(noise, sampling) + of_first
        return _Spread(likely, np.minimum(careful, _LARGEST_VARIANCE))

    def _released(
        self, name: Name, values: BoxedColumns, columns: int, found: Bounded, session: Session, share: Share
    ) -> _Estimate:
        """Means of the columns, and what their errors are made of."""
        public = isinstance(found.weights, PublicRowWeights)
        form = values if public else replace(values, constant=True)
        width = form.width(columns)
        noisy = self._release(session, name, found.users, RowTotal(form, width, found.weights), share)
        if not isinstance(found.weights, PublicRowWeights):
            return self._ratio(noisy, found.threshold)
        rho, (rows, totals) = self.correlation, found.weights.sums_of_squares
        scales = np.full((width, 1), noisy.scale)
        return _Estimate(noisy.values, np.full(width, noisy.stddev), scales, (1 - rho) * rows + rho * totals)

    def _ratio(self, noisy: Noisy, threshold: float) -> _Estimate:
        """A noisy sum over a noisy total weight; the total's noise counts in the error, and makes it err low."""
        total_noise = 2 * math.sqrt(noisy.variance)
        total = max(2 * float(noisy.values[-1]), threshold)
        safe = max(total - 2 * _CAREFUL * total_noise, threshold)
        means = np.clip(noisy.values[:-1] / total, -0.5, 0.5)
        scales = np.stack([np.full(len(means), noisy.scale), 2 * np.abs(means) * noisy.scale], axis=1)
        rows, totals = 1 / safe, threshold / safe  # bounds on both sums of squares: no weight exceeds 1, no total h
        sampling = (1 - self.correlation) * rows + self.correlation * totals
        stddev = noisy.stddev * np.sqrt(1 + 4 * np.square(means)) / safe
        return _Estimate(means, stddev, scales / safe, sampling)

    def _publish(self, estimate: _Estimate, spread: _Spread, box: ValueBox, *, flat: bool) -> None:
        means = np.clip(estimate.values, -0.5, 0.5)
        normal = np.sqrt(np.square(estimate.stddev) + spread.careful * estimate.sampling)
        widths = half_widths(self.level, normal, estimate.scales)
        ends = np.stack([np.clip(estimate.values + sign * widths, -0.5, 0.5) for sign in (-1, 1)], axis=1)
        found = {
            "mean_": box.restored(means),
            "interval_": np.stack([box.restored(ends[:, 0]), box.restored(ends[:, 1])], axis=1),
            "noise_stddev_": np.sqrt(estimate.noise_variance) * box.width,
            "variance_": spread.likely * np.square(box.width),
        }
        for name, column in found.items():
            setattr(self, name, column[0] if flat else column)


@dataclass(frozen=True)
class _Spread:
    """Variances of scaled values: a likely one for weights, and one not too small for intervals."""

    likely: Floats
    careful: Floats


@dataclass(frozen=True)
class _Estimate:
    """Means of scaled values and their errors.

    Attributes:
        values: the means.
        stddev: of normal noise in each.
        scales: of Laplace noise in each, one row per mean.
        sampling: what the variance of one value is multiplied by in the variance of a mean.
    """

    values: Floats
    stddev: Floats
    scales: Floats
    sampling: float

    @property
    def noise_variance(self) -> Floats:
        return np.asarray(np.square(self.stddev) + 2 * np.square(self.scales).sum(axis=1))


def _maybe(plan: Plan, name: str) -> Share | None:
    return plan.one(name) if name in plan else None
