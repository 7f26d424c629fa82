"""An allocation: the items that matter to the publisher get more of every user's budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.allocation import SplitEqually, TaskFactors
from apportion.allocation.policies import Allocated, Count, expected_of_normalised
from apportion.data.users import UserParts
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours


@dataclass(frozen=True)
class Important:
    """Weights of items: a public number each, times popularity to the power -1/4.

    Attributes:
        importance: a positive number for each item, in the order of the list.
        releases: popularity is asked for once.
        neighbours: of sums with these weights.
    """

    importance: tuple[float, ...]
    releases: int = 1
    neighbours: Neighbours = ADD_REMOVE

    def allocate(self, users: UserParts, count: Count, n_users: float) -> Allocated:
        """Release popularity, then weigh by it and by importance."""
        popularity = count(SplitEqually())
        omega = np.array(self.importance) * popularity.floored(0.05) ** -0.25
        weights = TaskFactors(omega / omega.max(), "importance times popularity^-0.25, normalised")
        return Allocated(weights, expected_of_normalised(omega, popularity), (popularity,))
