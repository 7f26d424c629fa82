"""Sums over tasks that belong to different parties: of the outer products of their models, or of matrices.

The unit is one task, with all its rows. A party sends one part per round: a model w of norm at most K, whose outer
product w wᵀ has Frobenius norm ||w||² ≤ K², or a positive semidefinite matrix S of Frobenius norm at most K². Adding or
removing a task moves the sum by at most K². Replacing a task moves it by A - B with both positive semidefinite, so that
<A, B> = tr(AB) ≥ 0 and ||A - B||² = ||A||² + ||B||² - 2<A, B> ≤ 2K⁴: by √2 K², not 2K² (docs/proofs/parties.md).

Matrices come as factors F with S = FᵀF, which is positive semidefinite whatever the factor holds.

A part may also carry the model's direction u and its size s in [0, 1]: (a u, c s, w wᵀ), in units of K². Opposite
directions have the same outer product, so one release of all three moves by less than three separate releases would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import pack
from apportion.linalg.packed import packed_dim
from apportion.privacy.bounded_sum import _KEY, BoundedSum, symmetric_scales
from apportion.privacy.bounds import MARGIN, Hidden, Rows, _held
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK, Neighbours

Floats = NDArray[np.float64]

_REACH = {ADD_REMOVE_TASK: 1.0, REPLACE_TASK: math.sqrt(2)}
_AT_A_TIME = 1 << 22  # matrix entries computed at a time


class TaskModels(Rows):
    """One model per task, each of L2 norm at most `norm`."""

    __slots__ = ()


class SizedModels(TaskModels):
    """One model per task, as in `TaskModels`, with a size from 0 to 1: the task's own measure of the model's length.

    Args:
        values: one model per task.
        norm: the bound K on the norm of a model.
        sizes: one per task.
        equal_lengths: whether every model has length K (within a margin) or is 0.
    """

    __slots__ = ("_equal_lengths", "_sizes")

    def __init__(self, values: Floats, norm: float, sizes: Floats, *, equal_lengths: bool) -> None:
        super().__init__(values, norm)
        held: Floats = _held(sizes)
        if held.shape != (len(values),) or not ((held >= 0) & (held <= 1)).all():  # also refuses NaN
            raise InputError("Expected one size from 0 to 1 for every task; at least one is not.", argument="sizes")
        if equal_lengths and not _all_reach(self._values, norm):
            raise InputError(
                f"Expected every model to have length {norm} or 0; at least one has not.", argument="values"
            )
        self._sizes = held
        self._equal_lengths = equal_lengths

    @classmethod
    def of(cls, models: Floats, sizes: Floats, norm: float, *, scaled: bool) -> Self:
        """Scale every model to length `norm`, or only the longer ones. Clip sizes to [0, 1]."""
        bounded = (TaskModels.scaled if scaled else TaskModels.clipped)(models, norm)
        return cls(bounded._values, norm, np.clip(np.nan_to_num(sizes), 0.0, 1.0), equal_lengths=scaled)


@dataclass(frozen=True)
class MomentWeights:
    """How a part is made up: (a u, c s, w wᵀ), in units of K².

    Attributes:
        mean: a², at most 2.
        size: c².
    """

    mean: float
    size: float

    def __post_init__(self) -> None:
        if not (0 < self.mean <= 2 and self.size > 0):
            raise InputError(f"Expected a weight of the mean in (0, 2] and of the size > 0, got {self}.", argument=None)

    def reach(self, neighbours: Neighbours, *, equal_lengths: bool) -> float:
        """Return how far one task moves the sum, in units of K² (docs/proofs/parties.md)."""
        reach_of(neighbours)  # refuses other neighbours
        if neighbours == ADD_REMOVE_TASK:
            return math.sqrt(1 + self.mean + self.size)
        moved = 2 + 2 * self.mean + self.mean**2 / 2
        return math.sqrt((moved if equal_lengths else max(moved, 1 + 4 * self.mean)) + self.size)


class TaskMatrices(Hidden):
    """One positive semidefinite matrix FᵀF per task, each of Frobenius norm at most the square of `norm`.

    Args:
        factors: F of every task, [tasks, rows, features]; float64.
        norm: K; its square bounds the Frobenius norm of every matrix.
    """

    __slots__ = ("_factors", "_norm")

    def __init__(self, factors: Floats, norm: float) -> None:
        held: Floats = _held(factors)
        if not float(_roots(held).max(initial=0.0)) <= norm:  # also refuses NaN
            raise InputError(
                f"Expected every task's matrix within {norm}^2 in Frobenius norm; at least one task's is not.",
                argument="factors",
            )
        self._factors = held
        self._norm = float(norm)

    @property
    def norm(self) -> float:
        """K. Its square bounds the Frobenius norm of every task's matrix."""
        return self._norm

    @classmethod
    def clipped(cls, factors: Floats, norm: float) -> TaskMatrices:
        """Scale down the matrices whose Frobenius norm exceeds `norm` squared."""
        inner = norm * (1 - MARGIN)
        return cls(factors * (inner / _roots(factors).clip(inner))[:, None, None], norm)

    @classmethod
    def scaled(cls, factors: Floats, norm: float) -> TaskMatrices:
        """Scale every matrix to Frobenius norm `norm` squared. A matrix too small to have a shape becomes zero."""
        roots = _roots(factors)
        factor = norm * (1 - MARGIN) / np.maximum(roots, 1e-18) * (roots > 1e-18)
        return cls(factors * factor[:, None, None], norm)

    def __len__(self) -> int:
        return len(self._factors)

    def __repr__(self) -> str:
        return f"TaskMatrices({self._factors.shape[2]} features, Frobenius norm <= {self.norm:g}^2, values hidden)"


