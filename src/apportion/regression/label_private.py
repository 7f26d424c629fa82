"""Linear regression that protects labels, with public features: a public matrix times the labels, plus noise.

The target is the least squares line over all rows, at every ε, whether or not the truth is linear
(`label_weights.robust`). `bounding="paper"` is Algorithm 3 (GWA) of Epasto et al., "Smoothly Bounding User
Contributions in Differential Privacy" (2020), with the matrix C that minimises the total variance if the truth is
linear (`label_weights.optimal`). What the paper takes from the labels, the variance of the noise in them, is an
argument here or paid for.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.users import SampleLimit, Unbounded
from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_column, finite_matrix
from apportion.data.users import Users
from apportion.engines import add_up_one
from apportion.engines.spark.public_columns import RowsWithPublicColumns
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.contributions import Noisy, release_noisy
from apportion.estimators.frames import is_frame, rows_with_public_features
from apportion.estimators.private import check_value_range
from apportion.postprocessing.intervals import half_widths
from apportion.privacy import REPLACE_LABELS, Budget, Purpose, Session, Share
from apportion.privacy.contributions import BoxedColumns, LabelTotal, LabelVectors, Values
from apportion.privacy.statement import STATISTICS_DEFAULTS
from apportion.regression.label_weights.optimal import LabelWeights, least_squares_weights, optimal_label_weights
from apportion.regression.label_weights.robust import Design, Structure, robust_label_weights
from apportion.regression.residual_structure import (
    LARGEST_VARIANCE,
    Average,
    Residuals,
    SquaredResiduals,
    from_averages,
    guessed,
    without_releases,
)
from apportion.regression.user_regression import Progress, UserRegression

Floats = NDArray[np.float64]
Offsets = NDArray[np.int64]
Held = Users | RowsWithPublicColumns
Bounding = Literal["robust", "paper"] | SampleLimit | Unbounded | LabelWeights

_ROUGH = 1e-2  # tolerance of the weights of a first, rough estimate
_MOST_LIMITS = 60  # most limits that are tried in the search for the best one
_BY_NAME = ("robust", "paper")


@with_constructor
class LabelPrivateRegression(UserRegression):
    """Linear regression under user-level differential privacy of the labels.

    The estimate is C y plus noise with C X = 1: a weighted least squares line, whose target is the least squares line
    over all rows.

    Args:
        delta: 0 for pure ε-DP by Laplace noise; above 0 for Gaussian noise.
        label_range: (low, high), public. Labels outside are clipped.
        noise_variance: the variance of a label around the line, if it is public. None estimates it, and how much of it
            a user's rows share, with `variance_share` of the budget; if that share is 0, it is the largest variance
            that the range allows.
        variance_share: share of the budget for that estimate.
        fit_intercept: whether to add a column of ones to the features. They must have full rank, together with it.
        target: "predictions" to minimise the squared error of the predictions on the rows themselves, which does not
            depend on the units of the features; "coefficients" for that of the coefficients, as the paper does.
        bounding: "robust" for weights that still work if the truth is curved or depends on the number of rows; "paper"
            for the C that is best if the truth is linear; SampleLimit(h) for least squares on at most h rows of each
            user (None: the h with the least total variance), Unbounded() for least squares on all rows; or the
            `label_weights_` of another fit to the same features and users, for other labels.
        level: coverage of the intervals.
        interval_for: "rows" for intervals of the least squares line over these rows; "population" for that of the
            population from which these users were drawn. Intervals of "paper" weights assume that labels' means are
            linear in the features and that labels vary independently. They are then for the population.
        tolerance: how far the weights' total variance may be above the least one, as a fraction of it.

    Attributes:
        coef_: coefficients, one for each feature.
        intercept_: the intercept; 0 without one.
        coef_intervals_: (low, high) for each coefficient.
        intercept_interval_: (low, high) for the intercept.
        noise_stddev_: standard deviation of the privacy noise on each coefficient, the intercept last if there is one.
        noise_variance_: the variance of a label: as given, estimated, or the largest possible.
        total_variance_: predicted squared error of the target: that of noise, and of the bias that weights may have, or
            of labels around a linear truth for "paper" weights.
        gap_: how far that may be above the least possible error, as a fraction of it; nan if no minimum was sought.
        threshold_: h of a limit on rows, otherwise None.
        label_weights_: C, for the features as given, in the order of users, or as the target "predictions" turns them.
        statement_: the privacy statement.

    Privacy: replacing the labels of one user. Features, and which rows belong to one user, are public.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, x = rng.integers(0, 500, 2000), rng.uniform(-1, 1, (2000, 1))
        >>> y = 0.5 * x[:, 0] + rng.uniform(-0.1, 0.1, 2000)
        >>> model = LabelPrivateRegression(epsilon=5.0, label_range=(-1, 1)).fit(x, y, users=users)
        >>> round(float(model.coef_[0]), 1)
        0.5
    """

    epsilon: float = 1.0
    delta: float = 0.0
    _: KW_ONLY
    label_range: tuple[float, float]
    noise_variance: float | None = None
    variance_share: float = 0.1
    fit_intercept: bool = True
    target: Literal["coefficients", "predictions"] = "predictions"
    bounding: Bounding = "robust"
    level: float = 0.95
    interval_for: Literal["rows", "population"] = "rows"
    tolerance: float = 1e-6

    coef_: Floats = field(init=False)
    intercept_: float = field(init=False)
    coef_intervals_: Floats = field(init=False)
    intercept_interval_: Floats = field(init=False)
    noise_stddev_: Floats = field(init=False)
    noise_variance_: float = field(init=False)
    total_variance_: float = field(init=False)
    gap_: float = field(init=False)
    threshold_: float | None = field(init=False)
    label_weights_: LabelWeights = field(init=False)

    def _fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        users: ArrayLike,
        session: Session | None,
        progress: Progress | None,
    ) -> Self:
        if is_frame(X):
            with rows_with_public_features(self.engine, X, users, y) as on_cluster:
                return self._found(on_cluster.features, on_cluster, session, progress)
        features = finite_matrix(X, "X")
        labels = finite_column(y, "y", len(features))
        grouping = group_rows(users, len(features))
        return self._found(grouping.arranged(features), grouping.users(labels=labels), session, progress)

    def _found(self, features: Floats, held: Held, session: Session | None, progress: Progress | None) -> Self:
        """Make every release. Features are in the order of the users; labels are with them, or on a cluster."""
        if self.fit_intercept:
            features = np.column_stack([features, np.ones(len(features))])
        opened = self._open(session, Budget(self.epsilon, self.delta), REPLACE_LABELS, self._assumed_public())
        rows = _Rows(features, held.indptr, self.target == "predictions")
        owners = held.with_columns(features=rows.features)
        plan = opened.plan(**self._fractions())
        residuals = self._residuals(rows, owners, opened, plan.get("variance"), progress)
        made = self._weights(rows, residuals.likely, opened, plan.one("coefficients"), self.tolerance, progress)
        released = self._released(Purpose.COEFFICIENTS, owners, made.rows, opened, plan.one("coefficients"))
        self._publish(rows, made, released, residuals)
        self.statement_ = opened.statement()
        return self

    def predict(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Return X times the coefficients, plus the intercept."""
        features = finite_matrix(X, "X")
        if features.shape[1] != len(self.coef_):
            raise InputError(
                f"Expected X with {len(self.coef_)} columns, as in the fit, got {features.shape[1]}.", argument="X"
            )
        return np.asarray(features @ self.coef_ + self.intercept_)

    @property
    def _predicts(self) -> Literal["numbers"]:
        return "numbers"

    def _check(self) -> None:
        check_value_range(self.label_range)
        if self.target not in ("coefficients", "predictions"):
            raise InputError(
                f"Expected the target 'coefficients' or 'predictions', got {self.target!r}.", argument="target"
            )
        if not (isinstance(self.bounding, SampleLimit | Unbounded | LabelWeights) or self.bounding in _BY_NAME):
            asked = f"{self.bounding!r}"
            raise InputError(
                f"Expected bounding 'robust', 'paper', SampleLimit() or Unbounded(), got {asked}.", argument="bounding"
            )
        if self.interval_for not in ("rows", "population"):
            raise InputError(
                f"Expected interval_for 'rows' or 'population', got {self.interval_for!r}.", argument="interval_for"
            )
        given = self.noise_variance
        if given is not None and not (math.isfinite(given) and given >= 0):
            raise InputError(f"Expected a finite noise_variance of at least 0, got {given}.", argument="noise_variance")
        if not 0 <= self.variance_share < 1 or not 0 < self.level < 1:
            asked = f"{self.variance_share} and {self.level}"
            raise InputError(f"Expected a variance_share in [0, 1) and a level in (0, 1), got {asked}.", argument=None)

    def _words_on_defaults(self) -> str:
        return STATISTICS_DEFAULTS

    def _assumed_public(self) -> list[str]:
        assumed = ["all features", "how many rows each user has", f"the range of labels, {self._range_in_words()}"]
        if self.noise_variance is not None:
            assumed.append(f"the variance of a label around its mean, declared as {self.noise_variance:g}")
        return assumed

    def _range_in_words(self) -> str:
        return f"{self.label_range[0]:.12g} to {self.label_range[1]:.12g}"

    @property
    def _width(self) -> float:
        return float(self.label_range[1]) - float(self.label_range[0])

    def _fractions(self) -> dict[str, float]:
        if self.noise_variance is not None or self.variance_share == 0:
            return {"coefficients": 1.0}
        return {"variance": self.variance_share, "coefficients": 1 - self.variance_share}

    def _weights(
        self,
        rows: _Rows,
        structure: Structure,
        session: Session,
        share: Share,
        tolerance: float,
        progress: Progress | None,
    ) -> LabelWeights:
        """Return public weights for labels scaled to a range of 1 whose residuals have this structure."""
        width = rows.features.shape[1]
        pure = session.budget.pure
        price = 2 * width / share.pure_epsilon**2 if pure else width / share.mu**2
        norm: Literal[1, 2] = 1 if pure else 2
        self.threshold_ = None
        if isinstance(self.bounding, LabelWeights):
            return _refitted(self.bounding, rows)
        if self.bounding == "robust":
            tried = None if progress is None else partial(progress, "weights of labels")
            return robust_label_weights(rows.design, structure, price=price, norm=norm, progress=tried)
        if isinstance(self.bounding, SampleLimit):
            return self._limited(rows, structure.variance, price, norm)
        variance = structure.variance
        if isinstance(self.bounding, Unbounded):
            return least_squares_weights(rows.features, rows.indptr, variance=variance, price=price, norm=norm)

        def show(_step: int, gap: float) -> None:
            if progress is not None:
                done = math.log(min(max(gap, tolerance), 1.0)) / math.log(min(tolerance, 0.5))
                progress("weights of labels", round(100 * done), 100)

        return optimal_label_weights(
            rows.features, rows.indptr, variance=variance, price=price, norm=norm, tolerance=tolerance, progress=show
        )

    def _limited(self, rows: _Rows, variance: float, price: float, norm: Literal[1, 2]) -> LabelWeights:
        """Return least squares on at most h rows per user; the best h by the total variance, which is public."""
        assert isinstance(self.bounding, SampleLimit)
        given = self.bounding.threshold
        best: LabelWeights | None = None
        for limit in [given] if given is not None else _limits(np.diff(rows.indptr)):
            kept = SampleLimit(limit, self.bounding.seed).row_weights(rows.indptr, 1.0).rows > 0
            if np.linalg.matrix_rank(rows.features[kept]) < rows.features.shape[1]:
                continue
            made = least_squares_weights(
                rows.features, rows.indptr, variance=variance, price=price, norm=norm, kept=kept
            )
            if best is None or made.objective < best.objective:
                best, self.threshold_ = made, float(limit)
        if best is None:
            raise InputError(f"Expected rows of full rank among at most {given} rows a user, got fewer.", argument=None)
        return best

    def _residuals(
        self,
        rows: _Rows,
        users: Held,
        session: Session,
        share: Share | tuple[Share, ...] | None,
        progress: Progress | None,
    ) -> Residuals:
        """Return how residuals vary if labels have a range of 1: as given, as much as possible, or from releases."""
        if not isinstance(share, Share):
            given = self.noise_variance
            return without_releases(None if given is None else given / self._width**2)
        parts = share.split(rough=0.5, squares=0.3, means=0.2)
        first = Structure(LARGEST_VARIANCE, 0.0, 0.0) if self.bounding == "paper" else guessed()
        made = self._weights(rows, first, session, parts["rough"], _ROUGH, progress)
        rough = self._released(Purpose.ROUGH_COEFFICIENTS, users, made.rows, session, parts["rough"])
        ends = float(self.label_range[0]), float(self.label_range[1])
        sizes = users.sizes[users.present]
        each = np.repeat(1 / sizes / len(sizes), sizes)
        line = rough.variance / self._width**2  # variance of the rough coefficients, which is part of the residuals
        squares = self._noisy(
            Purpose.RESIDUALS, users, SquaredResiduals(ends, rough.values), each[:, None], session, parts["squares"]
        )
        means = self._noisy(
            Purpose.SHARED_RESIDUALS, users, SquaredResiduals(ends, rough.values, True), each[:, None], session,
            parts["means"],
        )  # fmt: skip
        middles = rows.design.by_user(rows.features) / sizes[:, None]
        return from_averages(
            Average.of(squares, line * float(each @ np.square(rows.features).sum(axis=1)), len(sizes)),
            Average.of(means, line * float(np.square(middles).sum(axis=1).mean()), len(sizes)),
            float((1 / sizes).mean()),
        )

    def _noisy(
        self, name: Purpose, users: Held, labels: Values, vectors: Floats, session: Session, share: Share
    ) -> Noisy:
        """Release the sum of labels times public vectors."""
        contribution = LabelTotal(labels, LabelVectors.from_rows(vectors, users.indptr))
        weighed = users.with_columns(vectors=vectors)
        parts = weighed if isinstance(weighed, Users) else weighed.placed()
        return release_noisy(session, name, add_up_one(self._adder, parts, contribution), share)

    def _released(self, name: Purpose, users: Held, weights: Floats, session: Session, share: Share) -> Noisy:
        """Return coefficients in the units of labels, for the features as the weights see them."""
        boxed = BoxedColumns(float(self.label_range[0]), float(self.label_range[1]), column="labels")
        noisy = self._noisy(name, users, boxed, weights, session, share)
        middle = (float(self.label_range[0]) + float(self.label_range[1])) / 2
        values = self._width * noisy.values + middle * weights.sum(axis=0)
        return Noisy(values, self._width * noisy.stddev, self._width * noisy.scale)

    def _publish(self, rows: _Rows, made: LabelWeights, released: Noisy, residuals: Residuals) -> None:
        back = rows.back
        found = back @ released.values
        around = np.einsum("jk,kl,jl->j", back, self._around(rows, made, residuals.careful), back)
        normal = np.square(released.stddev) * np.square(back).sum(axis=1) + self._width**2 * around
        widths = half_widths(self.level, np.sqrt(np.maximum(normal, 0.0)), np.abs(back) * released.scale)
        intervals = np.stack([found - widths, found + widths], axis=1)
        n_features = len(found) - self.fit_intercept
        self.coef_, self.coef_intervals_ = found[:n_features], intervals[:n_features]
        self.intercept_ = float(found[-1]) if self.fit_intercept else 0.0
        self.intercept_interval_ = intervals[-1] if self.fit_intercept else np.zeros(2)
        self.noise_stddev_ = np.sqrt(np.square(back).sum(axis=1) * released.variance)
        self.noise_variance_ = residuals.likely.variance * self._width**2
        of_labels = self._width**2 * float(np.trace(self._around(rows, made, residuals.likely)))
        self.total_variance_ = of_labels + made.rows.shape[1] * released.variance
        self.gap_ = made.gap
        self.label_weights_ = made

    def _around(self, rows: _Rows, made: LabelWeights, structure: Structure) -> Floats:
        """Return the covariance of the difference between the noiseless estimate and the target of the intervals."""
        if made.for_lines:
            return np.asarray(structure.variance * (made.rows.T @ made.rows))
        if self.interval_for == "population":
            return rows.design.sampling(made.rows, structure)
        return rows.design.bias(made.rows, structure)


