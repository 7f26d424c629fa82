"""Covariance matrices and principal components of users' rows, under user-level differential privacy.

1. *Centre.* About where rows lie.
2. *Norms.* How large users' second moments around it are, by half octave: from it comes the cap R.
3. *Moments.* The number of users, the mean of their rows, and the mean of their second moments, in one release.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_rows
from apportion.data.users import UserParts
from apportion.engines import Engine, add_up_one
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.counts import LEAST_USERS
from apportion.estimators.frames import is_elsewhere, rows_of_frame
from apportion.postprocessing.class_counts import class_counts
from apportion.privacy import ADD_REMOVE, Budget, Session, Share
from apportion.privacy.contributions import ClippedParts
from apportion.privacy.purposes import Name, Purpose
from apportion.privacy.statement import STATISTICS_DEFAULTS
from apportion.statistics.second_moments import ONE, Centres, MomentClasses, Moments, ScaledRows
from apportion.statistics.user_statistic import UserStatistic
from apportion.statistics.value_box import ValueBox

Floats = NDArray[np.float64]

_CENTRE, _NORMS = 0.08, 0.08  # shares of the budget
_CLASSES = 28  # half octaves of norms, up to the largest
_UNSURE = 0.6  # of what the cap takes away, as a share of it
_MOST_COLUMNS = 200


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found, on the scale from -1 to 1: see `UserCovariance`."""

    mean: Floats
    covariance: Floats
    noise: Floats
    doubt: Floats


@dataclass(frozen=True, eq=False)
class _CovarianceFit:
    """One fit, step by step, each paid for."""

    users: UserParts
    session: Session
    engine: Engine
    rows: ScaledRows

    def found(self) -> _Found:
        shares = self.session.plan(centre=_CENTRE, norms=_NORMS, moments=1 - _CENTRE - _NORMS)
        n_users, centre = self._centre(shares.one("centre"))
        share = shares.one("moments")
        cap, lost = self._cap(centre, n_users, shares.one("norms"), share)
        form = Moments(self.rows, centre, cap)
        released, stddev = self._released(Purpose.COVARIANCE, form.contribution, share)
        return _from_moments(released, stddev, form, lost)

    def _centre(self, share: Share) -> tuple[float, Floats]:
        released, _ = self._released(Purpose.OVERVIEW, Centres(self.rows).contribution, share)
        n_users = max(float(released[0]), LEAST_USERS)
        return n_users, np.clip(released[1:] * math.sqrt(self.rows.columns) / n_users, -1.0, 1.0)

    def _cap(self, centre: Floats, n_users: float, share: Share, later: Share) -> tuple[float, float]:
        """R with the least sum of squared errors, and the share of second moments that it takes away."""
        columns = self.rows.columns
        edges = 4 * columns * 2.0 ** ((np.arange(_CLASSES) - _CLASSES) / 2)
        noisy, stddev = self._released(Purpose.NORMS, MomentClasses(self.rows, centre, edges).contribution, share)
        counts, norms = class_counts(noisy, stddev, "distances"), edges * 2**0.25
        counts = np.where(counts >= 0.5, counts, 0.0)
        total = max(float((counts * norms).sum()), 1e-12)
        lost = np.array([float((counts * np.maximum(norms - cap, 0.0)).sum()) for cap in edges * 2**0.5]) / total
        noise = math.hypot(ONE, math.sqrt(2)) / later.mu * math.sqrt(columns * (columns + 1) / 2) * edges * 2**0.5
        best = int(np.argmin(np.square(noise / n_users) + np.square(_UNSURE * lost * total / n_users)))
        return float(edges[best] * 2**0.5), min(float(lost[best]), 0.9)

    def _released(self, name: Name, form: ClippedParts, share: Share) -> tuple[Floats, float]:
        total = add_up_one(self.engine, self.users, form)
        return np.asarray(self.session.release(name, total, share), np.float64), total.l2_sensitivity / share.mu


