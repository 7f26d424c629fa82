"""The gradient of a linear layer on a GPU, weight and bias as one: few launches, and no question to the device.

With inputs a and gradients b of the outputs, the gradient of [W c] is Σ_t b_t [a_t 1]ᵀ, of which the squared length is
Σ_{t,t'} (a_t · a_t' + 1)(b_t · b_t'), and the size of the terms Σ_t √(‖a_t‖² + 1) ‖b_t‖. Only for float32 gradients,
whose squares fit in float64; with scales, and one by one, the general blocks stand for it (`blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from apportion.linalg import device_copies
from apportion.training.blocks import OnDevice, Product, Stored, cheaper_formed, rounding_of
from apportion.training.groups import Groups


class JoinedRows:
    """The rows of a linear layer with a bias, for the gradients of both.

    Args:
        outgoing: b, of shape [rows, ..., rows of the weight].
        incoming: a, of shape [rows, ..., columns of the weight].
        groups: which rows each unit has.
    """

    def __init__(self, outgoing: Tensor, incoming: Tensor, groups: Groups) -> None:
        self.device = outgoing.device
        self._rounding = rounding_of(outgoing)
        self._b, self._a = (
            groups.side_by_side(each.reshape(len(each), -1, each.shape[-1])).double() for each in (outgoing, incoming)
        )
        self._scaled: tuple[Any, Tensor] | None = None

    @cached_property
    def squares(self) -> Tensor:
        """The squared lengths of each unit's gradient, with the part for rounding."""
        a, b = self._a, self._b
        if cheaper_formed(a.shape[1], a.shape[2], b.shape[2]):
            with_ones = torch.nn.functional.pad(a, (0, 1), value=1.0)
            lengths, others = (torch.linalg.vector_norm(each, dim=2) for each in (with_ones, b))
            plain = torch.linalg.vector_norm(torch.bmm(b.mT, with_ones), dim=(1, 2)).square()
            sizes = lengths.mul_(others).sum(1)
        else:
            inner = torch.bmm(b, b.mT)
            products = torch.addcmul(inner, torch.bmm(a, a.mT), inner)
            plain, sizes = products.sum((1, 2)), products.diagonal(dim1=1, dim2=2).sqrt().sum(1)
        return torch.addcmul(plain, sizes, sizes, value=self._rounding**2)

    def scaled(self, factors: Any) -> Tensor:
        """Return [rows of the weight, positions of all units] of b, each unit times its factor; 0 for a factor of 0."""
        if self._scaled is None or self._scaled[0] is not factors:
            wide = self._b * factors.to(self.device).double()[:, None, None]
            self._scaled = factors, wide.nan_to_num_().flatten(0, 1).T
        return self._scaled[1]

    def add_to_weight(self, total: Tensor, factors: Any) -> None:
        """Add the gradients of the weight, each times its factor."""
        total.addmm_(self.scaled(factors), torch.nan_to_num(self._a).flatten(0, 1))

    def add_to_bias(self, total: Tensor, factors: Any) -> None:
        """Add the gradients of the bias, each times its factor."""
        total += self.scaled(factors).sum(1)


class Joined(OnDevice):
    """The gradient of a linear layer's weight, or of its bias, which is counted with the weight where both are.

    Args:
        rows: of the layer.
        bias: whether it is of the bias.
        general: makes the block that this one stands for.
    """

    def __init__(self, rows: JoinedRows, general: Callable[[], Product | Stored], *, bias: bool) -> None:
        self._rows = rows
        self._made = general
        self._bias = bias

    @property
    def device(self) -> torch.device:
        """Of the rows."""
        return self._rows.device

    @cached_property
    def general(self) -> Product | Stored:
        """The same block alone."""
        return self._made()

    def joint_squares(self) -> Tensor | None:
        """Return the squared lengths of weight and bias together; None for the bias, which is counted there."""
        return None if self._bias else self._rows.squares

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient alone, divided by scales if given."""
        return self.general.squared_norms(scales)

    def add_to(self, total: Tensor, factors: Any) -> None:
        """Add the sum over units, each times its factor."""
        if total.device != self.device:
            self.general.add_to(total, factors)
        elif self._bias:
            self._rows.add_to_bias(total, factors)
        else:
            self._rows.add_to_weight(total, factors)

    def each(self) -> Tensor:
        """Return one gradient for each unit."""
        return self.general.each()

    def keeping(self, kept: Any) -> Product | Stored:
        """Return the block with zeros for units that are not kept."""
        return self.general.keeping(kept)


def joins(outgoing: Tensor, incoming: Tensor) -> bool:
    """Whether these factors of a layer are on a GPU, and their squares fit in float64."""
    narrow = outgoing.dtype == torch.float32 and incoming.dtype == torch.float32
    return narrow and device_copies.asynchronous(outgoing.device) and incoming.device == outgoing.device
