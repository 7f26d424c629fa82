"""How much users of one size differ, as released distances of their sums from a centre tell it.

A user of size s with the weight h lies about h times the standard deviation of users' means from the centre. So squared
distances add up to what a variance of users says, if numbers of users by size are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.size_dependence import OF_ROWS, OF_USERS
from apportion.postprocessing.size_strata import SizeStrata

Floats = NDArray[np.float64]

_ROUGHLY = 0.5  # standard deviation of the logarithm of a sum of squared distances around what is expected of it
_LEAST_USERS = 5.0  # in a stratum, that its distances tell anything


@dataclass(frozen=True, eq=False)
class UserDistances:
    """How many users' sums lie in each octave of distance from a centre, by stratum.

    Attributes:
        counts: of the strata, a row each.
        stddev: of the noise in each.
        furthest: the largest possible distance in each stratum, where the last octave ends.
    """

    counts: Floats
    stddev: float
    furthest: Floats

    def log_fits(self, users: Floats, sizes: Floats, strata: SizeStrata, spreads: Floats) -> Floats:
        """Return the logarithm of how well each spread fits.

        Args:
            users: numbers of users by size class.
            sizes: of the classes.
            strata: of the distances.
            spreads: variances of users of one size, over what is usual.
        """
        squares = np.square(self.furthest[:, None] * 2.0 ** (np.arange(-self.counts.shape[1], 0) + 0.5))
        found = np.maximum((self.counts * squares).sum(axis=1), 1e-9)[:, None]
        noise = np.sqrt((np.minimum(self.stddev**2, self.counts + 1) * np.square(squares)).sum(axis=1))[:, None]
        of_one = np.square(np.minimum(sizes, strata.cap)) * (spreads[:, None] * OF_USERS + OF_ROWS / sizes)
        expected = np.maximum(strata.members @ (users * of_one).T, 1e-9)
        stddevs = np.hypot(_ROUGHLY, noise / np.maximum(expected, found))
        fits = -np.square(np.log(found / expected) / stddevs) / 2 - np.log(stddevs)
        return np.asarray((strata.members @ users >= _LEAST_USERS) @ fits)
