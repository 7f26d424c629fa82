"""Counts of keys that may be private: each user divides one unit over the keys that it holds, up to a public cap.

A user with more keys than the cap counts those with the smallest "priority". This column must follow from the user's id
and the key's text alone. Weights are rounded down to whole steps of a lattice, so a user's part stays within its bound
in whole numbers (docs/proofs/keys.md).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun
from apportion.privacy.contributions.distinct_tasks import require_distinct_tasks
from apportion.privacy.keys import CountsOfKeys, OwnWeights
from apportion.privacy.neighbours import ADD_REMOVE, ADD_REMOVE_EXAMPLE, REPLACE_VALUES, Neighbours

BITS: Final = 32  # a weight of 1 has 2^BITS steps
_AT_A_TIME: Final = 1 << 20  # weights whose steps add up to less than 2^53, so that doubles hold them exactly
_MOST: Final = 100_000  # limit of the number of keys of one user


@dataclass(frozen=True, eq=False)
class _DividedOverKeys(Contribution):
    """Each user divides one unit equally over its keys.

    Attributes:
        most: the most keys of one user that get weight; public.
        neighbours: the relation that the counts are bounded for.
        least: a user with fewer keys gives each the weight of a user with this many; public. This lowers the threshold:
            if there is little noise, a user with a single key would determine it.
    """

    most: int
    neighbours: Neighbours = ADD_REMOVE
    least: int = 1
    words: ClassVar[str]

    def __post_init__(self) -> None:
        if not 1 <= self.most <= _MOST:
            raise InputError(
                f"Expected a cap on the keys of one user from 1 to {_MOST}, got {self.most}.", argument="most"
            )
        if not 1 <= self.least <= self.most:
            raise InputError(
                f"Expected a user to count as having from 1 to {self.most} keys, got {self.least}.", argument=None
            )
        if self.neighbours not in (ADD_REMOVE, ADD_REMOVE_EXAMPLE, REPLACE_VALUES):
            raise InputError(
                f"Expected neighbours that differ in one user's keys, got: {self.neighbours.relation}.",
                argument="neighbours",
            )

    @property
    @abstractmethod
    def steps(self) -> NDArray[np.int64]:
        """The weight of each key of a user with 0, 1, .. `most` keys, in whole steps."""

    @property
    @abstractmethod
    def moved(self) -> float:
        """How far one user moves the counts, in the norm of the noise."""

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the weights in whole steps, added up by key."""
        require_distinct_tasks(users)
        sizes, tasks = users.sizes, users.column("tasks")
        given = np.repeat(self.steps[np.minimum(sizes, self.most)].astype(np.float64), sizes)
        if (sizes > self.most).any():
            given *= taken_keys(users, self.most)
        return (added_up(given, tasks, users.n_tasks),)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the counts. One user's part has a norm of at most 1."""
        text = f"{self.words} for each of {self.least} to {self.most} keys of a user"
        text += "; both parts of a replaced user are nowhere negative" if self.neighbours == REPLACE_VALUES else ""
        named = {"derivation": text, "neighbours": self.neighbours, "step": math.ldexp(1.0, -BITS), **self._bounds()}
        return (CountsOfKeys(_KEY, OwnWeights(self.most, self.least), sums[0], **named),)

    @abstractmethod
    def _bounds(self) -> dict[str, Any]:
        """The sensitivities that follow."""


@dataclass(frozen=True, eq=False)
class KeyCounts(_DividedOverKeys):
    """Σ_j 1/√n_j for every key, for Gaussian noise: a user's squares add up to 1."""

    words = "1/sqrt(their number)"

    @property
    def steps(self) -> NDArray[np.int64]:
        """⌊2³²/√k⌋, in whole numbers."""
        return _roots(self.most, self.least)

    @property
    def moved(self) -> float:
        """Return 1, or √2 if a user's keys are replaced, because no entry of either part is negative."""
        return math.sqrt(2) if self.neighbours == REPLACE_VALUES else 1.0

    def _bounds(self) -> dict[str, Any]:
        return {"bound": self.moved}


@dataclass(frozen=True, eq=False)
class KeyShares(_DividedOverKeys):
    """Σ_j 1/n_j for every key, for Laplace noise: a user's weights add up to 1."""

    words = "1/their number"

    @property
    def steps(self) -> NDArray[np.int64]:
        """⌊2³²/k⌋."""
        return np.concatenate([[0], (1 << BITS) // np.maximum(np.arange(1, self.most + 1), self.least)])

    @property
    def moved(self) -> float:
        """Return 1, or 2 if a user's keys are replaced."""
        return 2.0 if self.neighbours == REPLACE_VALUES else 1.0

    def _bounds(self) -> dict[str, Any]:
        return {"bound": self.moved, "l1_bound": self.moved}


def taken_keys(users: UserRun, most: int) -> NDArray[np.bool_]:
    """Return which rows get weight: for a user with too many keys, those with the smallest priority."""
    heavy = users.sizes > most
    taken = np.repeat(~heavy, users.sizes)
    rows = np.flatnonzero(~taken)
    order = rows[np.lexsort((users.column("priority")[rows], users.owner[rows]))]
    sizes = users.sizes[heavy]
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    taken[order[rank < most]] = True
    return taken


def added_up(steps: NDArray[np.float64], tasks: NDArray[np.int32], n_tasks: int) -> NDArray[np.int64]:
    """Return whole steps added up by key, exactly."""
    sums = np.zeros(n_tasks, np.int64)
    for first in range(0, len(tasks), _AT_A_TIME):
        part = slice(first, first + _AT_A_TIME)
        sums += np.bincount(tasks[part], steps[part], minlength=n_tasks).astype(np.int64)
    return sums


@lru_cache(maxsize=8)
def _roots(most: int, least: int) -> NDArray[np.int64]:
    return np.array([0, *(math.isqrt((1 << 2 * BITS) // max(k, least)) for k in range(1, most + 1))], np.int64)
