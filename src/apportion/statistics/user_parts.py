"""What one user adds to the sums that a mean for a named target is made of.

A user counts by two numbers alone: its size s and the mean z of its values, scaled to [0, 1]. For the mean over rows s
is how many rows the user has; for the mean over users it is 1. Every part is a function of (s, z) and of public or
released numbers, and is clipped (`privacy.contributions.ClippedParts`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.privacy.contributions import ClippedParts, Output

Floats = NDArray[np.float64]
Target = Literal["rows", "users"]


@dataclass(frozen=True, eq=False)
class UserMeans:
    """Size and mean of every user.

    Attributes:
        low: lower end of each column's public range.
        high: upper end of each.
        of: "rows" where a user's size is its number of rows, "users" where every user's is 1.
        largest: public; larger sizes count as this.
    """

    low: Floats
    high: Floats
    of: Target
    largest: float

    def __call__(self, users: Users) -> tuple[Floats, Floats]:
        """Sizes, and one row of means for each user; both 0 for a user without rows."""
        values = np.asarray(users.column("values"), np.float64)
        boxed = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)
        rows = users.sizes
        sums = np.stack([np.bincount(users.owner, column, minlength=users.n_users) for column in boxed.T], axis=1)
        means = np.clip(sums / np.maximum(rows, 1)[:, None], 0.0, 1.0)
        sizes = np.minimum(rows, self.largest) if self.of == "rows" else (rows > 0) * 1.0
        return np.asarray(sizes, np.float64), means


@dataclass(frozen=True, eq=False)
class ClassSums:
    """z and 1 - z of every column, in the user's size class: together 1 a column."""

    means: UserMeans
    edges: Floats

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user: for each column a block of classes with z and one with 1 - z."""
        sizes, means = self.means(users)
        places = class_of(sizes, self.edges)
        rows = np.zeros((len(sizes), means.shape[1], 2, len(self.edges)))
        rows[np.arange(len(sizes)), :, 0, places] = means
        rows[np.arange(len(sizes)), :, 1, places] = 1 - means
        return (rows.reshape(len(sizes), -1),)


@dataclass(frozen=True, eq=False)
class TiltedSums:
    """z - centre of every column, clipped and divided by the clip of the user's size class, times that class's tilt.

    A tilt is between -1 and 1: below 0 for small users, above it for large ones.
    """

    means: UserMeans
    edges: Floats
    centres: Floats
    clips: Floats
    tilts: Floats

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user."""
        sizes, means = self.means(users)
        places = class_of(sizes, self.edges)
        reached = np.clip((means - self.centres) / self.clips.T[places], -1.0, 1.0)
        return (self.tilts.T[places] * reached,)


@dataclass(frozen=True, eq=False)
class TiltedShares:
    """The share of a user's values below a released point, less q, clipped and divided by the clip, times a tilt.

    Attributes:
        point: the released point; of values equal to it one half counts as below.
        quantile: q.
        clip: public.
        edges: where size classes begin.
        tilts: between -1 and 1, one for each class.
    """

    point: float
    quantile: float
    clip: float
    edges: Floats
    tilts: Floats

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user; 0 for a user without rows."""
        values = np.asarray(users.column("values"), np.float64).reshape(users.n_rows)
        below = (values < self.point) / 2 + (values <= self.point) / 2
        rows = users.sizes
        shares = np.bincount(users.owner, below, minlength=users.n_users) / np.maximum(rows, 1)
        reached = np.clip((shares - self.quantile) / self.clip, -1.0, 1.0) * (rows > 0)
        return ((self.tilts[class_of(np.asarray(rows, np.float64), self.edges)] * reached)[:, None],)


@dataclass(frozen=True, eq=False)
class DeviationClasses:
    """One for every column, in the octave of |min(s, h) (z - centre)|, below or above the centre.

    The last octave ends at the furthest that a sum can lie from its centre, the first has all that is nearer too.
    """

    means: UserMeans
    cap: float
    centres: Floats
    octaves: int

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user: for each column a block of octaves below the centre and one above."""
        sizes, means = self.means(users)
        moved = np.minimum(sizes, self.cap)[:, None] * (means - self.centres)
        reached = np.abs(moved) / (self.cap * np.maximum(self.centres, 1 - self.centres))
        places = class_of(reached, np.asarray(2.0 ** np.arange(-self.octaves, 0), np.float64)) + self.octaves * (
            moved > 0
        )
        rows = np.zeros((*means.shape, 2 * self.octaves))
        np.put_along_axis(rows, places[..., None], 1.0, axis=2)
        return (rows.reshape(len(sizes), -1),)


@dataclass(frozen=True, eq=False)
class CentredSums:
    """min(s, h) (z - centre) of every column, clipped to ±C and divided by C; then `part` times min(s, h)/h."""

    means: UserMeans
    cap: float
    centres: Floats
    clips: Floats
    part: float

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user."""
        sizes, means = self.means(users)
        weight = np.minimum(sizes, self.cap)[:, None]
        reached = np.clip(weight * (means - self.centres) / self.clips, -1.0, 1.0)
        return (np.concatenate([reached, self.part * weight / self.cap], axis=1),)


@dataclass(frozen=True, eq=False)
class HighAndLow:
    """z and 1 - z of every column, times min(s, h)/h: together never more than 1 a column."""

    means: UserMeans
    cap: float

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user: z of every column, then 1 - z."""
        sizes, means = self.means(users)
        weight = np.minimum(sizes, self.cap)[:, None] / self.cap
        return (np.concatenate([weight * means, weight * (1 - means)], axis=1),)


@dataclass(frozen=True, eq=False)
class SquaredDeviations:
    """(min(s, h)/h (z - centre))² of every column: what a resampling of users varies by."""

    means: UserMeans
    cap: float
    centres: Floats

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user."""
        sizes, means = self.means(users)
        weight = np.minimum(sizes, self.cap)[:, None] / self.cap
        return (np.square(weight * (means - self.centres)),)


def class_of(sizes: Floats, edges: Floats) -> NDArray[np.int64]:
    """The class of every size: the last that begins at or below it; below the first counts as the first."""
    return np.asarray(np.searchsorted(edges, sizes, side="right") - 1).clip(0)


def parts(part: Any, width: int, taxicab: float, euclidean: float, what: str) -> ClippedParts:
    """The contribution of a part within both norms; euclidean is at most taxicab."""
    return ClippedParts(part, (Output(width, min(euclidean, taxicab), False, what, taxicab),))


def in_columns(columns: int, each: float, further: float = 0.0) -> tuple[float, float]:
    """L1 and L2 norm of so many numbers of at most `each`, and one of at most `further`."""
    return columns * each + further, math.hypot(math.sqrt(columns) * each, further)
