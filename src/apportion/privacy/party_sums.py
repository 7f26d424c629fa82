"""Sums over parties on a lattice: whole numbers, the same for every order and grouping of additions.

A party's part is one vector, (a u, c s, w wᵀ) or some of it (`task_sums`). Every number of the part is truncated
towards zero to whole steps of a public lattice. That shortens the part, so the bound for an added or removed task holds
as it is. If a task is replaced, truncation can lengthen the difference of two parts: by at most 2 (d + 1) steps for d
features (docs/proofs/parties.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum, symmetric_scales
from apportion.privacy.bounds import Rows
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun
from apportion.privacy.contributions.clipped import step_of
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK, Neighbours
from apportion.privacy.task_sums import MomentWeights, SizedModels, TaskMatrices, TaskModels, reach_of

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Sent = TaskModels | TaskMatrices

_AT_A_TIME: Final = 1 << 17  # numbers of parts that are truncated at a time


@dataclass(frozen=True)
class PartForm:
    """What a party's part is made of, and how far one party moves the sum. All of it is public.

    Attributes:
        dimension: number of features d.
        norm: the bound K on the norm of a model.
        neighbours: ADD_REMOVE_TASK or REPLACE_TASK.
        diagonal: whether the part holds only the squares of a model's entries, not all products.
        weights: how directions and sizes are weighed beside the products; None if the part holds neither.
        equal_lengths: whether every model has length K or 0; see `MomentWeights`.
    """

    dimension: int
    norm: float
    neighbours: Neighbours
    diagonal: bool = False
    weights: MomentWeights | None = None
    equal_lengths: bool = False

    def __post_init__(self) -> None:
        reach_of(self.neighbours)  # refuses other neighbours
        if self.dimension < 1 or not 0 < self.norm < 1e50:
            problem = f"Expected at least 1 feature and a norm above 0, got {self.dimension} and {self.norm}."
            raise InputError(problem, argument="norm")

    @property
    def length(self) -> int:
        """The number of coordinates of a part."""
        second = self.dimension if self.diagonal else linalg.packed_size(self.dimension)
        return second if self.weights is None else self.dimension + 1 + second

    @property
    def step(self) -> float:
        """The step of the lattice."""
        return step_of(self._reach(ADD_REMOVE_TASK) * self.norm**2)

    @property
    def bound(self) -> float:
        """How far one party moves the sum."""
        cut_off = 2 * (self.dimension + 1) * self.step if self.neighbours == REPLACE_TASK else 0.0
        return self._reach(self.neighbours) * self.norm**2 + cut_off

    def _reach(self, neighbours: Neighbours) -> float:
        if self.weights is None:
            return reach_of(neighbours)
        return self.weights.reach(neighbours, equal_lengths=self.equal_lengths)

    def whole(self, sent: Sent) -> Counts:
        """Return the sum of these parties' parts, in whole steps."""
        self._check(sent)
        held = sent._factors if isinstance(sent, TaskMatrices) else sent._values
        sizes = sent._sizes if isinstance(sent, SizedModels) else np.zeros(len(held))
        total = np.zeros(self.length, np.int64)
        count = max(1, _AT_A_TIME // max(self.length, 1))
        for first in range(0, len(held), count):
            part = slice(first, first + count)
            vectors = self._vectors(np.asarray(held[part], np.float64), sizes[part])
            total += linalg.whole_steps(vectors, self.step).sum(axis=0).astype(np.int64)  # exact: below 2^53
        return total

    def sealed(self, total: Counts) -> BoundedSum:
        """Hide the sum, and attach the sensitivity that follows from the bounds of the parts."""
        spread = None if self.diagonal else self._scales()
        return BoundedSum(_KEY, total, self.bound, self._words, spread, neighbours=self.neighbours, step=self.step)

    def of(self, sent: Sent) -> BoundedSum:
        """Add up the parts and hide the sum."""
        return self.sealed(self.whole(sent))

    def _check(self, sent: Sent) -> None:
        """Refuse parts of another kind, or with another bound, than the sensitivity is derived for."""
        width = (sent._factors if isinstance(sent, TaskMatrices) else sent._values).shape[-1]
        if sent.norm > self.norm or width != self.dimension or (self.diagonal and isinstance(sent, TaskMatrices)):
            raise InputError(
                f"Expected parts of {self.dimension} features and norm {self.norm:g}, got {width} and {sent.norm:g}.",
                argument="sent",
            )
        if self.weights is not None and not (
            isinstance(sent, SizedModels) and (sent._equal_lengths or not self.equal_lengths)
        ):
            raise InputError(
                "Expected models with sizes, of the lengths that were declared, got others.", argument="sent"
            )

    def _vectors(self, held: Floats, sizes: Floats) -> Floats:
        """Return one part for each party."""
        second = np.asarray(np.square(held) if self.diagonal else linalg.pack(_products(held)), np.float64)
        if self.weights is None:
            return second
        unit = self.norm**2
        directions = np.asarray(Rows.scaled(held, 1.0)._values, np.float64)
        first, size = math.sqrt(self.weights.mean) * unit, math.sqrt(self.weights.size) * unit
        return np.concatenate([first * directions, size * sizes[:, None], second], axis=1)

    def _scales(self) -> Floats:
        before = np.ones(0 if self.weights is None else self.dimension + 1)
        return np.concatenate([before, symmetric_scales(linalg.packed_size(self.dimension))])

    @property
    def _words(self) -> str:
        what = "squares" if self.diagonal else "outer products"
        if self.weights is None:
            words = f"models of norm <= {self.norm:g}, their {what} in Frobenius norm"
            both = "; sqrt(2) for a replaced task, both parts positive semidefinite"
            return words + (both if self.neighbours == REPLACE_TASK else "")
        unit = self.norm**2
        return (
            f"models of norm <= {self.norm:g}: their directions times {math.sqrt(self.weights.mean) * unit:.4g}, their "
            f"sizes times {math.sqrt(self.weights.size) * unit:.4g}, and their {what}, bounded together"
        )


def _products(held: Floats) -> Floats:
    """Return w wᵀ of models, or FᵀF of factors."""
    products = held.transpose(0, 2, 1) @ held if held.ndim == 3 else held[:, :, None] * held[:, None, :]
    return np.asarray(products, np.float64)


SentBy = Callable[[Any], Sent]
"""Makes what each of some parties sends, from that party's own rows and from released numbers."""


@dataclass(frozen=True, eq=False)
class PartyParts(Contribution):
    """The parts of parties. Each party is a user of its own, with the columns "features" and "labels".

    Attributes:
        sent_by: the function that makes the parts.
        form: what the parts are made of.
    """

    sent_by: SentBy
    form: PartForm

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sum over these parties. A party without rows adds nothing."""
        taking_part = users.with_users(users.present)
        if not taking_part.n_users:
            return (np.zeros(self.form.length, np.int64),)
        sent = self.sent_by(taking_part)
        if len(sent) != taking_part.n_users:
            raise InputError(
                f"Expected one part for each of {taking_part.n_users} parties, got {len(sent)}.", argument="sent_by"
            )
        return (self.form.whole(sent),)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sum. One party moves it by the bound of its part."""
        return (self.form.sealed(sums[0]),)
