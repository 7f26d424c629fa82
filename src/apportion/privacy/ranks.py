"""Weighted ranks of private values: the scores by which a quantile is chosen among points of the line.

Released points cut the line into cells. Within a cell, the score of a point y for the quantile q is the distance
between the weight at or below y and q times the weight of the cell. Every row is in one cell, so one user's weight is
divided over the cells, and their scores may be used together: a user moves them by its total weight, not by that times
the number of cells (docs/proofs/contributions.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import Hidden
from apportion.privacy.contributions import CellWeights, PublicRowWeights, RowWeighting, UserRun
from apportion.privacy.neighbours import Neighbours

Floats = NDArray[np.float64]


class Base(Protocol):
    """A public, continuous distribution that says where a quantile may lie, such as a frozen SciPy distribution.

    It is trusted: it must not depend on private data, and its three methods must be consistent.
    """

    def cdf(self, points: Floats, /) -> Any:
        """Return the probability at or below each point."""

    def ppf(self, probabilities: Floats, /) -> Any:
        """Return the point with this probability at or below it."""

    def support(self) -> tuple[float, float]:
        """Return the ends of its support, possibly infinite."""


@dataclass(frozen=True)
class UniformBase:
    """Every point of a public range is equally likely."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(f"Expected a finite range with low < high, got ({self.low}, {self.high}).", argument=None)

    def cdf(self, points: Floats, /) -> Floats:
        """Return the fraction of the range at or below each point."""
        return np.clip((points - self.low) / (self.high - self.low), 0.0, 1.0)

    def ppf(self, probabilities: Floats, /) -> Floats:
        """Return the point with this fraction of the range below it."""
        return self.low + probabilities * (self.high - self.low)

    def support(self) -> tuple[float, float]:
        """Return the range."""
        return self.low, self.high


@dataclass(frozen=True, eq=False)
class Candidates:
    """A public list of points that a quantile may be: the steps of a scale, or the support of a discrete distribution.

    Attributes:
        points: the points, in ascending order.
        masses: the prior probability of each point, above 0.
    """

    points: Floats
    masses: Floats

    def __post_init__(self) -> None:
        points = self.points
        if points.ndim != 1 or not len(points) or not np.isfinite(points).all() or not (np.diff(points) > 0).all():
            raise InputError(
                f"Expected at least one candidate, in ascending order, each once, got {points}.", argument="candidates"
            )
        if self.masses.shape != points.shape or not (self.masses > 0).all():
            raise InputError("Expected a mass above 0 for each candidate; some is not.", argument="base")

    @classmethod
    def listed(cls, points: ArrayLike) -> Candidates:
        """Return candidates that are all equally likely."""
        ascending = np.unique(np.asarray(points, np.float64))
        return cls(ascending, np.full(len(ascending), 1 / max(len(ascending), 1)))

    def support(self) -> tuple[float, float]:
        """The first and the last point."""
        return float(self.points[0]), float(self.points[-1])

    def between(self, low: float, high: float) -> Candidates:
        """Return the candidates from one point to another, both included; the nearest one if there is none."""
        inside = (self.points >= low) & (self.points <= high)
        return Candidates(self.points[inside], self.masses[inside])


class Cell(NamedTuple):
    """The scores of one cell: between edges[k] and edges[k + 1], a point's deviation is deviations[k].

    If only candidates are scored, the edges are the candidates, with one deviation each.
    """

    edges: Floats
    deviations: Floats


class RankScores(Hidden):
    """Hidden scores of points on the line: one step function for each cell in which a quantile is sought."""

    __slots__ = ("_cells", "_derivation", "_neighbours", "_sensitivity")

    def __init__(self, key: object, cells: Sequence[Cell], moved: float, derivation: str, relation: Neighbours) -> None:
        if key is not _KEY:
            raise TypeError("Build RankScores from RankedRows.")
        self._cells = tuple(cells)
        self._sensitivity = float(moved)
        self._derivation = derivation
        self._neighbours = relation

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of points to be chosen."""
        return (len(self._cells),)

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation of the sensitivity."""
        return self._neighbours

    @property
    def derivation(self) -> str:
        """How the sensitivity follows, in words."""
        return self._derivation

    @property
    def total_sensitivity(self) -> float:
        """How far one user moves the scores: the largest change in each cell, summed over cells."""
        return self._sensitivity

    def _reveal(self, key: object) -> tuple[Cell, ...]:
        if key is not _KEY:
            self._refuse("read")
        return self._cells

    def __repr__(self) -> str:
        return f"RankScores({len(self._cells)} cells, sensitivity {self.total_sensitivity:g}, values hidden)"


