"""The share of each user's values between public cuts: a histogram in which every user counts once.

A user's shares are not negative and sum to 1, so their L1 norm is 1 and their L2 norm at most 1, whatever the number of
values or cuts. Quantiles of the mean of users' distributions follow from the released sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.errors import InputError
from apportion.privacy.contributions import ClippedParts, Output

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SharesBetween:
    """Which share of a user's values is at most the first cut, between two neighbouring ones, and above the last.

    Attributes:
        cuts: public, ascending.

    Example:
        >>> from apportion.data.users import Users
        >>> ann = Users([0, 4], {"values": np.array([1.0, 2.0, 2.0, 5.0])})
        >>> SharesBetween((1.5, 3.0))(ann, None)[0].tolist()
        [[0.25, 0.5, 0.25]]
    """

    cuts: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.cuts or not (np.diff(self.cuts) > 0).all() or not np.isfinite(self.cuts).all():
            raise InputError(f"Expected finite cuts in ascending order, got {len(self.cuts)} others.", argument="cuts")

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """Return the row of every user, from its own values alone."""
        width = len(self.cuts) + 1
        place = np.searchsorted(self.cuts, users.column("values"), side="left")
        counts = np.bincount(users.owner * np.int64(width) + place, minlength=users.n_users * width)
        return (counts.reshape(users.n_users, width) / np.maximum(users.sizes, 1)[:, None],)

    def contribution(self) -> ClippedParts:
        """Return this as a contribution, of norm at most 1 for each user."""
        return ClippedParts(self, (Output(len(self.cuts) + 1, 1.0, False, "shares of a user's values between cuts"),))

    def quantiles(self, released: Floats, quantiles: Floats) -> Floats:
        """Return the cuts at which released shares, added up, first reach each quantile.

        Args:
            released: the noisy sum over users.
            quantiles: between 0 and 1.
        """
        reached = np.maximum.accumulate(np.cumsum(released))
        total = max(float(np.sum(released)), 1.0)
        places = np.searchsorted(reached / total, np.asarray(quantiles, np.float64), side="left")
        return np.asarray(self.cuts, np.float64)[np.minimum(places, len(self.cuts) - 1)]
