"""A search for the setting with the lowest loss that is the same for every optimizer, from coarse to fine.

Effective rates (`updates`) are 2^(i/8), constants 10^(j/8), for whole numbers i and j. A search starts with a coarse
grid: i in steps of 8 (a factor of 2), and j in steps of 8 (a factor of 10) where the optimizer has a constant. Then it
asks for the settings next to the best one, 2 without a constant and 8 with one, at distances of 8, 4, 2 and 1 in i and
j, and goes on to a smaller distance when all of them were tried and none is better. So at the end the best setting is
inside what was tried, and its neighbours are 9 % away in the effective rate, for every optimizer. A search that moved
`MOVES` times at one distance goes on as it is and says so. Constants stay in [0.01, 100].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PARTS = 8  # of a factor 2 in the rate, of a factor 10 in the constant
DISTANCES = (8, 4, 2, 1)
START_RATES = range(-16, 25, 8)  # effective rates of 1/4 to 8
START_CONSTANTS = range(-8, 9, 8)  # 0.1, 1 and 10
LARGEST_CONSTANT = 16  # and the smallest, in eighths of a power of ten
MOVES = 8


@dataclass(frozen=True, order=True)
class Place:
    """A point of the lattice of settings.

    Attributes:
        rate: i.
        constant: j; 0 where there is none.
    """

    rate: int
    constant: int = 0

    @property
    def effective_rate(self) -> float:
        """2^(i/8), before it is divided by the clip norm."""
        return math.exp2(self.rate / PARTS)

    @property
    def constant_value(self) -> float:
        """10^(j/8)."""
        return float(10 ** (self.constant / PARTS))


@dataclass
class Search:
    """The search of one optimizer: ask for `wanted`, give the losses to `take`, until nothing is wanted.

    Attributes:
        with_constant: whether the optimizer has a constant.
        start_rates: of the first grid.
        start_constants: of the first grid.
        distances: from coarse to fine.
        losses: of what was tried.
        resolved: whether all neighbours of the best were tried at every distance.
    """

    with_constant: bool
    start_rates: Sequence[int] = START_RATES
    start_constants: Sequence[int] = START_CONSTANTS
    distances: Sequence[int] = DISTANCES
    losses: dict[Place, float] = field(default_factory=dict)
    resolved: bool = True
    _level: int = 0
    _moves: int = 0

    @property
    def best(self) -> Place:
        """The setting with the lowest loss so far; one that is not finite is as bad as can be."""
        return min(self.losses, key=lambda place: (self.losses[place], place))

    def wanted(self) -> list[Place]:
        """What to try next; nothing at the end."""
        if not self.losses:
            constants = self.start_constants if self.with_constant else (0,)
            return [Place(i, j) for j in constants for i in self.start_rates]
        while self._level < len(self.distances):
            missing = [p for p in self._neighbours(self.distances[self._level]) if p not in self.losses]
            if missing and self._moves < MOVES:
                self._moves += 1
                return missing
            self.resolved = self.resolved and not missing
            self._level, self._moves = self._level + 1, 0
        return []

    def take(self, losses: Mapping[Place, float]) -> None:
        """The losses of what was wanted."""
        self.losses |= {place: loss if math.isfinite(loss) else math.inf for place, loss in losses.items()}

    def _neighbours(self, distance: int) -> list[Place]:
        at, moves = self.best, (-distance, 0, distance)
        around = itertools.product(moves, moves if self.with_constant else (0,))
        places = [Place(at.rate + i, at.constant + j) for i, j in around]
        return [p for p in places if abs(p.constant) <= LARGEST_CONSTANT]
