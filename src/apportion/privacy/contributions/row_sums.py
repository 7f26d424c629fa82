"""Sums over rows, where one user may own many rows and each row has a weight of its own.

One user can move such a sum by its total weight (`row_weights`) times the reach of one row's value.

Rows are in user-major order: the rows of user l lie between indptr[l] and indptr[l + 1]. Each row's part is truncated
towards zero to whole numbers of a public step, and the whole numbers are added, so the sum does not depend on the order
of additions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import Hidden, Offsets, _held
from apportion.privacy.contributions.base import Contribution, Kernels, LabelsOf, RowsOf, Sums, UserRun
from apportion.privacy.contributions.row_weights import ROUNDING, RowWeighting, totals_by_user
from apportion.privacy.neighbours import REPLACE_LABELS
from apportion.privacy.statement import rounded_up

Floats = NDArray[np.float64]


class BoxedValues(Hidden):
    """One row of numbers per observation, each clipped to its public range and scaled to [-1/2, 1/2]."""

    __slots__ = ("_values",)

    def __init__(self, scaled: Floats) -> None:
        held = _held(scaled)
        if held.ndim != 2 or not bool((np.abs(held) <= 0.5).all()):  # also refuses NaN
            raise InputError(
                "Expected a matrix of values within [-1/2, 1/2]; at least one value is not.", argument="scaled"
            )
        self._values: Floats = held

    @classmethod
    def clipped(cls, values: ArrayLike, low: ArrayLike, high: ArrayLike) -> BoxedValues:
        """Clip each column to its range, then scale it. low and high are public."""
        below, above = np.asarray(low, np.float64), np.asarray(high, np.float64)
        matrix = np.asarray(values, np.float64)
        scaled = (np.clip(matrix, below, above) - (below + above) / 2) / (above - below)
        return cls(np.clip(scaled, -0.5, 0.5))

    def with_constant(self) -> BoxedValues:
        """Append a column of 1/2, so that its sum is half the total weight."""
        return BoxedValues(np.column_stack([self._values, np.full(len(self._values), 0.5)]))

    def with_squares(self) -> BoxedValues:
        """Append the square z² of each number, as 4 z² − 1/2."""
        return BoxedValues(np.column_stack([self._values, 4 * np.square(self._values) - 0.5]))

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self._values.shape[1])

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"BoxedValues({self.width} columns within [-1/2, 1/2], values hidden)"


Values = Callable[[Any], BoxedValues]
"""Maps a run of users to the values of their rows."""


@dataclass(frozen=True, eq=False)
class BoxedColumns:
    """A column of the users, clipped to public ranges.

    Attributes:
        low: lower end of each range.
        high: upper end of each range.
        squares: whether to append the squares; see `BoxedValues.with_squares`.
        constant: whether to append a constant; see `BoxedValues.with_constant`.
        column: name of the column.
    """

    low: Any
    high: Any
    squares: bool = False
    constant: bool = False
    column: str = "values"

    def __call__(self, users: UserRun) -> BoxedValues:
        """Return the values of these users."""
        values = users.column(self.column)
        boxed = BoxedValues.clipped(values[:, None] if values.ndim == 1 else values, self.low, self.high)
        boxed = boxed.with_squares() if self.squares else boxed
        return boxed.with_constant() if self.constant else boxed

    def width(self, columns: int) -> int:
        """Return how many numbers a row has if the column has this many."""
        return columns * (2 if self.squares else 1) + self.constant


@dataclass(frozen=True, eq=False)
class RowTotal(Contribution):
    """Σ_i w_i z_i. A row z reaches √width/2 in L2 norm and width/2 in L1 norm.

    Attributes:
        values: makes z for a run of users.
        width: numbers in a row.
        weights: makes w.
    """

    values: Values
    width: int
    weights: RowWeighting

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sum of weighted values in whole steps."""
        boxed = self.values(users)
        if boxed.width != self.width:
            raise InputError(
                f"Expected rows of {self.width} numbers, as declared, got {boxed.width}.", argument="values"
            )
        weights = self.weights.of(users)
        _same_rows(len(boxed), weights)
        return (_added(weights[:, None] * boxed._values, self._step),)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sum. One user moves it by its total weight times the reach of one row's value."""
        weights, reach = self.weights, math.sqrt(self.width) / 2
        text = f"{weights.description}, times {self.width} numbers within [-1/2, 1/2]"
        bounds = weights.moved(reach), weights.moved(self.width / 2)
        return (BoundedSum(_KEY, sums[0], bounds[0], text, None, bounds[1], weights.neighbours, self._step),)

    @property
    def _step(self) -> float:
        return linalg.step_below(self.weights.moved(math.sqrt(self.width) / 2))