class RankedRows(Hidden):
    """Private values in ascending order with their weights. They are sorted once and can be scored many times."""

    __slots__ = ("_cumulative", "_support", "_values", "_weights")

    def __init__(self, users: UserRun, weights: RowWeighting, base: Base, column_name: str = "values") -> None:
        """Sort the values. Values beyond the base's support count as its end."""
        column = np.asarray(users.column(column_name), np.float64)
        if column.ndim != 1 or not np.isfinite(column).all():
            raise InputError("Expected one finite value per row; at least one is not.", argument=None)
        low, high = base.support()
        self._support = (float(low), float(high))
        column = np.clip(column, low, high)
        order = np.argsort(column, kind="stable")  # equal values keep the same order on every processor
        self._values: Floats = column[order]
        self._cumulative: Floats = np.concatenate([[0.0], np.cumsum(weights.of(users)[order])])
        self._weights = weights

    def scores(self, cuts: Sequence[float], quantiles: Sequence[float | None]) -> RankScores:
        """Return the scores for each cell between released cut points. A cell may have one quantile, or none."""
        sought = [q for q in quantiles if q is not None]
        if len(quantiles) != len(cuts) + 1 or any(a > b for a, b in itertools.pairwise(cuts)):
            raise InputError(
                f"Expected ascending cuts and, for each cell, a quantile or None; got {cuts}, {quantiles}.",
                argument=None,
            )
        if not sought or not all(0 < q < 1 for q in sought):
            raise InputError(f"Expected quantiles strictly between 0 and 1, got {quantiles}.", argument="quantiles")
        places = [0, *np.searchsorted(self._values, np.asarray(cuts, np.float64), side="left"), len(self._values)]
        ends = [self._support[0], *cuts, self._support[1]]
        cells = [
            self._cell(slice(int(places[k]), int(places[k + 1])), (ends[k], ends[k + 1]), quantile)
            for k, quantile in enumerate(quantiles)
            if quantile is not None
        ]
        factor = max(max(q, 1 - q) for q in sought)
        moved = self._weights.moved(factor)
        if isinstance(self._weights, PublicRowWeights) and not cuts:
            moved = min(moved, self._weights.largest)  # the cell's weight is public, so only ranks move
        text = f"{self._weights.description}, in units of weighted rank"
        return RankScores(_KEY, cells, moved, text, self._weights.neighbours)

    def _cell(self, rows: slice, ends: tuple[float, float], quantile: float) -> Cell:
        edges = np.concatenate([[ends[0]], self._values[rows], [ends[1]]])
        below = self._cumulative[rows.start : rows.stop + 1] - self._cumulative[rows.start]
        return Cell(edges, np.abs(below - quantile * below[-1]))

    def __repr__(self) -> str:
        return "RankedRows(values hidden)"


class RankedCells(Hidden):
    """Hidden weights of rows at the points of a public list and between them, wherever the weights were added up."""

    __slots__ = ("_candidates", "_cumulative", "_weights")

    def __init__(self, total: BoundedSum, form: CellWeights, candidates: Candidates) -> None:
        """Add up the cells of the list. `form` is the contribution from which the total was formed."""
        if not np.array_equal(form.points, candidates.points) or total.shape != (2 * len(form.points) + 1,):
            raise InputError("Expected the weights of the cells of this list of candidates.", argument="candidates")
        steps = np.concatenate([[0], np.cumsum(total._reveal_steps(_KEY))])
        self._cumulative: Floats = steps * float(total.step or 1.0)
        self._candidates = candidates
        self._weights = form.weights

    def scores(self, candidates: Candidates, quantile: float) -> RankScores:
        """Return how far each candidate is from being the quantile, with ties taken into account.

        Rows below the candidate c, and rows at or below it, have total weights that bound the ranks of c. Its deviation
        is the distance from q times the whole weight to this range of ranks: 0 for the sample's quantile.
        """
        if not 0 < quantile < 1:
            raise InputError(f"Expected a quantile strictly between 0 and 1, got {quantile}.", argument="quantiles")
        sought = quantile * self._cumulative[-1]
        place = np.searchsorted(self._candidates.points, candidates.points)
        below, up_to = self._cumulative[2 * place + 1], self._cumulative[2 * place + 2]
        deviations = np.maximum(np.maximum(below - sought, sought - up_to), 0.0)
        moved = self._weights.moved(max(quantile, 1 - quantile))
        text = f"{self._weights.description}, in units of weighted rank"
        return RankScores(_KEY, [Cell(candidates.points, deviations)], moved, text, self._weights.neighbours)

    def __repr__(self) -> str:
        return "RankedCells(values hidden)"
