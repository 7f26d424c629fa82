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
from apportion.postprocessing.size_strata import SizeStrata
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
class StratumWeights:
    """Weight min(s, h), means and stratum of every user; a weight is at most the bound of its stratum."""

    means: UserMeans
    edges: Floats
    strata: SizeStrata

    def __call__(self, users: Users) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Weights, one row of means for each user, and strata."""
        sizes, means = self.means(users)
        places = self.strata.of_class[class_of(sizes, self.edges)]
        return np.minimum(sizes, self.strata.bounds[places]), means, places


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
    """One for every column, in the octave of |min(s, h) (z - centre)|, by stratum, below or above the centre.

    The last octave ends at the furthest that a sum of the stratum can lie from its centre, the first has all that is
    nearer too.
    """

    weights: StratumWeights
    centres: Floats
    octaves: int

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user: for each column and stratum a block of octaves below the centre and one above."""
        weight, means, places = self.weights(users)
        bounds = self.weights.strata.bounds
        reached = weight[:, None] * (means - self.centres)
        furthest = bounds[places][:, None] * np.maximum(self.centres, 1 - self.centres)
        octaves = np.asarray(2.0 ** np.arange(-self.octaves, 0), np.float64)
        spots = class_of(np.abs(reached) / furthest, octaves) + self.octaves * (reached > 0)
        rows = np.zeros((*means.shape, 2 * self.octaves * len(bounds)))
        np.put_along_axis(rows, (spots + 2 * self.octaves * places[:, None])[..., None], 1.0, axis=2)
        return (rows.reshape(len(weight), -1),)


@dataclass(frozen=True, eq=False)
class ClippedDistances:
    """min(s, h) (z - centre) of every column, clipped to ±C and divided by C; then `part` times min(s, h)/b.

    All in the user's stratum, which has a C for each column and the bound b.
    """

    weights: StratumWeights
    centres: Floats
    clips: Floats
    part: float

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user: for each column a number for each stratum, then one more for each stratum."""
        weight, means, places = self.weights(users)
        bounds = self.weights.strata.bounds
        reached = np.clip(weight[:, None] * (means - self.centres) / self.clips.T[places], -1.0, 1.0)
        sized = self.part * (weight / bounds[places])[:, None]
        return (in_strata(np.concatenate([reached, sized], axis=1), places, len(bounds)),)


@dataclass(frozen=True, eq=False)
class HighAndLow:
    """z and 1 - z of every column, times min(s, h)/b, in the user's stratum: together never more than 1 a column."""

    weights: StratumWeights

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user: a number for each stratum with z of every column, then with 1 - z."""
        weight, means, places = self.weights(users)
        bounds = self.weights.strata.bounds
        scaled = (weight / bounds[places])[:, None]
        return (in_strata(np.concatenate([scaled * means, scaled * (1 - means)], axis=1), places, len(bounds)),)


@dataclass(frozen=True, eq=False)
class SquaredDeviations:
    """(min(s, h) (z - centre))² of every column, up to a reach, over its square: what new users would vary by."""

    means: UserMeans
    cap: float
    centres: Floats
    reach: Floats

    def __call__(self, users: Users, weights: Any) -> tuple[Floats]:
        """One row per user; every number is at most 1."""
        sizes, means = self.means(users)
        weight = np.minimum(sizes, self.cap)[:, None]
        return (np.square(np.clip(weight * (means - self.centres) / self.reach, -1.0, 1.0)),)


def class_of(sizes: Floats, edges: Floats) -> NDArray[np.int64]:
    """The class of every size: the last that begins at or below it; below the first counts as the first."""
    return np.asarray(np.searchsorted(edges, sizes, side="right") - 1).clip(0)


def in_strata(rows: Floats, places: NDArray[np.int64], strata: int) -> Floats:
    """Put every number of a user's row in the place of the user's stratum among so many; 0 in all others."""
    placed = np.zeros((*rows.shape, strata))
    placed[np.arange(len(rows)), :, places] = rows
    return placed.reshape(len(rows), -1)


def parts(part: Any, width: int, taxicab: float, euclidean: float, what: str) -> ClippedParts:
    """The contribution of a part within both norms; euclidean is at most taxicab."""
    return ClippedParts(part, (Output(width, min(euclidean, taxicab), False, what, taxicab),))


def in_columns(columns: int, each: float, further: float = 0.0) -> tuple[float, float]:
    """L1 and L2 norm of so many numbers of at most `each`, and one of at most `further`."""
    return columns * each + further, math.hypot(math.sqrt(columns) * each, further)