class _Rows:
    """Features as the weights see them, and the way back from their coefficients.

    For predictions they are rotated and scaled so that XᵀX is n times the identity: the total variance of the
    coefficients is then that of a prediction, averaged over the rows.
    """

    def __init__(self, features: Floats, indptr: Offsets, for_predictions: bool) -> None:
        self.indptr = indptr
        self.features: Floats = np.ascontiguousarray(features)
        self.back: Floats = np.eye(features.shape[1])
        if for_predictions:
            triangle = np.linalg.qr(features).R / math.sqrt(len(features))
            # the signs do not depend on the order of the users
            triangle *= np.where(np.diag(triangle) < 0, -1.0, 1.0)[:, None]
            full = len(triangle) == features.shape[1]
            if not full or not (np.abs(np.diag(triangle)) > 1e-12 * np.abs(triangle).max()).all():
                raise InputError(
                    "Expected features of full column rank, got columns that depend on each other, such as a constant "
                    "beside the intercept, a copy, or indicators of all categories; leave one out.",
                    argument="X",
                )
            self.back = np.asarray(np.linalg.inv(triangle), np.float64)
            self.features = features @ self.back

    @cached_property
    def design(self) -> Design:
        """The design against which weights are compared, with least squares over all rows."""
        return Design(self.features, self.indptr)


def _refitted(made: LabelWeights, rows: _Rows) -> LabelWeights:
    """Return weights of an earlier fit, if they are unbiased for these rows."""
    width = rows.features.shape[1]
    fits = made.rows.shape == rows.features.shape
    if not fits or np.abs(made.rows.T @ rows.features - np.eye(width)).max() > 1e-6:
        raise InputError(
            "Expected label weights for the same features and users, got weights that do not fit them.", argument=None
        )
    return made


def _limits(sizes: Offsets) -> list[int]:
    """Return limits to try: every one up to the largest size if there are few, otherwise a geometric sequence."""
    largest = int(sizes.max())
    return sorted(
        {round(limit) for limit in np.geomspace(1, largest, _MOST_LIMITS)} | set(range(1, min(largest, 20) + 1))
    )
