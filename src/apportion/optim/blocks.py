"""Parts of units' gradients, by parameter: stored as they are, or as the factors that a gradient is made of.

The gradient of a linear map's weight, for one unit, is Σ_t b_t a_tᵀ over the unit's positions t (rows, times, pixels):
a is what goes in, b the gradient of what comes out. Its squared length is Σ_{t,t'} (a_t · a_t')(b_t · b_t'), and a
weighted sum over units is one product of matrices, so no unit's gradient is formed where that would cost more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, repr=False)
class Stored:
    """One gradient for each unit.

    Attributes:
        values: of shape [units, *shape of the parameter].
    """

    values: Tensor

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Squared length of each unit's gradient, divided by scales if given."""
        values = self.values if scales is None else self.values / scales.to(self.values.dtype)
        flat = values.reshape(len(values), -1)
        return torch.linalg.vector_norm(flat, dim=1).square()

    def weighted_sum(self, factors: Any) -> Tensor:
        """Sum over units, each times its factor."""
        weights = factors.to(self.values.device, self.values.dtype)
        return (weights @ self.values.flatten(1)).reshape(self.values.shape[1:])

    def each(self) -> Tensor:
        """One gradient for each unit."""
        return self.values

    def keeping(self, kept: Any) -> Stored:
        """Zeros for units that are not kept."""
        mask = kept.to(self.values.device).reshape(-1, *[1] * (self.values.dim() - 1))
        return Stored(self.values.where(mask, 0.0))


@dataclass(frozen=True, repr=False)
class Product:
    """The gradient of a weight matrix as its two factors, position by position.

    Attributes:
        outgoing: b, of shape [units, positions, rows of the weight].
        incoming: a, of shape [units, positions, columns of the weight].
        shape: of the parameter.
    """

    outgoing: Tensor
    incoming: Tensor
    shape: tuple[int, ...]

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Squared length of each unit's gradient, in the cheapest way."""
        a, b = self.incoming, self.outgoing
        if scales is not None:
            return Stored(self._formed).squared_norms(scales.reshape(-1))
        if a.shape[1] == 1:
            return a[:, 0].square().sum(1) * b[:, 0].square().sum(1)
        if a.shape[1] ** 2 * (a.shape[2] + b.shape[2]) < a.shape[1] * a.shape[2] * b.shape[2]:
            a, b = a.double(), b.double()  # positions may cancel
            return (torch.bmm(a, a.mT) * torch.bmm(b, b.mT)).sum((1, 2))
        return Stored(self._formed).squared_norms(None)

    def weighted_sum(self, factors: Any) -> Tensor:
        """Sum over units, each times its factor; from their gradients, if those were formed for the lengths."""
        if "_formed" in self.__dict__:
            return Stored(self._formed).weighted_sum(factors).reshape(self.shape)
        scaled = self.outgoing * factors.to(self.outgoing.device, self.outgoing.dtype)[:, None, None]
        total = scaled.reshape(-1, scaled.shape[2]).T @ self.incoming.reshape(-1, self.incoming.shape[2])
        return total.reshape(self.shape)

    def each(self) -> Tensor:
        """One gradient for each unit."""
        return self._formed.reshape(-1, *self.shape)

    def keeping(self, kept: Any) -> Product:
        """Zeros for units that are not kept."""
        mask = kept.to(self.outgoing.device)[:, None, None]
        return Product(self.outgoing.where(mask, 0.0), self.incoming.where(mask, 0.0), self.shape)

    @cached_property
    def _formed(self) -> Tensor:
        return torch.bmm(self.outgoing.mT, self.incoming).flatten(1)


@dataclass(frozen=True, repr=False)
class Lookup:
    """The gradient of an embedding: the rows that were looked up, and the gradients of what came out.

    Attributes:
        outgoing: b, of shape [units, positions, width].
        rows: of shape [units, positions]; -1 for no row.
        shape: of the parameter.
    """

    outgoing: Tensor
    rows: Tensor
    shape: tuple[int, ...]

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Squared length of each unit's gradient: positions that looked up the same row add up first."""
        b = self.outgoing.double()
        same = (self.rows[:, :, None] == self.rows[:, None, :]) & (self.rows >= 0)[:, :, None]
        if scales is not None:
            b = b / scales[self.rows.clamp_min(0)]
        return (torch.bmm(b, b.mT) * same).sum((1, 2))

    def weighted_sum(self, factors: Any) -> Tensor:
        """Sum over units, each times its factor."""
        scaled = self.outgoing * factors.to(self.outgoing.device, self.outgoing.dtype)[:, None, None]
        known = self.rows >= 0
        total = torch.zeros(self.shape, dtype=scaled.dtype, device=scaled.device)
        return total.index_add_(0, self.rows[known], scaled[known])

    def each(self) -> Tensor:
        """One gradient for each unit."""
        n, positions, width = self.outgoing.shape
        found = self.outgoing.new_zeros((n, self.shape[0] + 1, width))
        at = self.rows.where(self.rows >= 0, self.shape[0])[:, :, None].expand(n, positions, width)
        return found.scatter_add_(1, at, self.outgoing)[:, :-1]

    def keeping(self, kept: Any) -> Lookup:
        """Zeros for units that are not kept."""
        return Lookup(self.outgoing.where(kept.to(self.outgoing.device)[:, None, None], 0.0), self.rows, self.shape)
