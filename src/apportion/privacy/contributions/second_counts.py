"""Counts of keys in the second round of a list: each user divides one unit over keys that the first round left open.

The column "standing" of the rows says how much a key is worth: hardly anything if it has no chance according to the
first round, less the more surely it will pass anyway, otherwise 1. It follows from the key and from noisy counts of the
first round, not from the user (docs/proofs/key_rounds.md). A user with n keys of standings s gives each key the weight

    min(s/√Σs², c),        c = min(reach/√n, 1/√least),

rounded down to whole steps of a lattice. What weights above c leave of the unit goes to the user's other keys, in
proportion to their standings and again up to c. Every standing counts as at least 2⁻¹⁰, so a key that one user takes
has weight from all who take it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun
from apportion.privacy.contributions.distinct_tasks import require_distinct_tasks
from apportion.privacy.contributions.key_counts import BITS, added_up, taken_keys
from apportion.privacy.keys import CountsOfKeys, OwnWeights
from apportion.privacy.neighbours import ADD_REMOVE

Floats = NDArray[np.float64]

LEAST_STANDING: Final = 2.0**-10  # of any key
_DOWN: Final = 1 - 2.0**-32  # covers the rounding of sums over a user's keys, square roots and products


@dataclass(frozen=True, eq=False)
class SecondKeyCounts(Contribution):
    """Weights by standing, for Gaussian noise: a user's squares add up to at most 1.

    Attributes:
        most: the most keys of one user that get weight; public.
        reach: how far a weight may exceed the weight that it would have if all keys had the same standing; public. It
            bounds the weight that a user gives to keys that nobody else has.
        least: a user with fewer keys gives each no more than a user with this many; public.
    """

    most: int
    reach: float = 2.0
    least: int = 1

    def __post_init__(self) -> None:
        if not (self.most >= 1 and 1 <= self.reach < math.inf and 1 <= self.least <= self.most):
            raise InputError(
                f"Expected at least 1 key, a reach of at least 1 and a least number of keys up to the most, got "
                f"{self.most}, {self.reach} and {self.least}.",
                argument=None,
            )

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the weights in whole steps, added up by key."""
        require_distinct_tasks(users)
        standing = np.clip(np.asarray(users.column("standing"), np.float64), LEAST_STANDING, 1.0)
        if (users.sizes > self.most).any():
            standing = standing * taken_keys(users, self.most)
        steps = np.floor(np.ldexp(self._weights(standing, users) * _DOWN, BITS))
        return (added_up(steps, users.column("tasks"), users.n_tasks),)

    def _weights(self, standing: Floats, users: UserRun) -> Floats:
        """The weights of all rows; no weight falls when what others leave is divided."""
        owner, n_users = users.owner, len(users.sizes)
        numbers = np.maximum(np.minimum(users.sizes, self.most), 1)
        largest = np.minimum(self.reach / np.sqrt(numbers), self.least**-0.5)[owner]
        weights = _divided(np.ones(n_users), standing, owner)
        full = weights >= largest
        left = 1 - np.bincount(owner, np.where(full, np.square(largest), 0.0), minlength=n_users)
        others = _divided(left, np.where(full, 0.0, standing), owner)
        return np.asarray(np.minimum(np.where(full, largest, others), largest))

    @property
    def own(self) -> OwnWeights:
        """The largest weights that a user gives."""
        return OwnWeights(self.most, self.least, self.reach)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the counts. One user's part has a norm of at most 1."""
        text = f"standing over its norm, at most {self.reach:g}/sqrt(n^j), for each of {self.most} keys of a user"
        named = {"derivation": text, "neighbours": ADD_REMOVE, "step": math.ldexp(1.0, -BITS), "bound": 1.0}
        return (CountsOfKeys(_KEY, self.own, sums[0], **named),)


def _divided(units: NDArray[Any], standing: Floats, owner: NDArray[Any]) -> Floats:
    """Each user's unit over its rows, in proportion to their standings: squares add up to the unit."""
    squares = np.bincount(owner, np.square(standing), minlength=len(units))
    return np.asarray(standing * np.sqrt(np.maximum(units, 0.0) / np.maximum(squares, 2.0**-60))[owner])
