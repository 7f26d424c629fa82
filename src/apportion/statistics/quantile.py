"""Quantiles of users' values by the exponential mechanism on weighted ranks.

Algorithm 4 of Epasto et al., "Smoothly Bounding User Contributions in Differential Privacy" (2020): a point is drawn
with probability proportional to a public base distribution times exp(−ε |rank − q| / (2 W)), exactly, over the
intervals between neighbouring values. Several quantiles are found by halving: the middle one first, then the middle
ones on either side of it, and so on. One user's rows are divided over the parts of a halving, so several quantiles
together cost about as much as one (docs/proofs/contributions.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.users import ContributionPolicy, Smooth
from apportion.data.grouping import group_rows, one_of
from apportion.data.numbers import finite_rows
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.estimators.contributions import ContributionsEstimator, Sizes
from apportion.privacy import Base, NoiseSource, PublicRowWeights, Purpose, RankedRows, Session, UniformBase
from apportion.privacy.contributions import RowWeighting
from apportion.privacy.statement import Statement

Floats = NDArray[np.float64]


class UserQuantile(ContributionsEstimator):
    """One or several quantiles of values under user-level differential privacy, purely ε-DP.

    Args:
        quantiles: one number strictly between 0 and 1, or several.
        epsilon: ε of the whole fit.
        value_range: (low, high), public, with a uniform prior over it. Values outside are clipped.
        base: a public distribution over the line instead: an object with `cdf`, `ppf` and `support`, such as a frozen
            SciPy distribution.
        bounding: how each user's contribution is bounded: Smooth(), SampleLimit() or Unbounded().
        sizes: "public" if everybody may know how many rows each user has; "private" to protect that too.
        sizes_share: share of the budget for a histogram of sizes, if they are private.
        max_size: a public bound on the threshold, if sizes are private.
        level: the probability that ranks are off by at most `rank_error_`.
        base_mass: public assumption on how much of the base lies on points of about the right rank; for `rank_error_`.
        public: further sentences about public assumptions, for the statement.
        window: the time span of the data, for the statement.
        tuning: how settings were chosen, for the statement, if any were given.
        noise: the noise source; None for the operating system's.

    Attributes:
        quantiles_: the estimates, in the requested order: a number, or one for each.
        rank_error_: how far the rank of an estimate is from the requested one, in the population from which rows were
            drawn, with probability `level`; None if sizes are private, because it would reveal them.
        threshold_: h, the number of rows beyond which a user's rows add no weight.
        statement_: the privacy statement.

    Privacy: with public sizes, replacing the values of one user; with private ones, adding or removing one user. The
    range or base is public.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, hours = rng.integers(0, 2000, 10_000), rng.uniform(0, 8, 10_000)
        >>> median = UserQuantile(0.5, epsilon=1.0, value_range=(0, 24)).fit(hours, users=users)
        >>> round(float(median.quantiles_))
        4
    """

    quantiles_: Any
    rank_error_: Any
    threshold_: float
    statement_: Statement

    delta = 0.0

    def __init__(
        self,
        quantiles: Any = 0.5,
        epsilon: float = 1.0,
        *,
        value_range: tuple[float, float] | None = None,
        base: Base | None = None,
        bounding: ContributionPolicy = Smooth(),  # noqa: B008 - frozen
        sizes: Sizes = "public",
        sizes_share: float = 0.1,
        max_size: int = 1 << 20,
        level: float = 0.95,
        base_mass: float = 0.01,
        public: Sequence[str] = (),
        window: str = "not declared",
        tuning: str | None = None,
        noise: NoiseSource | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.quantiles = quantiles
        self.epsilon = epsilon
        self.value_range = value_range
        self.base = base
        self.bounding = bounding
        self.sizes = sizes
        self.sizes_share = sizes_share
        self.max_size = max_size
        self.level = level
        self.base_mass = base_mass
        self.public = public
        self.window = window
        self.tuning = tuning
        self.noise = noise
        self.engine = engine

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: object = None,
        *,
        users: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        session: Session | None = None,
    ) -> Self:
        """Spend the budget on the data. Afterwards everything that ends in _ may be released.

        Args:
            X: values, one per row.
            y: ignored, for compatibility.
            users: the user of each row, integers or text.
            groups: the same as `users`, for scikit-learn tools that use this name; give one of the two.
            session: a session with its own budget, noise and window, which replace those of the estimator.
        """
        sought = self._sought()
        base, about = self._base()
        values = finite_rows(X, "X")
        if values.shape[1] != 1:
            raise InputError(f"Expected one column of values, got {values.shape[1]}.", argument="X")
        grouping = group_rows(one_of(users, groups), len(values), single_user=self._sizes_are_private)
        opened = self._session(session, [about])
        halvings = math.ceil(math.log2(len(sought) + 1))
        first = self._sizes_fractions()
        rest = 1 - sum(first.values())
        if rest <= 0:
            raise InputError(f"Expected a sizes_share below 1, got {self.sizes_share:g}.", argument="sizes_share")
        plan = opened.plan(**first, halvings=[rest / halvings] * halvings)
        shares = plan.several("halvings")
        trade_off = _trade_off(sought, shares[0].pure_epsilon)
        owners = grouping.users(values=values[:, 0])
        found = self._bounded(owners, trade_off, opened, plan.one("sizes") if first else None)
        rows = RankedRows(found.users, found.weights, base)
        search, scales = _Search(tuple(sought)), []
        for number, share in enumerate(shares):
            scores = rows.scores(*search.cells())
            scales.append(2 * scores.total_sensitivity / share.pure_epsilon)
            search.answer(opened.choose_points(Purpose.QUANTILES.at(step=number + 1), scores, base, share))
        points = [search.points[q] for q in np.atleast_1d(np.asarray(self.quantiles, np.float64)).tolist()]
        errors = self._rank_errors(found.weights, scales)
        single = np.ndim(self.quantiles) == 0
        self.quantiles_ = points[0] if single else np.array(points)
        self.rank_error_ = errors if errors is None or not single else float(errors[0])
        self.threshold_ = found.threshold
        self.statement_ = opened.statement()
        return self

    def _sought(self) -> list[float]:
        asked = np.atleast_1d(np.asarray(self.quantiles, np.float64))
        if asked.ndim != 1 or not len(asked) or not ((asked > 0) & (asked < 1)).all():
            raise InputError(
                f"Expected quantiles strictly between 0 and 1, got {self.quantiles}.", argument="quantiles"
            )
        if not (0 < self.level < 1 and 0 < self.base_mass < 1):
            asked_for = f"{self.level:g} and {self.base_mass:g}"
            raise InputError(
                f"Expected a level and a base_mass strictly between 0 and 1, got {asked_for}.", argument=None
            )
        return sorted(set(asked.tolist()))

    def _base(self) -> tuple[Base, str]:
        """Return the base, and a sentence about it."""
        if (self.base is None) == (self.value_range is None):
            raise InputError("Expected either a value_range or a base, but not both.", argument=None)
        if self.base is not None:
            return self.base, f"the base distribution, {_words(self.base)}"
        assert self.value_range is not None
        low, high = self.value_range
        return UniformBase(float(low), float(high)), f"the range of values, {low:.12g} to {high:.12g}"

    def _rank_errors(self, weights: RowWeighting, scales: Sequence[float]) -> Floats | None:
        """Return the errors by Claims 5 and 6 of the paper, with a normal quantile instead of Hoeffding's bound."""
        if not isinstance(weights, PublicRowWeights):
            return None
        q = np.atleast_1d(np.asarray(self.quantiles, np.float64))
        missed = (1 - self.level) / 2
        sampling = -NormalDist().inv_cdf(missed / 2) * np.sqrt(q * (1 - q) * weights.sums_of_squares[0])
        noise = math.fsum(scales) * math.log(len(scales) / (missed * self.base_mass))
        return np.minimum(sampling + noise, 1.0)


