"""Sums over rows of which one user may own many, each row with a weight of its own.

What one user can move such a sum by is its total weight times how far one row's value reaches. There are two kinds of
weights. Public ones are functions of public sizes; neighbours then replace what one user's rows hold, which moves the
sum by twice the reach. Private ones follow from a user's own size and a public cap on its total; neighbours then add or
remove a user, which moves the sum by the reach (docs/proofs/contributions.md).

Rows are in user-major order: the rows of user l lie between indptr[l] and indptr[l + 1]. What each row adds is cut off
towards zero to whole numbers of a public step, and those are added: no order of additions changes the sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import Hidden, Labels, ObservationRows, Offsets, _held
from apportion.privacy.neighbours import ADD_REMOVE, REPLACE_LABELS, REPLACE_VALUES, Neighbours
from apportion.privacy.statement import rounded_up

Floats = NDArray[np.float64]

_ROUNDING = 1 + 1e-9  # sums of float64 in another order differ by less


class PublicRowWeights:
    """One weight per row, none negative, from public sizes alone.

    Attributes:
        largest: the largest total weight of one user.
        neighbours: replacing what one user's rows hold.
    """

    neighbours: Neighbours = REPLACE_VALUES

    def __init__(self, values: ArrayLike, indptr: Offsets, description: str) -> None:
        self._values: Floats = _checked(values)
        self._indptr: Offsets = _held(indptr)
        self._description = description
        self.largest = float(_totals(self._values, indptr).max(initial=0.0)) * _ROUNDING

    @property
    def description(self) -> str:
        """How they were made, for the statement."""
        return f"{self._description}: at most {rounded_up(self.largest, 6):g} for one user"

    @property
    def sums_of_squares(self) -> tuple[float, float]:
        """Σ c² over rows, and Σ t² over users' totals: public, like the weights."""
        totals = _totals(self._values, self._indptr)
        return float(np.square(self._values).sum()), float(np.square(totals).sum())

    def moved(self, reach: float) -> float:
        """How far one user moves a weighted sum of values of at most this norm."""
        return 2 * self.largest * reach


class PrivateRowWeights(Hidden):
    """One weight per row, none negative, from the user's own rows and public or released numbers.

    A user's weights add up to at most `cap`, which is public.
    """

    __slots__ = ("_cap", "_description", "_indptr", "_values")

    neighbours: Neighbours = ADD_REMOVE

    def __init__(self, values: ArrayLike, indptr: Offsets, cap: float, description: str) -> None:
        self._values: Floats = _checked(values)
        if not float(_totals(self._values, indptr).max(initial=0.0)) <= cap * _ROUNDING:
            raise InputError(f"Expected every user's weights to add up to at most {cap}; some user's do not.")
        self._indptr: Offsets = _held(indptr)
        self._cap = float(cap) * _ROUNDING
        self._description = description

    @property
    def cap(self) -> float:
        """The bound on one user's total weight."""
        return self._cap

    @property
    def description(self) -> str:
        """How they were made, for the statement."""
        return f"{self._description}: at most {rounded_up(self.cap, 6):g} for one user"

    def moved(self, reach: float) -> float:
        """How far one user moves a weighted sum of values of at most this norm."""
        return self.cap * reach

    def __repr__(self) -> str:
        return f"PrivateRowWeights({self.description}, values hidden)"


RowWeights = PublicRowWeights | PrivateRowWeights


class BoxedValues(Hidden):
    """One row of numbers per observation, each clipped to its public range and scaled to [-1/2, 1/2]."""

    __slots__ = ("_values",)

    def __init__(self, scaled: Floats) -> None:
        held = _held(scaled)
        if held.ndim != 2 or not bool((np.abs(held) <= 0.5).all()):  # also refuses NaN
            raise InputError("Expected a matrix of values within [-1/2, 1/2]; some value is not.")
        self._values: Floats = held

    @classmethod
    def clipped(cls, values: ArrayLike, low: ArrayLike, high: ArrayLike) -> BoxedValues:
        """Clip each column to its range, then scale; low and high are public."""
        below, above = np.asarray(low, np.float64), np.asarray(high, np.float64)
        matrix = np.asarray(values, np.float64)
        scaled = (np.clip(matrix, below, above) - (below + above) / 2) / (above - below)
        return cls(np.clip(scaled, -0.5, 0.5))

    def with_constant(self) -> BoxedValues:
        """The same with a further column that is 1/2 in every row, so that its sum is half the total weight."""
        return BoxedValues(np.column_stack([self._values, np.full(len(self._values), 0.5)]))

    def with_squares(self) -> BoxedValues:
        """The same with the square z² of each number beside them, as 4 z² − 1/2."""
        return BoxedValues(np.column_stack([self._values, 4 * np.square(self._values) - 0.5]))

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return int(self._values.shape[1])

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"BoxedValues({self.width} columns within [-1/2, 1/2], values hidden)"