def _from_moments(released: Floats, stddev: float, form: Moments, lost: float) -> _Found:
    """Covariance = mean second moment less the outer product of the mean, both around the centre."""
    columns = form.rows.columns
    n_users = max(float(released[0]) / ONE, LEAST_USERS)
    apart = released[1 : 1 + columns] * form.reach / n_users
    second = _unpacked(released[1 + columns :], columns) * form.cap / n_users / (1 - lost)
    covariance = _positive(second - np.outer(apart, apart))
    unit = stddev / n_users
    noise = _unpacked(np.full(columns * (columns + 1) // 2, unit * form.cap), columns) / (1 - lost)
    of_mean = unit * form.reach * np.hypot(*np.meshgrid(apart, apart))
    spreads = np.sqrt(np.diag(covariance))
    further = (_UNSURE * lost + unit / ONE) * np.outer(spreads, spreads)
    return _Found(form.centre + apart, covariance, noise, np.sqrt(noise**2 + of_mean**2 + further**2))


def _unpacked(packed: Floats, columns: int) -> Floats:
    first, second = np.tril_indices(columns)
    full = np.zeros((columns, columns))
    full[first, second] = full[second, first] = packed / np.where(first == second, 1.0, math.sqrt(2))
    return full


def _positive(matrix: Floats) -> Floats:
    """The nearest matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


@with_constructor
class CovarianceEstimator(UserStatistic):
    """An estimator that releases a covariance matrix of users' rows.

    Args:
        delta: δ, above 0: noise is Gaussian.
        value_range: (low, high), public, numbers or one for each column; values beyond are clipped.
        level: coverage of the intervals of the covariance matrix.
    """

    _: KW_ONLY
    value_range: tuple[Any, Any]
    level: float = 0.95

    covariance_: Any = field(init=False)
    mean_: Any = field(init=False)
    noise_stddev_: Any = field(init=False)
    interval_: Any = field(init=False)

    def _check(self) -> None:
        if not 0 < self.level < 1:
            raise InputError(f"Expected a level between 0 and 1, got {self.level:g}.", argument="level")

    def _fit(self, X: Any, users: ArrayLike, session: Session | None) -> Self:  # noqa: N803
        if is_elsewhere(X):
            with rows_of_frame(self.engine, X, users) as (on_cluster, columns):
                return self._found(on_cluster, columns, session)
        values = finite_rows(X, "X")
        owners = group_rows(users, len(values), single_user=True).users(values=values)
        return self._found(owners, values.shape[1], session)

    def _found(self, owners: UserParts, columns: int, session: Session | None) -> Self:
        if columns > _MOST_COLUMNS:
            raise InputError(f"Expected at most {_MOST_COLUMNS} columns, got {columns}.", argument="X")
        box = ValueBox.of(self.value_range, columns)
        opened = self._open(session, self._budget(), ADD_REMOVE, [f"the range of values, {box.words}"])
        if opened.budget.pure:
            raise InputError("A covariance matrix needs a session with a delta for Gaussian noise.", argument="session")
        self._publish(_CovarianceFit(owners, opened, self._adder, ScaledRows(box.low, box.high)).found(), box)
        self.statement_ = opened.statement()
        return self

    def _budget(self) -> Budget:
        if not self.delta > 0:
            problem = f"Expected a delta above 0, because Gaussian noise needs one, got {self.delta}."
            raise InputError(problem, argument="delta")
        return Budget(self.epsilon, self.delta)

    def _words_on_defaults(self) -> str:
        return STATISTICS_DEFAULTS

    def _publish(self, found: _Found, box: ValueBox) -> None:
        scale = np.outer(box.width, box.width) / 4
        reach = NormalDist().inv_cdf((1 + self.level) / 2) * found.doubt
        self.mean_ = box.restored(found.mean / 2)
        self.covariance_ = scale * found.covariance
        self.noise_stddev_ = scale * found.noise
        self.interval_ = np.stack([scale * (found.covariance - reach), scale * (found.covariance + reach)], axis=-1)


@with_constructor
class UserCovariance(CovarianceEstimator):
    """The covariance matrix of rows that belong to users, every user counting one, under user-level privacy.

    It is the covariance of one row, drawn at random from the rows of a user drawn at random.

    Args:
        level: coverage of the intervals.

    Attributes:
        covariance_: the matrix; no eigenvalue is negative.
        mean_: the mean over users of each user's own mean, one for each column.
        noise_stddev_: standard deviation of what privacy added to each entry.
        interval_: (low, high) of each entry, for these users.
        statement_: the privacy statement.

    Privacy: adding or removing one user with all rows. How many rows it has is private.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, shared = rng.integers(0, 4000, 20_000), rng.normal(0, 1, (20_000, 1))
        >>> rows = shared + 0.5 * rng.normal(0, 1, (20_000, 3))
        >>> found = UserCovariance(epsilon=2.0, value_range=(-5, 5)).fit(rows, users=users)
        >>> found.covariance_.shape, bool(abs(found.covariance_[0, 1] - 1) < 0.3)
        ((3, 3), True)
    """

    epsilon: float = 1.0
    delta: float = 1e-6
