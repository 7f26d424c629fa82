"""A hidden sum over users: the only input that a release accepts.

The constructors below derive its sensitivity from the bounds that the summed arrays carry (`ClippedParts` does the
clipping itself). The sensitivity is for adding or removing one user, unless the weights say that the graph is public:
then it is for replacing one user's values (docs/proofs/weights.md). Sums over rows with public owners state their
sensitivity for replacing the contents of one user's rows (`contributions`). Noise may be anisotropic: coordinate k gets
standard deviation σ·s_k, and the sensitivity is the norm after coordinate-wise division by s, which gives the same
guarantee. A packed symmetric matrix uses s = 1 on the diagonal and 1/√2 off it, so its norm is the Frobenius norm
(docs/proofs/releases.md).

A sum may be on a lattice. It is then held as whole numbers of a public step, formed without rounding errors from parts
truncated towards zero, and can be released exactly (docs/proofs/exact.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike

from apportion.errors import BudgetError
from apportion.privacy.bounds import FloatArray, Hidden
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, in_words, moved_by_user

_ROUNDING = 1 + 2.0**-30  # relative; norms and products in float64 may be this much below the true ones
_KEY = object()  # held by this layer and by the auditor (apportion.auditing.hidden_values)


class Long(Protocol):
    """Rows whose norm is at most `norm`."""

    @property
    def norm(self) -> float:
        """The bound on the norm of every row."""


class Limited(Protocol):
    """Numbers whose absolute value is at most `bound`."""

    @property
    def bound(self) -> float:
        """The bound on the absolute value of every number."""


class Weighed(Protocol):
    """Weights whose squares sum to at most 1 for each user, or the rule that makes them."""

    @property
    def description(self) -> str:
        """How the weights are made."""

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation of sums formed with these weights."""

    @property
    def signed(self) -> bool:
        """Whether a weight may be negative."""

    def moved(self, reach: float) -> float:
        """Return how far one user moves a weighted sum of rows with at most this norm."""

    def moved_gram(self, reach: float) -> float:
        """Return the same for positive semidefinite matrices."""


