"""What one user adds to a group, for each statistic: numbers of the user's rows in that group alone.

Values are clipped to their public range. With `of="rows"` a row counts once; with `of="users"` the rows of a user in a
group count one together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.privacy.contributions import Cells
from apportion.statistics.user_parts import Target

Floats = NDArray[np.float64]

BOTTOM = 0.25  # weight of a cell's size beside its sum, for means
SQUARES = 2.0  # the same of its sum of squares, for variances


def ones(users: Users, cells: Cells) -> Floats:
    """One for every group that a user is in."""
    return np.ones((cells.n_cells, 1))


def row_counts(users: Users, cells: Cells) -> Floats:
    """How many rows a user has in each of its groups."""
    return cells.sizes[:, None].astype(np.float64)


@dataclass(frozen=True)
class SignedSums:
    """The sum of values over the largest that the range allows."""

    low: float
    high: float

    @property
    def reach(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def __call__(self, users: Users, cells: Cells) -> Floats:
        """One number for each cell."""
        return cells.sums(np.clip(_values(users), self.low, self.high) / self.reach)[:, None]


@dataclass(frozen=True)
class CentredMoments:
    """The sum of z - centre, of its square where that is wanted, and the size; z is the value scaled to [0, 1]."""

    low: float
    high: float
    centre: float
    of: Target
    squares: bool = False

    def __call__(self, users: Users, cells: Cells) -> Floats:
        """Two or three numbers for each cell."""
        apart = (np.clip(_values(users), self.low, self.high) - self.low) / (self.high - self.low) - self.centre
        held = [cells.sums(apart)]
        if self.squares:
            held.append(SQUARES * cells.sums(np.square(apart)))
        columns = np.stack([*held, BOTTOM * cells.sizes], axis=1)
        return columns if self.of == "rows" else columns / cells.sizes[:, None]


@dataclass(frozen=True)
class BinCounts:
    """How many rows lie in each bin; the first and the last bin have all that is beyond them."""

    inner: tuple[float, ...]
    of: Target

    @property
    def width(self) -> int:
        """How many bins."""
        return len(self.inner) + 1

    def __call__(self, users: Users, cells: Cells) -> Floats:
        """One number for each bin."""
        bins = np.searchsorted(np.asarray(self.inner), _values(users), side="right")
        counts = np.bincount(cells.of_row * self.width + bins, minlength=cells.n_cells * self.width)
        held = counts.reshape(cells.n_cells, self.width).astype(np.float64)
        return held if self.of == "rows" else held / cells.sizes[:, None]


def _values(users: Any) -> Floats:
    return np.asarray(users.column("values"), np.float64)
