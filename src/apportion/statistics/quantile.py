"""Quantiles of users' values by the exponential mechanism on weighted ranks.

A point is drawn with probability proportional to a public base distribution times exp(−ε |rank − q| / (2 W)), exactly,
over the intervals between neighbouring values: Algorithm 4 of Epasto et al., "Smoothly Bounding User Contributions in
Differential Privacy" (2020). Several quantiles are found by halving: the middle one first, then the middle ones on
either side of it, and so on; one user's rows are shared out over the parts of one halving, so that they cost about as
much together as one alone. Where values lie on a public scale, or a public list, only its points are drawn, and ties
count as they are: a point has all the ranks of its rows (docs/proofs/contributions.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.users import ContributionPolicy, Smooth
from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_rows
from apportion.data.users import UserParts, in_memory
from apportion.engines import add_up_one
from apportion.errors import BudgetError, InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.contributions import Bounded, ContributionsEstimator, Sizes, capped_weights
from apportion.estimators.frames import is_elsewhere, rows_of_frame
from apportion.privacy import Base, PublicRowWeights, Purpose, RankedRows, Session
from apportion.privacy.contributions import CellWeights
from apportion.privacy.mechanisms import PointsOfList
from apportion.privacy.purposes import ReleaseName, Stage
from apportion.privacy.ranks import Candidates, RankedCells
from apportion.statistics.quantile_line import line_of, points_of
from apportion.statistics.rank_caps import GRADES, RankCap, rank_cap
from apportion.statistics.user_parts import Target
from apportion.statistics.user_statistic import UserStatistic

Floats = NDArray[np.float64]


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
            raise BudgetError("Quantiles have no form in exact arithmetic; use noise from the operating system.")
        found, cap = self._weighed(owners, sought, opened, line)
        left = 1 - opened.spent
        if isinstance(line, Candidates):
            points, scales = self._among(line, sought, self._cells(found, line), opened, left)
        else:
            rows = RankedRows(in_memory(found.users, "A quantile"), found.weights, line)
            points, scales = self._on_line(line, sought, rows, opened, left)
        self._publish(points, self._rank_errors(found, cap, scales, asked))
        self.threshold_ = found.threshold
        self.statement_ = opened.statement()
        return self

    def _cells(self, found: Bounded, line: Candidates) -> RankedCells:
        form = CellWeights(line.points, found.weights)
        return RankedCells(add_up_one(self._adder, found.users, form), form, line)

    def _weighed(
        self, users: UserParts, sought: list[float], session: Session, line: Base | Candidates
    ) -> tuple[Bounded, RankCap | None]:
        """Return the weights of all rows and, for a named target, the cap."""
        if self.weights == "target":
            grades = isinstance(line, Candidates) and len(line.points) <= GRADES
            cap = rank_cap(users, self.of, self.max_size, sought, session, self._release, grades=grades)
            return Bounded(capped_weights(cap.cap), cap.cap, users), cap
        fractions = self._sizes_fractions()
        if sum(fractions.values()) >= 1:
            raise InputError(f"Expected a sizes_share below 1, got {self.sizes_share:g}.", argument="sizes_share")
        share = session.plan(**fractions).one("sizes") if fractions else None
        halvings = math.ceil(math.log2(len(sought) + 1))
        epsilon = session.budget.epsilon * (1 - sum(fractions.values())) / halvings
        return self._bounded(users, _trade_off(sought, epsilon), session, share), None

    def _on_line(
        self, base: Base, sought: list[float], rows: RankedRows, session: Session, left: float
    ) -> tuple[dict[float, float], list[float]]:
        """Return points found by halving, and the scale of deviations at each step."""
        halvings = math.ceil(math.log2(len(sought) + 1))
        search, scales = _Search(tuple(sought)), []
        for number, share in enumerate(session.plan(halvings=[left / halvings] * halvings).several("halvings")):
            scores = rows.scores(*search.cells())
            scales.append(2 * scores.total_sensitivity / share.pure_epsilon)
            search.answer(session.choose_points(self._name(number + 1), scores, base, share))
        return search.points, scales

    def _among(
        self, candidates: Candidates, sought: list[float], rows: RankedCells, session: Session, left: float
    ) -> tuple[dict[float, float], list[float]]:
        """Points of the list, the middle quantile first, each between those found; and the scale of one choice."""
        points: dict[float, float] = {}
        scale = 0.0
        shares = session.plan(choices=[left / len(sought)] * len(sought)).several("choices")
        for number, (quantile, share) in enumerate(zip(_middle_first(sought), shares, strict=True)):
            lowest, highest = candidates.support()
            low = max((points[q] for q in points if q < quantile), default=lowest)
            high = min((points[q] for q in points if q > quantile), default=highest)
            left_over = candidates.between(low, high)
            scores = rows.scores(left_over, quantile)
            scale = max(scale, 2 * scores.total_sensitivity / share.pure_epsilon)
            points[quantile] = session.release_with(PointsOfList(left_over), self._name(number + 1), scores, share)
        return points, [scale]

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
        self, found: Bounded, cap: RankCap | None, scales: Sequence[float], line: Base | Candidates
    ) -> Floats | None:
        """How far ranks are off: by the draw, and by what the weights do.

        By the draw as in Claim 6 of the paper, halvings adding up. With the paper's weights, by drawing rows from a
        population too: Claim 5, with a normal quantile in place of Hoeffding's bound.
        """
        q = np.atleast_1d(np.asarray(self.quantiles, np.float64))
        missed = (1 - self.level) / 2
        mass = float(line.masses.min()) if isinstance(line, Candidates) else self.base_mass
        drawn = math.fsum(scales) * math.log(len(scales) / (missed * mass))
        if cap is not None:
            return np.full(len(q), min(drawn / cap.safe_total + cap.off(1 - missed), 1.0))
        if not isinstance(found.weights, PublicRowWeights):
            return None
        sampling = -NormalDist().inv_cdf(missed / 2) * np.sqrt(q * (1 - q) * found.weights.sums_of_squares[0])
        return np.minimum(sampling + drawn, 1.0)


@dataclass
class _Part:
    """A part of the line between two points found, and the quantiles still sought in it."""

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
        """Where the line is cut, and which quantile of each part's own weight to look for."""
        return self._cuts, [
            (_middle(part.quantiles) - part.low) / (part.high - part.low) if part.quantiles else None
            for part in self._parts
        ]

    def answer(self, points: Sequence[float]) -> None:
        """Cut every part that looked for a quantile at the point found for it."""
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


def _middle_first(quantiles: Sequence[float]) -> list[float]:
    """Ascending quantiles in the order of halving."""
    if not quantiles:
        return []
    at = len(quantiles) // 2
    return [quantiles[at], *_middle_first(quantiles[:at]), *_middle_first(quantiles[at + 1 :])]
