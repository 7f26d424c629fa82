"""Weights on the middle of every user's rows, for a quantile: rows far from the user's own quantile add nothing.

A user's rows are put in the order of their values. With a part a of its weight, the rows between the shares q (1 - a)
and q + (1 - q) a keep theirs, all others have none. At any point of the line the weight below it, less q times the
user's weight, is then what it was for all rows, clipped: to -q h and (1 - q) h, with h the weight that is left. The
total of a user is a function of its size alone; which rows have it depends on that user's values alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy.contributions.base import UserRun
from apportion.privacy.contributions.row_weights import ROUNDING, RowWeighting, totals_by_user
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours
from apportion.privacy.statement import rounded_up

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MiddleRows(RowWeighting):
    """min(s, among) is shared equally over a user's s rows, and the middle `kept` of it remains.

    Attributes:
        quantile: q, public.
        kept: h, the bound on one user's total weight; public or released.
        among: the most rows that a user counts as before; public or released.
        column: name of the users' column of values.
    """

    quantile: float
    kept: float
    among: float
    column: str = "values"

    def __post_init__(self) -> None:
        if not (0 < self.quantile < 1 and 0 < self.kept <= self.among < np.inf):
            raise InputError(
                "Expected a quantile strictly between 0 and 1 and bounds with 0 < kept <= among, got "
                f"{self.quantile:g}, {self.kept:g} and {self.among:g}.",
                argument=None,
            )

    @property
    def neighbours(self) -> Neighbours:
        """Adding or removing one user."""
        return ADD_REMOVE

    @property
    def description(self) -> str:
        """How the weights are made, for the statement."""
        return (
            f"each user's total weight min(size, h), on the middle of its rows: at most "
            f"{rounded_up(self.kept * ROUNDING, 6):g} for one user"
        )

    def moved(self, reach: float) -> float:
        """Return the bound on a user's total times the reach."""
        return self.kept * ROUNDING * reach

    def of(self, users: UserRun) -> Floats:
        """Return the weights of these users' rows, after checking them against the bound."""
        values = np.asarray(users.column(self.column), np.float64).reshape(users.n_rows)
        owner, sizes = np.asarray(users.owner, np.int64), np.diff(users.indptr)
        counted = np.minimum(sizes, self.among)
        part = np.minimum(1.0, self.kept / np.maximum(counted, 1))[owner]
        order = np.lexsort((values, owner))  # equal values of a user keep their order
        number = np.arange(users.n_rows) - users.indptr[owner]
        # an end is in every bit the place of the next row, so rounding does not add up with a user's rows
        places, ends = number / sizes[owner], (number + 1) / sizes[owner]
        low, high = self.quantile * (1 - part), self.quantile + (1 - self.quantile) * part
        weights = np.empty(users.n_rows)
        weights[order] = counted[owner] * np.maximum(np.minimum(ends, high) - np.maximum(places, low), 0.0)
        if not float(totals_by_user(weights, users.indptr).max(initial=0.0)) <= self.kept * ROUNDING:
            raise InputError(
                f"Expected every user's weights to add up to at most {self.kept}; at least one user's do not.",
                argument=None,
            )
        return weights
