"""Gradients of linear maps by the compiled kernel: lengths and sums straight from float32 rows.

The same as `Product` and `Stored` in `blocks`, with the same sizes added to lengths, in one pass over the rows and
without copies in float64. Scales, gradients that are not finite and everything else go to those.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from apportion.linalg.unit_products import UnitProducts, available
from apportion.training.blocks import OnDevice, Product, Stored, rounding_of
from apportion.training.groups import Groups

_LONGEST = 16  # unit of which products between positions are worth it where a gradient is a vector


class RowProducts(OnDevice):
    """The gradient of a weight matrix, or of a bias, as rows of its factors.

    Args:
        outgoing: b, of shape [rows, positions, rows of the weight].
        incoming: a, of shape [rows, positions, columns of the weight]; None for a bias.
        groups: which rows each unit has.
        general: makes the block that this one stands for.
    """

    def __init__(
        self, outgoing: Tensor, incoming: Tensor | None, groups: Groups, general: Callable[[], Product | Stored]
    ) -> None:
        self._outgoing = outgoing.detach().contiguous().flatten(0, 1)
        self._incoming = None if incoming is None else incoming.detach().contiguous().flatten(0, 1)
        self._offsets = groups.offsets if outgoing.shape[1] == 1 else groups.offsets * outgoing.shape[1]
        self._made = general

    @property
    def device(self) -> torch.device:
        """Of the factors."""
        return self._outgoing.device

    @cached_property
    def general(self) -> Product | Stored:
        """The same block by operations of torch."""
        return self._made()

    @cached_property
    def _products(self) -> UnitProducts:
        incoming = None if self._incoming is None else self._incoming.numpy()
        return UnitProducts(self._offsets.numpy(), self._outgoing.numpy(), incoming)

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient, divided by scales if given."""
        if scales is not None:
            return self.general.squared_norms(scales)
        return torch.from_numpy(self._products.squares(rounding_of(self._outgoing)))

    def add_to(self, total: Tensor, factors: Any) -> None:
        """Add the sum over units, each times its factor."""
        if total.device.type != "cpu" or "general" in self.__dict__:
            self.general.add_to(total, factors)
        else:
            columns = 1 if self._incoming is None else self._incoming.shape[1]
            self._products.add_to(total.view(-1, columns).numpy(), factors.cpu().numpy())

    def each(self) -> Tensor:
        """Return one gradient for each unit."""
        return self.general.each()

    def keeping(self, kept: Any) -> Product | Stored:
        """Return the block with zeros for units that are not kept."""
        return self.general.keeping(kept)


def by_rows(outgoing: Tensor, incoming: Tensor | None, groups: Groups) -> bool:
    """Whether the kernel takes these factors, and products between positions cost less than gradients of units."""
    if not available() or outgoing.dtype != torch.float32 or outgoing.device.type != "cpu":
        return False
    longest = int(groups.most * outgoing.shape[1])
    if incoming is None:
        return longest <= _LONGEST
    rows, columns = outgoing.shape[2], incoming.shape[2]
    if incoming.dtype != torch.float32:
        return False
    return longest == 1 or bool(3 * longest * (columns + rows) <= 2 * columns * rows)
