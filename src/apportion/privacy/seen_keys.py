"""What the first round of a private list knows of keys that it did not list: noisy counts, hidden.

Over all keys that there might be, noisy counts are private by their noise. Which keys have one is not: it says which
keys exist. So they never leave. They make a column of the rows, which engines read, and decide a draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.bounded_sum import _KEY
from apportion.privacy.bounds import Hidden
from apportion.privacy.keys import Listed, OwnWeights

Floats = NDArray[np.float64]

SURE = 0.5  # standing of a key that will pass


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

    def standing(self, users: Any, texts: Sequence[str], chance: float, sure: float) -> Any:
        """Return the users with a column "standing" for each of their keys, from the noisy count x of the key alone.

        Args:
            users: with a column "tasks" of codes.
            texts: of the keys, by code.
            chance: a key with x below has no chance, and stands at 0.
            sure: a key with x from here on will pass, and stands at 1/2.
        """
        noisy = self.hidden._found(_KEY, texts)
        column = np.where(noisy < chance, 0.0, np.where(noisy >= sure, SURE, 1.0))
        return users.with_columns(standing=column[users.column("tasks")] if len(column) else np.zeros(0))
