"""The search for points with given ranks among weighted rows: by halving on a line, one by one on a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from apportion.data.users import UserParts, in_memory
from apportion.engines import add_up_one
from apportion.privacy import Base, RankedRows, Session
from apportion.privacy.contributions import CellWeights, RowWeighting
from apportion.privacy.mechanisms import PointsOfList
from apportion.privacy.purposes import Name
from apportion.privacy.ranks import Candidates, RankedCells


@dataclass(frozen=True, eq=False)
class PointSearch:
    """Where points are sought, among whose rows, and who pays.

    Attributes:
        users: users with their rows.
        line: a base distribution on the line, or a list of candidates.
        session: pays for every choice.
        adder: the engine.
    """

    users: UserParts
    line: Base | Candidates
    session: Session
    adder: Any

    def points(
        self, ranks: Sequence[float], weights: RowWeighting, part: float, name: Callable[[int], Name]
    ) -> tuple[list[float], list[float]]:
        """Return a point for each rank, and the scale of deviations in each step.

        Args:
            ranks: ascending, each once.
            weights: of rows.
            part: of the budget, for all steps together.
            name: of each release, from its number.
        """
        if isinstance(self.line, Candidates):
            form = CellWeights(self.line.points, weights)
            cells = RankedCells(add_up_one(self.adder, self.users, form), form, self.line)
            found, scales = self._among(self.line, ranks, cells, part, name)
        else:
            rows = RankedRows(in_memory(self.users, "A quantile"), weights, self.line)
            found, scales = self._on_line(self.line, ranks, rows, part, name)
        return [found[rank] for rank in ranks], scales

    def _on_line(
        self, base: Base, ranks: Sequence[float], rows: RankedRows, part: float, name: Callable[[int], Name]
    ) -> tuple[dict[float, float], list[float]]:
        """Return points found by halving, and the scale of deviations at each step."""
        steps = halvings(len(ranks))
        search, scales = _Search(tuple(ranks)), []
        for number, share in enumerate(self.session.plan(halvings=[part / steps] * steps).several("halvings")):
            scores = rows.scores(*search.cells())
            scales.append(2 * scores.total_sensitivity / share.pure_epsilon)
            search.answer(self.session.choose_points(name(number + 1), scores, base, share))
        return search.points, scales

    def _among(
        self,
        candidates: Candidates,
        ranks: Sequence[float],
        rows: RankedCells,
        part: float,
        name: Callable[[int], Name],
    ) -> tuple[dict[float, float], list[float]]:
        """Points of the list, the middle rank first, each between those found; and the scale of one choice."""
        points: dict[float, float] = {}
        scale = 0.0
        shares = self.session.plan(choices=[part / len(ranks)] * len(ranks)).several("choices")
        for number, (rank, share) in enumerate(zip(_middle_first(ranks), shares, strict=True)):
            lowest, highest = candidates.support()
            low = max((points[q] for q in points if q < rank), default=lowest)
            high = min((points[q] for q in points if q > rank), default=highest)
            left_over = candidates.between(low, high)
            scores = rows.scores(left_over, rank)
            scale = max(scale, 2 * scores.total_sensitivity / share.pure_epsilon)
            points[rank] = self.session.release_with(PointsOfList(left_over), name(number + 1), scores, share)
        return points, [scale]


def halvings(ranks: int) -> int:
    """Return in how many steps so many points are found on a line."""
    return math.ceil(math.log2(ranks + 1))


@dataclass
class _Part:
    """A part of the line between two points found, and the ranks still sought in it."""

    ranks: tuple[float, ...]
    low: float
    high: float


class _Search:
    """Finds points by halving: in every part the one of the middle rank first."""

    def __init__(self, sought: tuple[float, ...]) -> None:
        self.points: dict[float, float] = {}
        self._parts = [_Part(sought, 0.0, 1.0)]
        self._cuts: list[float] = []

    def cells(self) -> tuple[list[float], list[float | None]]:
        """Where the line is cut, and which quantile of each part's own weight to look for."""
        return self._cuts, [
            (_middle(part.ranks) - part.low) / (part.high - part.low) if part.ranks else None for part in self._parts
        ]

    def answer(self, points: Sequence[float]) -> None:
        """Cut every part that looked for a rank at the point found for it."""
        left = iter(points)
        parts: list[_Part] = []
        cuts: list[float] = []
        for number, part in enumerate(self._parts):
            cuts += self._cuts[number - 1 : number] if number else []
            if not part.ranks:
                parts.append(part)
                continue
            middle, point = _middle(part.ranks), next(left)
            self.points[middle] = point
            at = part.ranks.index(middle)
            parts += [_Part(part.ranks[:at], part.low, middle), _Part(part.ranks[at + 1 :], middle, part.high)]
            cuts.append(point)
        self._parts, self._cuts = parts, cuts


def _middle(ranks: Sequence[float]) -> float:
    return ranks[len(ranks) // 2]


def _middle_first(ranks: Sequence[float]) -> list[float]:
    """Ascending ranks in the order of halving."""
    if not ranks:
        return []
    at = len(ranks) // 2
    return [ranks[at], *_middle_first(ranks[:at]), *_middle_first(ranks[at + 1 :])]