class BoundedSum(Hidden):
    """A hidden sum over users, its shape, and the sensitivity that follows from how it was formed.

    Args:
        key: proof that the caller is a constructor of this layer.
        value: the sum.
        bound: L2 sensitivity.
        derivation: how the sensitivity follows, in words.
        scales: relative noise of each coordinate of the last axis.
        l1_bound: L1 sensitivity, if it is known to be below √size times the L2 sensitivity.
        neighbours: the neighbour relation of both.
        step: the step of the lattice, if the value counts whole steps.
        box_bound: the largest number that one user adds to a coordinate, if none is negative; None if it is not known.
        dtype: what the released numbers are rounded to; None for the precision of the sum.
        room: makes the vector that the released numbers may be written to; None for a plain new one.
    """

    __slots__ = (
        "_bound", "_box_bound", "_caveats", "_derivation", "_drawn", "_dtype", "_l1_bound",
        "_neighbours", "_open", "_room", "_scales", "_shape", "_step",
    )  # fmt: skip

    def __init__(
        self,
        key: object,
        value: Any,
        bound: float,
        derivation: str,
        scales: FloatArray | None = None,
        l1_bound: float | None = None,
        neighbours: Neighbours = ADD_REMOVE,
        step: float | None = None,
        box_bound: float | None = None,
        dtype: np.dtype[Any] | None = None,
        room: Callable[[int, DTypeLike], Any] | None = None,
    ) -> None:
        if key is not _KEY:
            raise TypeError("Build a BoundedSum from bounded parts: counts, moments, grams, user_total.")
        if step is not None and value.dtype != np.int64:
            raise TypeError(f"Expected whole numbers of steps, got {value.dtype}.")
        self._open = _sealed(value)
        self._shape: tuple[int, ...] = tuple(value.shape)
        rounding = 1.0 if step is None else _ROUNDING
        self._bound = float(bound) * rounding
        self._derivation = derivation
        self._scales = scales
        self._l1_bound = None if l1_bound is None else l1_bound * rounding
        self._box_bound = None if box_bound is None else box_bound * rounding
        self._step = step
        self._dtype = dtype
        self._room = room
        self._neighbours = neighbours
        self._caveats: tuple[str, ...] = ()
        self._drawn: Callable[[float], Any] | None = None

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the statement must list as not protected, because of where the sum was formed."""
        return self._caveats

    @property
    def in_shares(self) -> bool:
        """Whether nobody holds the sum without noise.

        In that case the release forms the sum, after clients have added their shares of the noise.
        """
        return self._drawn is not None

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation of the sensitivity."""
        return self._neighbours

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the hidden value."""
        return self._shape

    @property
    def l2_sensitivity(self) -> float:
        """How far one user can move the value, in the metric that `scales` define."""
        return self._bound

    @property
    def derivation(self) -> str:
        """How the sensitivity follows, in words."""
        return self._derivation

    @property
    def scales(self) -> FloatArray | None:
        """Relative noise of each coordinate of the last axis; None if all are 1."""
        return None if self._scales is None else self._scales.copy()

    @property
    def step(self) -> float | None:
        """The step of the value's lattice; None if the value is not on a lattice."""
        return self._step

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """What the released numbers are rounded to, after the noise; None for the precision of the sum."""
        return self._dtype

    @property
    def room(self) -> Callable[[int, DTypeLike], Any] | None:
        """Makes the vector that the released numbers may be written to; None for a plain new one."""
        return self._room

    @classmethod
    def counts(cls, value: Any, weights: Weighed, step: float | None = None) -> BoundedSum:
        """Seal Σ_j w_ij for every task i. One user's part is the vector of its weights, of norm at most 1."""
        text = f"{weights.description}: norm of one user's weights <= 1{in_words(weights.neighbours)}"
        return cls(_KEY, value, weights.moved(1.0), text, neighbours=weights.neighbours, step=step)

    @classmethod
    def moments(
        cls, value: Any, weights: Weighed, rows: Long, labels: Limited | None, step: float | None = None
    ) -> BoundedSum:
        """Seal Σ_j w_ij y_ij x_j for every task i. One user's part has norm at most the label bound times ||x||."""
        label_bound = 1.0 if labels is None else labels.bound
        text = f"{weights.description}; row norm {rows.norm:g} x label bound {label_bound:g}"
        text += in_words(weights.neighbours)
        return cls(_KEY, value, weights.moved(rows.norm * label_bound), text, neighbours=weights.neighbours, step=step)

    @classmethod
    def grams(cls, value: Any, weights: Weighed, rows: Long, step: float | None = None) -> BoundedSum:
        """Seal Σ_j w_ij x_j x_jᵀ for every task i, packed. One user's part has Frobenius norm at most ||x||²."""
        text = f"{weights.description}; squared row norm {rows.norm:g}^2, Frobenius"
        text += in_words(weights.neighbours, semidefinite=not weights.signed)
        bound, scales = weights.moved_gram(rows.norm**2), symmetric_scales(value.shape[-1])
        return cls(_KEY, value, bound, text, scales, neighbours=weights.neighbours, step=step)

    @classmethod
    def user_total(cls, value: Any, rows: Long, step: float | None = None) -> BoundedSum:
        """Seal Σ_j x_j. One user's part has norm at most ||x||."""
        return cls(_KEY, value, rows.norm, f"row norm {rows.norm:g}", step=step)

    @classmethod
    def user_gram(
        cls, value: Any, rows: Long, step: float | None = None, neighbours: Neighbours = ADD_REMOVE
    ) -> BoundedSum:
        """Seal Σ_j x_j x_jᵀ over users, packed. One user's part has Frobenius norm at most ||x||²."""
        text = f"squared row norm {rows.norm:g}^2, Frobenius{in_words(neighbours, semidefinite=True)}"
        bound = rows.norm**2 * moved_by_user(neighbours, semidefinite=True)
        return cls(_KEY, value, bound, text, symmetric_scales(value.shape[-1]), neighbours=neighbours, step=step)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def l1_sensitivity(self) -> float:
        """The derived L1 sensitivity; if none was derived, √size times the L2 sensitivity."""
        return math.sqrt(self.size) * self.l2_sensitivity if self._l1_bound is None else self._l1_bound

    @property
    def box_sensitivity(self) -> float:
        """How much one user adds to each coordinate at most, where none of it is negative."""
        if self._box_bound is None:
            raise BudgetError("This sum has no bound on what one user adds to each coordinate, nor on its sign.")
        return self._box_bound

    def deferred(self, form: Callable[[], BoundedSum]) -> BoundedSum:
        """Return a sum like this one that is formed only when it is opened.

        Everything but its value must be the same.
        """
        made = object.__new__(type(self))
        slots = {name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())}
        for name in slots:
            setattr(made, name, getattr(self, name))

        def opened() -> Any:
            formed = form()
            if any(not _same(getattr(formed, name), getattr(self, name)) for name in slots - {"_open"}):
                raise TypeError("A sum that was formed later has another shape or sensitivity than was declared.")
            return formed._open()

        made._open = opened
        return made

    def _reveal(self, key: object) -> Any:
        value = self._reveal_steps(key)
        return value if self._step is None else value * self._step

    def _reveal_steps(self, key: object) -> Any:
        """Return the value as it is stored: in whole steps if it is on a lattice."""
        if key is not _KEY:
            self._refuse("read")
        return self._open()

    def _on_its_way(self, arrived: Callable[[], Any]) -> Self:
        """Let `arrived` return the value when it is opened, which is after the charge; it may have to wait for it."""
        self._open = arrived
        return self

    def _formed_elsewhere(self, caveats: tuple[str, ...], drawn: Callable[[float], Any] | None = None) -> Self:
        """Record where the sum was formed.

        If `drawn` is given, the release calls it with the scale of the noise to form the sum.
        """
        self._caveats = caveats
        if drawn is not None:
            self._drawn, self._open = drawn, self._nobody
        return self

    def _nobody(self) -> Any:
        self._refuse("read: nobody holds it without noise")

    def __repr__(self) -> str:
        return f"BoundedSum(shape={self.shape}, l2_sensitivity={self.l2_sensitivity:g}, value hidden)"


def symmetric_scales(packed_size: int) -> FloatArray:
    """Relative noise per entry of a packed symmetric matrix: 1 on the diagonal, 1/√2 off it."""
    width = (math.isqrt(8 * packed_size + 1) - 1) // 2
    scales = np.full(packed_size, math.sqrt(0.5))
    scales[np.cumsum(np.arange(1, width + 1)) - 1] = 1.0
    return scales


def _same(one: Any, two: Any) -> bool:
    return np.array_equal(one, two) if isinstance(one, np.ndarray) else bool(one == two)


def _sealed(value: Any) -> Callable[[], Any]:
    return lambda: value
