"""Strata of users' sizes: neighbouring octaves whose sums are released apart from those of all others.

A user is in one stratum, so sums by stratum move no more with one user than one sum over all. A weight in a stratum is
at most the largest size there, so sums over small users have little noise. The stratum of the largest users has the cap
as its bound. Because every stratum is `WIDTH` octaves below the next, all of them together have little more noise than
the first alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WIDTH, MOST = 3, 3  # octaves of a stratum, and how many strata


@dataclass(frozen=True, eq=False)
class SizeStrata:
    """Strata, from that of the largest users to that of the smallest.

    Attributes:
        of_class: the stratum of each size class.
        bounds: the largest weight in each stratum; the first is the cap for all larger users.
    """

    of_class: NDArray[np.int64]
    bounds: Floats

    @classmethod
    def below(cls, caps: Floats, last: int) -> SizeStrata:
        """Return the strata with the last size of a class as the cap.

        >>> SizeStrata.below(np.array([1.0, 3, 7, 15, 31, 63]), 4).of_class
        array([1, 1, 0, 0, 0, 0])
        """
        places = np.maximum(last - np.arange(len(caps)), 0) // WIDTH
        of_class = np.minimum(places, MOST - 1)
        lasts = [last, *(int(np.flatnonzero(of_class == j)[-1]) for j in range(1, int(of_class[0]) + 1))]
        return cls(of_class, np.asarray(caps[lasts], np.float64))

    @property
    def cap(self) -> float:
        """The largest weight of a user."""
        return float(self.bounds[0])

    def weights(self, counts: Floats, sizes: Floats) -> Floats:
        """Return the sum of weights of each class, in a row for each stratum; all other axes as in the counts."""
        return np.asarray(counts[..., None, :] * np.minimum(sizes, self.cap) * self.members)

    @property
    def members(self) -> Floats:
        """1 for each class of a stratum and 0 for all others, in a row for each stratum."""
        return np.asarray(np.arange(len(self.bounds))[:, None] == self.of_class, np.float64)
