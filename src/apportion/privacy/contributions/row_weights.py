"""Weights of rows, where one user may own many rows.

There are two kinds. Public weights are functions of public sizes. Neighbours then replace the contents of one user's
rows, which moves a weighted sum by twice the user's total weight times the reach of one row's value. Private weights
follow from a user's own size and a public cap on its total. Neighbours then add or remove a user, which moves the sum
by the cap times the reach (docs/proofs/contributions.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError
from apportion.privacy.bounds import Offsets, _held
from apportion.privacy.contributions.base import UserRun
from apportion.privacy.neighbours import ADD_REMOVE, REPLACE_VALUES, Neighbours
from apportion.privacy.statement import rounded_up

Floats = NDArray[np.float64]

ROUNDING = 1 + 1e-9  # relative; sums of float64 in another order differ by less


class RowWeighting(ABC):
    """A rule that weighs every row: public numbers, and a function of a user's own size or of public sizes."""

    @property
    @abstractmethod
    def neighbours(self) -> Neighbours:
        """The neighbour relation of sums formed with the weights."""

    @property
    @abstractmethod
    def description(self) -> str:
        """How the weights are made, for the statement."""

    @abstractmethod
    def moved(self, reach: float) -> float:
        """Return how far one user moves a weighted sum of values with at most this norm."""

    @abstractmethod
    def of(self, users: UserRun) -> Floats:
        """Return the weights of these users' rows, each user's total within the bound."""


@dataclass(frozen=True)
class PublicRowWeights(RowWeighting):
    """Weights that depend only on public sizes; users carry them as a column.

    Attributes:
        largest: the largest total weight of one user; derived by `from_rows`.
        sums_of_squares: Σ c² over rows, and Σ t² over users' totals: public, like the weights.
        made: how they were made, in words.
        column: name of the column.
    """

    largest: float
    sums_of_squares: tuple[float, float]
    made: str
    column: str = "weights"

    @classmethod
    def from_rows(cls, values: ArrayLike, indptr: Offsets, made: str, column: str = "weights") -> PublicRowWeights:
        """Derive the bounds of all weights. The weights are public and travel in a column of the users."""
        held = _checked(values)
        totals = totals_by_user(held, indptr)
        squares = float(np.square(held).sum()), float(np.square(totals).sum())
        return cls(float(totals.max(initial=0.0)) * ROUNDING, squares, made, column)

    @property
    def neighbours(self) -> Neighbours:
        """Replacing the contents of one user's rows."""
        return REPLACE_VALUES

    @property
    def description(self) -> str:
        """How the weights were made, for the statement."""
        return f"{self.made}: at most {rounded_up(self.largest, 6):g} for one user"

    def moved(self, reach: float) -> float:
        """Return twice the largest total weight times the reach."""
        return 2 * self.largest * reach

    def of(self, users: UserRun) -> Floats:
        """Return the column, after checking it against the bound."""
        values = _checked(users.column(self.column))
        if not float(totals_by_user(values, users.indptr).max(initial=0.0)) <= self.largest:
            raise InputError(
                f"Expected every user's weights to add up to at most {self.largest}; at least one user's do not.",
                argument=None,
            )
        return values


@dataclass(frozen=True)
class PrivateRowWeights(RowWeighting):
    """Weights from each user's own size. They add up to at most `cap` per user, which is public or released.

    Attributes:
        cap: the bound on one user's total weight.
        form: offsets of users to weights of their rows, each user's from its own size alone.
        made: how they are made, in words.
    """

    cap: float
    form: Callable[[Offsets], Floats]
    made: str

    @property
    def neighbours(self) -> Neighbours:
        """Adding or removing one user."""
        return ADD_REMOVE

    @property
    def description(self) -> str:
        """How the weights were made, for the statement."""
        return f"{self.made}: at most {rounded_up(self.cap * ROUNDING, 6):g} for one user"

    def moved(self, reach: float) -> float:
        """Return the cap times the reach."""
        return self.cap * ROUNDING * reach

    def of(self, users: UserRun) -> Floats:
        """Return the weights of these users, after checking them against the cap."""
        values = _checked(self.form(users.indptr))
        if not float(totals_by_user(values, users.indptr).max(initial=0.0)) <= self.cap * ROUNDING:
            raise InputError(
                f"Expected every user's weights to add up to at most {self.cap}; at least one user's do not.",
                argument=None,
            )
        return values


def _checked(values: ArrayLike) -> Floats:
    held: Floats = _held(np.asarray(values, np.float64))
    if held.ndim != 1 or not bool((held >= 0).all()) or not np.isfinite(held).all():
        raise InputError("Expected one finite weight of at least 0 per row; at least one is not.", argument=None)
    return held


def totals_by_user(values: Floats, indptr: Offsets) -> Floats:
    """Return the sum per user; a user without rows has 0."""
    if indptr[0] != 0 or indptr[-1] != len(values) or (np.diff(indptr) < 0).any():
        raise InputError(
            f"Expected offsets from 0 to {len(values)}, one run per user; these do not fit the values.",
            argument="indptr",
        )
    sums = np.zeros(len(indptr) - 1)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        sums[filled] = np.add.reduceat(values, indptr[filled])
    return sums
