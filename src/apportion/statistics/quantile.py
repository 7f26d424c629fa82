"""Quantiles of users' values by the exponential mechanism on weighted ranks.

A point is drawn with probability proportional to a public base distribution times exp(−ε |rank − q| / (2 W)), exactly,
over the intervals between neighbouring values: Algorithm 4 of Epasto et al., "Smoothly Bounding User Contributions in
Differential Privacy" (2020). Several quantiles are found by halving: the middle one first, then the middle ones on
either side of it, and so on; one user's rows are shared out over the parts of one halving, so that they cost about as
much together as one alone. For a named target, weights and ranks are chosen to have the least predicted error
(`rank_weights`). Where values lie on a public scale, or a public list, only its points are drawn, and ties
count as they are: a point has all the ranks of its rows (docs/proofs/contributions.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, field
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.users import ContributionPolicy, Smooth
from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_rows
from apportion.data.users import UserParts
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.contributions import Bounded, ContributionsEstimator, Sizes
from apportion.estimators.frames import is_elsewhere, rows_of_frame
from apportion.privacy import Base, PublicRowWeights, Purpose, Session
from apportion.privacy.purposes import ReleaseName, Stage
from apportion.privacy.ranks import Candidates
from apportion.privacy.statement import STATISTICS_DEFAULTS
from apportion.statistics.quantile_line import line_of, points_of
from apportion.statistics.quantile_search import PointSearch, halvings
from apportion.statistics.rank_caps import RankCap, rank_cap
from apportion.statistics.rank_weights import RankWeighing, RankWeights, is_central
from apportion.statistics.user_parts import Target
from apportion.statistics.user_statistic import UserStatistic

Floats = NDArray[np.float64]

NOT_EXACT = "Quantiles over all rows have no form in exact arithmetic; those by group have one."


@with_constructor
class UserQuantile(ContributionsEstimator, UserStatistic):
    """One or several quantiles of values under user-level differential privacy, purely ε-DP.

    Args:
        quantiles: one number strictly between 0 and 1, or several.
        value_range: (low, high), public; all its points are equally likely at first. Values outside count as its ends.
        step: public; values lie at low, low + step, ... up to high, and so do the answers.
        candidates: a public list of possible answers, instead of a range.
        base: a public distribution over the line instead: an object with `cdf`, `ppf` and `support`, such as a frozen
            distribution of SciPy. A discrete one of SciPy's with a finite support is a list of candidates.
        of: "rows" for quantiles of all rows; "users" gives every user the same weight, shared by its rows.
        weights: "target" for that target; "paper" takes the weights of Epasto et al. (2020), which assume that values
            do not depend on how many rows a user has.
        sizes: "private" protects how many rows a user has; "public" does not, and needs the paper's weights.
        max_size: public; a user with more rows counts as if it had this many.
        level: the probability with which ranks are off by at most `rank_error_`.
        base_mass: assumed and public: how much of the base lies on points of about the right rank. `rank_error_` needs
            it if there is no list of candidates.
        bounding: with the paper's weights, how each user's contribution is bounded: Smooth(), SampleLimit() or
            Unbounded().
        sizes_share: with the paper's weights, the share of the budget for a histogram of private sizes.
        noise: `"secure"` (default, from the operating system), or a source. There is no exact form of quantiles.

    Attributes:
        quantiles_: the answers, in the order asked for: a number, or one for each quantile.
        rank_error_: how far an answer's rank is from the one asked for, with probability `level`. The rank is among
            these rows; with the paper's weights it is in the population, and None if sizes are private.
        threshold_: h; rows of a user beyond this many add no weight.
        statement_: the privacy statement.

    Privacy: adding or removing one user; with the paper's weights and public sizes, replacing the values of one user.
    The range, the step, the candidates or the base are public.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, grades = rng.integers(0, 2000, 10_000), rng.integers(1, 7, 10_000)
        >>> median = UserQuantile(0.7, epsilon=1.0, value_range=(1, 6), step=1).fit(grades, users=users)
        >>> median.quantiles_
        5.0
    """

    quantiles: Any = 0.5
    epsilon: float = 1.0
    _: KW_ONLY
    value_range: tuple[float, float] | None = None
    step: float | None = None
    candidates: ArrayLike | None = None
    base: Base | None = None
    of: Target = "rows"
    weights: str = "target"
    sizes: Sizes = "private"
    max_size: int = 1 << 10
    level: float = 0.95
    base_mass: float = 0.01
    bounding: ContributionPolicy = Smooth()
    sizes_share: float = 0.1

    quantiles_: Any = field(init=False)
    rank_error_: Any = field(init=False)
    threshold_: float = field(init=False)

    delta = 0.0

    def _fit(self, X: Any, users: ArrayLike, session: Session | None) -> Self:  # noqa: N803
        if is_elsewhere(X):
            with rows_of_frame(self.engine, X, users) as (elsewhere, width):
                return self._found(elsewhere, width, session, together=False)
        values = finite_rows(X, "X")
        grouping = group_rows(users, len(values), single_user=self._sizes_are_private)
        return self._found(grouping.users(values=values[:, 0]), values.shape[1], session, together=True)

    def _found(self, owners: UserParts, width: int, session: Session | None, *, together: bool) -> Self:
        """Make every release. A line needs all rows together; elsewhere it is a list of points of equal mass."""
        sought = self._sought()
        self._check_target(("bounding", "sizes_share"))
        asked, about = line_of(self.value_range, self.step, self.candidates, self.base)
        line, grid = (asked, []) if together or isinstance(asked, Candidates) else points_of(asked)
        if width != 1:
            raise InputError(f"Expected one column of values, got {width}.", argument="X")
        opened = self._session(session, [about, *grid, *self._about_largest()])
        if opened.exact:
            raise InputError(NOT_EXACT, argument="noise")
        search = PointSearch(owners, line, opened, self._adder)
        found, ranks, chosen = self._weighed(search, sought)
        search = PointSearch(found.users, line, opened, self._adder)
        points, scales = search.points(ranks, found.weights, 1 - opened.spent, self._name)
        self._publish(dict(zip(sought, points, strict=True)), self._rank_errors(found, chosen, scales, asked))
        self.threshold_ = found.threshold
        self.statement_ = opened.statement()
        return self

    def _weighed(
        self, search: PointSearch, sought: list[float]
    ) -> tuple[Bounded, list[float], RankWeights | RankCap | None]:
        """Return the weights of all rows, what is sought among them and, for a named target, how they were chosen."""
        users, session = search.users, search.session
        if self.weights == "target":
            asked = (search, self.of, self.max_size, sought, self._release)
            central = is_central(sought, self.of)
            chosen: RankWeights | RankCap = RankWeighing(*asked).found() if central else rank_cap(*asked)
            return Bounded(chosen.weighting, chosen.most, users), chosen.ranks, chosen
        fractions = self._sizes_fractions()
        if sum(fractions.values()) >= 1:
            raise InputError(f"Expected a sizes_share below 1, got {self.sizes_share:g}.", argument="sizes_share")
        share = session.plan(**fractions).one("sizes") if fractions else None
        epsilon = session.budget.epsilon * (1 - sum(fractions.values())) / halvings(len(sought))
        return self._bounded(users, _trade_off(sought, epsilon), session, share), sought, None

    def _words_on_defaults(self) -> str:
        return STATISTICS_DEFAULTS if self.weights == "target" else super()._words_on_defaults()

    def _name(self, number: int) -> ReleaseName:
        of = f"quantiles of {self.of}" if self.weights == "target" else "quantiles by the paper's weights"
        return ReleaseName(Purpose.QUANTILES, Stage(step=number), of)

    def _publish(self, points: dict[float, float], errors: Floats | None) -> None:
        asked = np.atleast_1d(np.asarray(self.quantiles, np.float64)).tolist()
        found = np.array([points[q] for q in asked])
        single = np.ndim(self.quantiles) == 0
        self.quantiles_ = float(found[0]) if single else found
        self.rank_error_ = errors if errors is None or not single else float(errors[0])

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

    def _rank_errors(
        self, found: Bounded, chosen: RankWeights | RankCap | None, scales: Sequence[float], line: Base | Candidates
    ) -> Floats | None:
        """How far ranks are off: by the draw, and by what the weights do.

        By the draw as in Claim 6 of the paper, halvings adding up. With the paper's weights, by drawing rows from a
        population too: Claim 5, with a normal quantile in place of Hoeffding's bound.
        """
        q = np.atleast_1d(np.asarray(self.quantiles, np.float64))
        missed = (1 - self.level) / 2
        mass = float(line.masses.min()) if isinstance(line, Candidates) else self.base_mass
        drawn = math.fsum(scales) * math.log(len(scales) / (missed * mass))
        if chosen is not None:
            by_rank = dict(zip(self._sought(), chosen.off(drawn, 1 - missed), strict=True))
            return np.array([by_rank[each] for each in q])
        if not isinstance(found.weights, PublicRowWeights):
            return None
        sampling = -NormalDist().inv_cdf(missed / 2) * np.sqrt(q * (1 - q) * found.weights.sums_of_squares[0])
        return np.minimum(sampling + drawn, 1.0)


def _trade_off(sought: Sequence[float], epsilon: float) -> float:
    """A = q (1 − q) ε² / 8: a row counts or not, of variance q (1 − q); ranks are off as by Laplace noise of 2 W/ε."""
    return float(np.mean([q * (1 - q) for q in sought])) * epsilon**2 / 8