def weighted_total(values: BoxedValues, weights: RowWeights) -> BoundedSum:
    """Σ_i w_i z_i: a row z reaches √width/2 in L2 norm and width/2 in L1 norm."""
    _same_rows(len(values), weights._values)
    reach = math.sqrt(values.width) / 2
    step = linalg.step_below(weights.moved(reach))
    total = _added(weights._values[:, None] * values._values, step)
    text = f"{weights.description}, times {values.width} numbers within [-1/2, 1/2]"
    return BoundedSum(
        _KEY, total, weights.moved(reach), text, None, weights.moved(values.width / 2), weights.neighbours, step
    )


def gradient_total(
    directions: ObservationRows, slopes: Labels, weights: RowWeights, parts: NDArray[np.integer[Any]] | None = None
) -> BoundedSum:
    """Σ_i w_i g_i x_i: one row reaches the bound on the slope times the norm of its direction.

    Args:
        directions: x, one per row.
        slopes: g, one per row.
        weights: w, one per row.
        parts: a public number from 0 up for each user, by which the sums are kept apart; None for one sum.
            One user moves one of them only, so all together move as far as one.
    """
    _same_rows(len(slopes), weights._values)
    _same_rows(len(directions), weights._values)
    scaled = weights._values * slopes._values
    reach = directions.norm * slopes.bound
    text = f"{weights.description}, times gradients of norm at most {reach:g}"
    step = linalg.step_below(weights.moved(reach))
    rows = np.asarray(scaled[:, None] * directions._values)
    if parts is None:
        total = _added(rows, step)
    else:
        owners = np.repeat(parts, np.diff(weights._indptr))
        text += f", {int(parts.max()) + 1} parts of the users apart"
        total = np.stack([_added(rows[owners == part], step) for part in range(int(parts.max()) + 1)])
    return BoundedSum(_KEY, total, weights.moved(reach), text, neighbours=weights.neighbours, step=step)


def label_total(labels: BoxedValues, rows: ArrayLike, indptr: Offsets) -> BoundedSum:
    """Σ_i z_i c_i for public vectors c_i and labels z_i in [-1/2, 1/2].

    Replacing one user's labels moves each of them by at most 1, and the sum by at most the total norm of the user's
    vectors: in L1 norm and in L2 norm alike.
    """
    vectors = np.asarray(rows, np.float64)
    if labels.width != 1 or vectors.ndim != 2:
        raise InputError(f"Expected one label and one vector per row, got {labels.width} and shape {vectors.shape}.")
    _same_rows(len(labels), vectors)
    if not np.isfinite(vectors).all():
        raise InputError("Expected finite weights of labels, got NaN or infinity.")
    unit = float(np.abs(vectors).max(initial=0.0)) or 1.0  # so that no square is too small or too large to hold
    lengths = unit * np.sqrt(np.square(vectors / unit).sum(axis=1))
    taxicab = float(_totals(np.abs(vectors).sum(axis=1), indptr).max(initial=0.0)) * _ROUNDING
    euclidean = float(_totals(lengths, indptr).max(initial=0.0)) * _ROUNDING
    text = "public weights of labels within a range of 1: norms of one user's add up to at most "
    text += f"{rounded_up(taxicab, 6):g} (L1), {rounded_up(euclidean, 6):g} (L2)"
    step = linalg.step_below(euclidean)
    total = _added(labels._values * vectors, step)
    return BoundedSum(_KEY, total, euclidean, text, l1_bound=taxicab, neighbours=REPLACE_LABELS, step=step)


def size_histogram(indptr: Offsets, edges: ArrayLike) -> BoundedSum:
    """How many users have how many rows: bucket k counts sizes from edges[k] up to edges[k + 1], the last all beyond.

    A user with rows is in one bucket, so adding or removing one moves the histogram by 1 in any norm.
    """
    bounds = np.asarray(edges, np.float64)
    sizes = np.diff(indptr)
    places = np.searchsorted(bounds, sizes[sizes > 0], side="right") - 1
    counts = np.bincount(places.clip(0), minlength=len(bounds)).astype(np.int64)
    text = "one for each user, in the bucket of its number of rows"
    step = linalg.step_below(1.0)
    return BoundedSum(_KEY, counts * round(1 / step), 1.0, text, l1_bound=1.0, step=step)


def _added(rows: Floats, step: float) -> NDArray[np.int64]:
    """The sum of rows, each in whole steps."""
    return np.asarray(linalg.whole_steps(rows, step).astype(np.int64).sum(axis=0))


def _checked(values: ArrayLike) -> Floats:
    held: Floats = _held(np.asarray(values, np.float64))
    if held.ndim != 1 or not bool((held >= 0).all()) or not np.isfinite(held).all():
        raise InputError("Expected one finite weight of at least 0 per row; some weight is not.")
    return held


def _totals(values: Floats, indptr: Offsets) -> Floats:
    """Sum per user; a user without rows has 0."""
    if indptr[0] != 0 or indptr[-1] != len(values) or (np.diff(indptr) < 0).any():
        raise InputError(f"Expected offsets from 0 to {len(values)}, one run per user; they do not fit the values.")
    sums = np.zeros(len(indptr) - 1)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        sums[filled] = np.add.reduceat(values, indptr[filled])
    return sums


def _same_rows(n_rows: int, weights: NDArray[Any]) -> None:
    if n_rows != len(weights):
        raise InputError(f"Expected one weight for each of {n_rows} rows, got {len(weights)}.")