@dataclass(frozen=True, eq=False)
class GradientTotal(Contribution):
    """Σ_i w_i g_i x_i. One row reaches the bound on the slope times the norm of its direction.

    Attributes:
        directions: x, one per row.
        slopes: g, one per row.
        weights: w, one per row.
        parts: how many separate sums to keep, by the user column "part"; 0 for one sum. One user moves only one of
            them, so all together move as far as one.
        dimension: length of a direction.
    """

    directions: RowsOf
    slopes: LabelsOf
    weights: RowWeighting
    dimension: int
    parts: int = 0

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sum of weighted gradients in whole steps."""
        directions, slopes = self.directions(users, kernels), self.slopes(users, kernels)
        if directions.norm != self.directions.norm or slopes.bound != self.slopes.bound:
            raise TypeError("Expected directions and slopes with the bounds that were declared.")
        weights = self.weights.of(users)
        _same_rows(len(slopes), weights)
        _same_rows(len(directions), weights)
        rows = np.asarray((weights * slopes._values)[:, None] * directions._values)
        if not self.parts:
            return (_added(rows, self._step),)
        owners = np.repeat(users.of_user("part"), users.sizes)
        return (np.stack([_added(rows[owners == part], self._step) for part in range(self.parts)]),)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sum. One user moves it by its total weight times the longest gradient."""
        weights, reach = self.weights, self._reach
        text = f"{weights.description}, times gradients of norm at most {reach:g}"
        if self.parts:
            text += f", separately for {self.parts} parts of the users"
        bound = weights.moved(reach)
        return (BoundedSum(_KEY, sums[0], bound, text, neighbours=weights.neighbours, step=self._step),)

    @property
    def _reach(self) -> float:
        return self.directions.norm * self.slopes.bound

    @property
    def _step(self) -> float:
        return linalg.step_below(self.weights.moved(self._reach))


@dataclass(frozen=True)
class LabelVectors:
    """Public vectors c_i that multiply the labels; users carry them as a column.

    Attributes:
        taxicab: the largest sum of L1 norms of one user's vectors; derived by `from_rows`.
        euclidean: the largest sum of their L2 norms.
        column: name of the column.
    """

    taxicab: float
    euclidean: float
    column: str = "vectors"

    @classmethod
    def from_rows(cls, rows: ArrayLike, indptr: Offsets, column: str = "vectors") -> LabelVectors:
        """Derive the bounds of all vectors, which are public."""
        vectors = np.asarray(rows, np.float64)
        if vectors.ndim != 2:
            raise InputError(f"Expected one vector per row, got shape {vectors.shape}.", argument="rows")
        if not np.isfinite(vectors).all():
            raise InputError("Expected finite weights of labels, got NaN or infinity.", argument="rows")
        taxicab, euclidean = cls._lengths(vectors, indptr)
        return cls(taxicab * ROUNDING, euclidean * ROUNDING, column)

    def of(self, users: UserRun) -> Floats:
        """Return the column, after checking it against both bounds."""
        vectors = np.asarray(users.column(self.column), np.float64)
        taxicab, euclidean = self._lengths(vectors, users.indptr)
        if not (taxicab <= self.taxicab and euclidean <= self.euclidean):
            raise InputError(
                "Expected vectors of labels within the derived bounds; at least one user's are longer.", argument=None
            )
        return vectors

    @staticmethod
    def _lengths(vectors: Floats, indptr: Offsets) -> tuple[float, float]:
        unit = float(np.abs(vectors).max(initial=0.0)) or 1.0  # scaled, so that no square underflows or overflows
        lengths = unit * np.sqrt(np.square(vectors / unit).sum(axis=1))
        taxicab = totals_by_user(np.abs(vectors).sum(axis=1), indptr).max(initial=0.0)
        return float(taxicab), float(totals_by_user(lengths, indptr).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class LabelTotal(Contribution):
    """Σ_i z_i c_i for public vectors c_i and labels z_i in [-1/2, 1/2].

    Replacing one user's labels moves each label by at most 1, and the sum by at most the total norm of the user's
    vectors, in the L1 norm and in the L2 norm.
    """

    labels: Values
    vectors: LabelVectors

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sum of labels times vectors in whole steps."""
        labels, vectors = self.labels(users), self.vectors.of(users)
        if labels.width != 1:
            raise InputError(f"Expected one label per row, got {labels.width}.", argument=None)
        _same_rows(len(labels), vectors)
        return (_added(labels._values * vectors, self._step),)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sum with the bounds of the vectors."""
        taxicab, euclidean = self.vectors.taxicab, self.vectors.euclidean
        text = "public weights of labels within a range of 1: norms of one user's add up to at most "
        text += f"{rounded_up(taxicab, 6):g} (L1), {rounded_up(euclidean, 6):g} (L2)"
        sum_ = BoundedSum(
            _KEY, sums[0], euclidean, text, l1_bound=taxicab, neighbours=REPLACE_LABELS, step=self._step
        )  # fmt: skip
        return (sum_,)

    @property
    def _step(self) -> float:
        return linalg.step_below(self.vectors.euclidean)


@dataclass(frozen=True, eq=False)
class SizeHistogram(Contribution):
    """A histogram of the number of rows per user. Bucket k counts sizes from edges[k] up to edges[k + 1].

    The last bucket counts all larger sizes. A user with rows is in one bucket, so adding or removing a user moves the
    histogram by 1 in any norm.
    """

    edges: Floats

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Count each user once, in the bucket of its size."""
        sizes = users.sizes
        places = np.searchsorted(self.edges, sizes[sizes > 0], side="right") - 1
        counts = np.bincount(places.clip(0), minlength=len(self.edges)).astype(np.int64)
        return (counts * round(1 / self._step),)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the histogram. One user moves one bucket by 1."""
        text = "one for each user, in the bucket of its number of rows"
        return (BoundedSum(_KEY, sums[0], 1.0, text, l1_bound=1.0, step=self._step),)

    @property
    def _step(self) -> float:
        return linalg.step_below(1.0)


def _added(rows: Floats, step: float) -> NDArray[np.int64]:
    """Return the sum of rows, each in whole steps."""
    return np.asarray(linalg.whole_steps(rows, step).astype(np.int64).sum(axis=0))


def _same_rows(n_rows: int, weights: NDArray[Any]) -> None:
    if n_rows != len(weights):
        raise InputError(f"Expected one weight for each of {n_rows} rows, got {len(weights)}.", argument="weights")
