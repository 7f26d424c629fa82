"""What one user adds to a covariance matrix: the mean of its rows and of their outer products, around a centre.

Values are scaled to [-1, 1] by their public range. A user counts one, however many rows it has. Its part has three
blocks: a constant, the mean m of its rows over ρ, and the packed matrix M of second moments over R. Off-diagonal
entries are times √2, so that the norm is the Frobenius norm of M. Each of the last two blocks is clipped to norm 1
(docs/proofs/means.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.linalg.fixed_sums import squared_lengths
from apportion.privacy.contributions import ClippedParts, Output
from apportion.statistics.user_parts import class_of

Floats = NDArray[np.float64]

ONE = 0.5  # the constant block: it counts users


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Values scaled to [-1, 1] by their public range, and packed moments of each user's rows.

    Attributes:
        low: lower end of each column's public range.
        high: upper end of each.
    """

    low: Floats
    high: Floats

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self.low)

    def means(self, users: Users, centre: Floats) -> tuple[Floats, Floats]:
        """The mean of every user's rows less the centre, and of their packed outer products; 0 without rows."""
        values = np.asarray(users.column("values"), np.float64)
        scaled = (2 * np.clip(values, self.low, self.high) - self.low - self.high) / (self.high - self.low) - centre
        first, second = np.tril_indices(self.columns)
        weight = np.where(first == second, 1.0, math.sqrt(2))
        products = scaled[:, first] * scaled[:, second] * weight
        return _means(scaled, users), _means(products, users)


@dataclass(frozen=True, eq=False)
class Centres:
    """One, and the mean of a user's rows over √columns: a row of norm at most √2."""

    rows: ScaledRows

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user."""
        means, _ = self.rows.means(users, np.zeros(self.rows.columns))
        return (np.concatenate([np.ones((len(means), 1)), means / math.sqrt(self.rows.columns)], axis=1),)

    @property
    def contribution(self) -> ClippedParts:
        """The sum over users."""
        what = "one, and the scaled mean of a user's rows"
        return ClippedParts(self, (Output(1 + self.rows.columns, math.sqrt(2), False, what),))


@dataclass(frozen=True, eq=False)
class MomentClasses:
    """One in the class of the norm of a user's second moments.

    Attributes:
        rows: scales values.
        centre: released.
        edges: where classes begin; public.
    """

    rows: ScaledRows
    centre: Floats
    edges: Floats

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user."""
        _, products = self.rows.means(users, self.centre)
        found = np.zeros((len(products), len(self.edges)))
        found[np.arange(len(products)), class_of(np.sqrt(squared_lengths(products)), self.edges)] = 1.0
        return (found,)

    @property
    def contribution(self) -> ClippedParts:
        """The sum over users."""
        what = "one in the class of a user's second moments"
        return ClippedParts(self, (Output(len(self.edges), 1.0, False, what),))


@dataclass(frozen=True, eq=False)
class Moments:
    """The three blocks.

    Attributes:
        rows: scales values.
        centre: released.
        cap: R, of the norm of second moments; chosen from what was released.
    """

    rows: ScaledRows
    centre: Floats
    cap: float

    @property
    def reach(self) -> float:
        """ρ: the root of the trace of a matrix of Frobenius norm R is at most this."""
        return math.sqrt(self.cap * math.sqrt(self.rows.columns))

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user."""
        means, products = self.rows.means(users, self.centre)
        ones = np.full((len(means), 1), ONE)
        return (np.concatenate([ones, _within(means / self.reach), _within(products / self.cap)], axis=1),)

    @property
    def contribution(self) -> ClippedParts:
        """The sum over users."""
        columns = self.rows.columns
        width = 1 + columns + columns * (columns + 1) // 2
        what = "one half, the mean of a user's rows and that of their outer products, each of norm at most 1"
        return ClippedParts(self, (Output(width, math.sqrt(ONE**2 + 2), False, what),))


def _means(columns: Floats, users: Users) -> Floats:
    sums = [np.bincount(users.owner, column, minlength=users.n_users) for column in columns.T]
    return np.asarray(np.stack(sums, axis=1) / np.maximum(users.sizes, 1)[:, None])


def _within(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.sqrt(squared_lengths(rows)), 1.0)[:, None])