@dataclass
class _Part:
    """A part of the line between two points, and the quantiles still sought in it."""

    quantiles: tuple[float, ...]
    low: float
    high: float


class _Search:
    """Finds quantiles by halving: in every part the middle one first."""

    def __init__(self, sought: tuple[float, ...]) -> None:
        self.points: dict[float, float] = {}
        self._parts = [_Part(sought, 0.0, 1.0)]
        self._cuts: list[float] = []

    def cells(self) -> tuple[list[float], list[float | None]]:
        """Return where the line is cut, and which quantile of each part's own weight to look for."""
        return self._cuts, [
            (_middle(part.quantiles) - part.low) / (part.high - part.low) if part.quantiles else None
            for part in self._parts
        ]

    def answer(self, points: Sequence[float]) -> None:
        """Cut every part that looked for a quantile at the chosen point."""
        left = iter(points)
        parts: list[_Part] = []
        cuts: list[float] = []
        for number, part in enumerate(self._parts):
            cuts += self._cuts[number - 1 : number] if number else []
            if not part.quantiles:
                parts.append(part)
                continue
            middle, point = _middle(part.quantiles), next(left)
            self.points[middle] = point
            at = part.quantiles.index(middle)
            parts += [_Part(part.quantiles[:at], part.low, middle), _Part(part.quantiles[at + 1 :], middle, part.high)]
            cuts.append(point)
        self._parts, self._cuts = parts, cuts


def _middle(quantiles: tuple[float, ...]) -> float:
    return quantiles[len(quantiles) // 2]


def _trade_off(sought: Sequence[float], epsilon: float) -> float:
    """A = q (1 − q) ε² / 8: a row counts or not, of variance q (1 − q); ranks are off as by Laplace noise of 2 W/ε."""
    return float(np.mean([q * (1 - q) for q in sought])) * epsilon**2 / 8


def _words(base: Base) -> str:
    named = getattr(getattr(base, "dist", None), "name", None)  # SciPy's frozen distributions
    if named is None:
        return type(base).__name__
    settings = [*map(repr, getattr(base, "args", ())), *(f"{k}={v!r}" for k, v in getattr(base, "kwds", {}).items())]
    return f"{named}({', '.join(settings)})"