class OuterSum(BoundedSum):
    """Σ_i w_i w_iᵀ, packed.

    Every part has rank one. The cost of Wishart noise relies on that, so the sum is not on a lattice.
    """

    __slots__ = ()

    @property
    def dimension(self) -> int:
        """The number of features d of a model."""
        return packed_dim(self.shape[-1])


def outer_sum(models: TaskModels, neighbours: Neighbours) -> OuterSum:
    """Seal Σ_i w_i w_iᵀ, packed, in floating-point numbers."""
    values: Floats = np.asarray(models._values, np.float64)
    text = f"models of norm <= {models.norm:g}, their outer products in Frobenius norm"
    packed = pack(values.T @ values)
    bound = reach_of(neighbours) * models.norm**2
    return OuterSum(_KEY, packed, bound, text, symmetric_scales(packed.shape[-1]), neighbours=neighbours)


def features_of(entries: int, *, diagonal: bool) -> int:
    """Return the number of features d of a sum of `model_moments` with d + 1 + d(d + 1)/2, or 2d + 1, entries.

    >>> features_of(3 + 1 + 6, diagonal=False), features_of(7, diagonal=True)
    (3, 3)
    """
    return (entries - 1) // 2 if diagonal else (math.isqrt(8 * entries + 1) - 3) // 2


def _all_reach(values: Floats, norm: float) -> bool:
    lengths = np.sqrt(np.einsum("md,md->m", values, values))
    return bool(((lengths == 0) | (lengths >= norm * (1 - 10 * MARGIN))).all())


def reach_of(neighbours: Neighbours) -> float:
    """Return how far one task moves a sum of positive semidefinite parts, in units of K²."""
    if neighbours not in _REACH:
        raise InputError(
            f"Expected neighbours that differ in one task, got: {neighbours.relation}.", argument="neighbours"
        )
    return _REACH[neighbours]


def _roots(factors: Any) -> Floats:
    """Return √||FᵀF||_F of every task, from the smaller of the two products, in batches of tasks."""
    tasks, rows, features = factors.shape
    transposed = rows < features
    size = min(rows, features)
    result = np.zeros(tasks)
    count = max(1, _AT_A_TIME // max(1, size * size))
    for first in range(0, tasks, count):
        part = factors[first : first + count]
        other = part.transpose(0, 2, 1)
        products = part @ other if transposed else other @ part
        result[first : first + count] = np.sqrt(np.sqrt(np.einsum("mij,mij->m", products, products)))
    return result
