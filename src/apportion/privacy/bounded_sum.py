"""A sum over users that nobody can read: the only thing a release accepts.

Its sensitivity is derived, by the constructors below, from the bounds that the summed arrays carry (and by
`ClippedParts`, which clips). It is for adding or removing one user, unless the weights say that the graph is
public: then for replacing one user's values (docs/proofs/weights.md). Sums over rows whose owners are public state
theirs for replacing what one user's rows hold (`contributions`). Noise may be anisotropic: coordinate k gets
standard deviation σ·s_k and the sensitivity is the norm of the coordinate-wise quotient by s, which is the same
guarantee. A packed symmetric matrix uses s = 1 on the diagonal and 1/√2 off it, so that its norm is the Frobenius
norm (docs/proofs/releases.md).

A sum may be on a lattice: then it is held as whole numbers of a public step, formed without rounding errors from parts
that were cut off towards zero, and can be released exactly (docs/proofs/exact.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from apportion.privacy.bounds import FloatArray, Hidden
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, in_words, moved_by_user

_ROUNDING = 1 + 2.0**-30  # by which norms and products in float64 may be below the true ones
_KEY = object()  # held by this layer and by the auditor's door, apportion.auditing.hidden_values


class Long(Protocol):
    """Rows that are at most `norm` long."""

    @property
    def norm(self) -> float:
        """The bound on every row."""


class Limited(Protocol):
    """Numbers that are at most `bound` in size."""

    @property
    def bound(self) -> float:
        """The bound on every number."""


class Weighed(Protocol):
    """Weights whose squares sum to at most 1 for each user, or what makes them."""

    @property
    def description(self) -> str:
        """How they are made."""

    @property
    def neighbours(self) -> Neighbours:
        """The relation that sums formed with them are bounded for."""

    @property
    def signed(self) -> bool:
        """Whether a weight may be negative."""

    def moved(self, reach: float) -> float:
        """How far one user moves a sum of rows of at most this norm."""

    def moved_gram(self, reach: float) -> float:
        """The same for positive semidefinite matrices."""


class BoundedSum(Hidden):
    """A hidden sum over users, its shape, and the sensitivity that follows from how it was formed.

    Args:
        key: held by the constructors of this layer.
        value: the sum.
        bound: L2 sensitivity.
        derivation: where it comes from, in words.
        scales: relative noise of each coordinate of the last axis.
        l1_bound: L1 sensitivity, where it is known to be below √size times the L2 one.
        neighbours: the relation that both are for.
        step: of the lattice, where the value is whole numbers of it.
    """

    __slots__ = ("_bound", "_derivation", "_l1_bound", "_neighbours", "_open", "_scales", "_shape", "_step")

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
    ) -> None:
        if key is not _KEY:
            raise TypeError("Build a BoundedSum from bounded parts: counts, moments, grams, user_total.")
        if step is not None and value.dtype != np.int64:
            raise TypeError(f"Expected whole numbers of steps, got {value.dtype}.")
        self._open = _sealed(value)
        self._shape: tuple[int, ...] = tuple(value.shape)
        room = 1.0 if step is None else _ROUNDING
        self._bound = float(bound) * room
        self._derivation = derivation
        self._scales = scales
        self._l1_bound = None if l1_bound is None else l1_bound * room
        self._step = step
        self._neighbours = neighbours

    @property
    def neighbours(self) -> Neighbours:
        """The relation that the sensitivity is for."""
        return self._neighbours

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the hidden value."""
        return self._shape

    @property
    def l2_sensitivity(self) -> float:
        """How far one user can move the value, in the metric that `scales` define."""
        return self._bound

    @property
    def derivation(self) -> str:
        """Where the sensitivity comes from, in words."""
        return self._derivation

    @property
    def scales(self) -> FloatArray | None:
        """Relative noise of each coordinate of the last axis; None if all are 1."""
        return None if self._scales is None else self._scales.copy()

    @property
    def step(self) -> float | None:
        """The step of the lattice that the value is on; None if it is on none."""
        return self._step

    @classmethod
    def counts(cls, value: Any, weights: Weighed, step: float | None = None) -> BoundedSum:
        """Σ_j w_ij for every task i: a user's part is the vector of its weights, of norm at most 1."""
        text = f"{weights.description}: norm of one user's weights <= 1{in_words(weights.neighbours)}"
        return cls(_KEY, value, weights.moved(1.0), text, neighbours=weights.neighbours, step=step)

    @classmethod
    def moments(
        cls, value: Any, weights: Weighed, rows: Long, labels: Limited | None, step: float | None = None
    ) -> BoundedSum:
        """Σ_j w_ij y_ij x_j for every task i: one user's part is at most the label bound times the norm of x."""
        label_bound = 1.0 if labels is None else labels.bound
        text = f"{weights.description}; row norm {rows.norm:g} x label bound {label_bound:g}"
        text += in_words(weights.neighbours)
        return cls(_KEY, value, weights.moved(rows.norm * label_bound), text, neighbours=weights.neighbours, step=step)

    @classmethod
    def grams(cls, value: Any, weights: Weighed, rows: Long, step: float | None = None) -> BoundedSum:
        """Σ_j w_ij x_j x_jᵀ for every task i, packed: Frobenius norm of one user's part at most ||x||²."""
        text = f"{weights.description}; squared row norm {rows.norm:g}^2, Frobenius"
        text += in_words(weights.neighbours, semidefinite=not weights.signed)
        bound, scales = weights.moved_gram(rows.norm**2), symmetric_scales(value.shape[-1])
        return cls(_KEY, value, bound, text, scales, neighbours=weights.neighbours, step=step)

    @classmethod
    def user_total(cls, value: Any, rows: Long, step: float | None = None) -> BoundedSum:
        """Σ_j x_j: one user's part has norm at most ||x||."""
        return cls(_KEY, value, rows.norm, f"row norm {rows.norm:g}", step=step)

    @classmethod
    def user_gram(
        cls, value: Any, rows: Long, step: float | None = None, neighbours: Neighbours = ADD_REMOVE
    ) -> BoundedSum:
        """Σ_j x_j x_jᵀ over users, packed: Frobenius norm of one user's part at most ||x||²."""
        text = f"squared row norm {rows.norm:g}^2, Frobenius{in_words(neighbours, semidefinite=True)}"
        bound = rows.norm**2 * moved_by_user(neighbours, semidefinite=True)
        return cls(_KEY, value, bound, text, symmetric_scales(value.shape[-1]), neighbours=neighbours, step=step)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    @property
    def l1_sensitivity(self) -> float:
        """A bound on the L1 sensitivity: as derived, or by the norm inequality √size times the L2 one."""
        return math.sqrt(self.size) * self.l2_sensitivity if self._l1_bound is None else self._l1_bound

    def _reveal(self, key: object) -> Any:
        value = self._reveal_steps(key)
        return value if self._step is None else value * self._step

    def _reveal_steps(self, key: object) -> Any:
        """The value as it is held: in whole numbers of steps, where there are any."""
        if key is not _KEY:
            self._refuse("read")
        return self._open()

    def __repr__(self) -> str:
        return f"BoundedSum(shape={self.shape}, l2_sensitivity={self.l2_sensitivity:g}, value hidden)"


def symmetric_scales(packed_size: int) -> FloatArray:
    """Relative noise per entry of a packed symmetric matrix: 1 on the diagonal, 1/√2 off it."""
    width = (math.isqrt(8 * packed_size + 1) - 1) // 2
    scales = np.full(packed_size, math.sqrt(0.5))
    scales[np.cumsum(np.arange(1, width + 1)) - 1] = 1.0
    return scales


def _sealed(value: Any) -> Callable[[], Any]:
    return lambda: value
