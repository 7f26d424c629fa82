"""What the first round of a private list knows of keys that it did not list: noisy counts, hidden.

Over all keys that there might be, noisy counts are private by their noise. Which keys have one is not: it says which
keys exist. So they never leave. They make a column of the rows, which engines read, and decide a draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounded_sum import _KEY
from apportion.privacy.bounds import Hidden
from apportion.privacy.keys import Listed, OwnWeights

Floats = NDArray[np.float64]

SURELY = 0.3  # least standing of a key that will pass
_BELOW = 0.5  # deviations of noise below the level, from which on a key needs less than full weight
_PRIOR = 5.0  # keys


class NoisyCounts(Hidden):
    """Noisy counts of keys by text."""

    __slots__ = ("_counts", "_texts")

    def __init__(self, texts: NDArray[np.object_], counts: Floats) -> None:
        self._texts, self._counts = texts, counts

    def _found(self, key: object, texts: Sequence[str] | NDArray[np.object_]) -> Floats:
        """The noisy counts of these keys; -inf for one that had none drawn, which then has no chance."""
        if key is not _KEY:
            self._refuse("read")
        held = dict(zip(self._texts.tolist(), self._counts.tolist(), strict=True))
        return np.array([held.get(text, -np.inf) for text in texts], np.float64)

    def __repr__(self) -> str:
        return "NoisyCounts(keys and counts hidden)"


@dataclass(frozen=True, eq=False)
class Seen(Listed):
    """A released list of keys, with hidden noisy counts of all others.

    Attributes:
        own: the largest weights that a user gave.
        hidden: the noisy counts.
    """

    own: OwnWeights
    hidden: NoisyCounts

    @property
    def tail(self) -> float:
        """How slowly counts of keys fall off, from the list: 1 where they are as one over their rank.

        It is the mean logarithm of listed counts over the threshold (Hill, 1975), as if five more had the mean 1.
        """
        beyond = [math.log(max(count / self.threshold, 1.0)) for count in self.counts[~self.known].tolist()]
        return (math.fsum(beyond) + _PRIOR) / (len(beyond) + _PRIOR)

    def standing(self, users: Any, texts: Sequence[str], chance: float, level: float) -> Any:
        """Return the users with a column "standing" for each of their keys, from the noisy count x of the key alone.

        Args:
            users: with a column "tasks" of codes.
            texts: of the keys, by code.
            chance: a key with x below has no chance, and stands at 0.
            level: the count that passes half of the time. The further x is above, the less weight the key needs.
        """
        noisy = self.hidden._found(_KEY, texts)
        needed = level / np.maximum(noisy + _BELOW * self.scale, level)
        column = np.where(noisy < chance, 0.0, np.maximum(needed, SURELY))
        return users.with_columns(standing=column[users.column("tasks")] if len(column) else np.zeros(0))
