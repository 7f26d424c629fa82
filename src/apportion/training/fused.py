"""Gradients of linear layers by the compiled kernel: lengths and sums straight from float32 rows.

The same as `Product` and `Stored` in `blocks`, with the same sizes added to lengths, in one pass over the rows and
without copies in float64. A layer's weight and bias share one pass. Scales, gradients that are not finite and
everything else go to those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.linalg import device_copies
from apportion.linalg.unit_products import UnitProducts, available
from apportion.training.blocks import OnDevice, Product, Stored, rounding_of
from apportion.training.groups import Groups

_LONGEST = 16  # unit of which products between positions are worth it where a gradient is a vector

Floats = NDArray[np.float64]


class LayerRows:
    """The rows of a linear layer, for the gradients of its weight and of its bias.

    Args:
        outgoing: b, of shape [rows, ..., rows of the weight].
        incoming: a, of shape [rows, ..., columns of the weight]; None if only the bias is trained.
        groups: which rows each unit has.
    """

    def __init__(self, outgoing: Tensor, incoming: Tensor | None, groups: Groups) -> None:
        bounds = groups.bounds(1 if outgoing.dim() == 2 else math.prod(outgoing.shape[1:-1]))
        self._rows = bounds, _by_position(outgoing), None if incoming is None else _by_position(incoming)
        self._products = UnitProducts(*self._rows)
        self._rounding = rounding_of(outgoing)
        self._added: tuple[Tensor, Floats] | None = None

    @cached_property
    def squares(self) -> tuple[Floats, Floats]:
        """The squared lengths of each unit's gradients, of the weight and of the bias."""
        return self._products.squares_of_both(self._rounding)

    def add_clipped(self, total: Tensor, inner: float, *, bias: bool) -> bool:
        """Add the gradients of the weight, and of the bias behind them, clipped together; False if one is not finite.

        Args:
            total: float64, flat.
            inner: the length to which they are clipped.
            bias: whether there is a bias.
        """
        b, a = self._rows[1:]
        assert a is not None
        rows, columns = b.shape[1], a.shape[1]
        flat: Floats = total.numpy()
        ones = flat[rows * columns :] if bias else None
        of_weight = flat[: rows * columns].reshape(rows, columns)
        return self._products.add_clipped(of_weight, inner, self._rounding, ones)

    def add_to_weight(self, total: Tensor, factors: Tensor) -> None:
        """Add the gradients of the weight, each times its factor; those of the bias are added up beside them."""
        _, b, a = self._rows
        ones = np.zeros(b.shape[1])
        self._products.add_to(total.numpy().reshape(-1, 1 if a is None else a.shape[1]), factors.numpy(), ones)
        self._added = factors, ones

    def add_to_bias(self, total: Tensor, factors: Tensor) -> None:
        """Add the gradients of the bias, each times its factor."""
        if self._added is None or self._added[0] is not factors:
            alone, ones = UnitProducts(*self._rows[:2], None), np.zeros((len(total), 1))
            alone.add_to(ones, factors.numpy())
            self._added = factors, ones[:, 0]
        total += torch.from_numpy(self._added[1])


class RowProducts(OnDevice):
    """The gradient of a linear layer's weight, or of its bias, as rows of its factors.

    Args:
        rows: of the layer.
        bias: whether it is of the bias.
        general: makes the block that this one stands for.
    """

    device = torch.device("cpu")

    def __init__(self, rows: LayerRows, general: Callable[[], Product | Stored], *, bias: bool) -> None:
        self._rows = rows
        self._made = general
        self._bias = bias

    @cached_property
    def general(self) -> Product | Stored:
        """The same block by operations of torch."""
        return self._made()

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient, divided by scales if given."""
        if scales is not None:
            return self.general.squared_norms(scales)
        return torch.from_numpy(self._rows.squares[self._bias])

    def add_to(self, total: Tensor, factors: Any) -> None:
        """Add the sum over units, each times its factor."""
        if total.device.type != "cpu" or "general" in self.__dict__:
            self.general.add_to(total, factors)
            return
        add = self._rows.add_to_bias if self._bias else self._rows.add_to_weight
        add(total, factors.cpu())

    def of_one_layer(self, blocks: Sequence[Any]) -> bool:
        """Whether these blocks, of all parameters, are a weight and perhaps its bias, with this one first."""
        one = all(isinstance(block, RowProducts) and block._rows is self._rows for block in blocks)
        return one and not self._bias and len(blocks) <= 2

    def add_all_clipped(self, total: Tensor, inner: float, *, bias: bool) -> bool:
        """Add the gradients of the weight, and of its bias behind them, clipped, in one pass over the rows.

        Args:
            total: float64, flat, of both, on the processor.
            inner: the length to which units are clipped.
            bias: whether the bias is trained.

        Returns:
            Whether they were added: not if one is not finite.
        """
        return self._rows.add_clipped(total, inner, bias=bias)

    def each(self) -> Tensor:
        """Return one gradient for each unit."""
        return self.general.each()

    def keeping(self, kept: Any) -> Product | Stored:
        """Return the block with zeros for units that are not kept."""
        return self.general.keeping(kept)


def by_rows(outgoing: Tensor, incoming: Tensor | None, groups: Groups) -> bool:
    """Whether the kernel takes these factors, and products between positions cost less than gradients of units."""
    on_processor = outgoing.device.type == "cpu" and not device_copies.asynchronous(outgoing.device)
    if outgoing.dtype != torch.float32 or not on_processor or not available():
        return False
    if incoming is None:
        return few_positions(outgoing, groups)
    longest, rows, columns = _longest(outgoing, groups), outgoing.shape[-1], incoming.shape[-1]
    if incoming.dtype != torch.float32:
        return False
    return longest == 1 or 3 * longest * (columns + rows) <= 2 * columns * rows


def few_positions(outgoing: Tensor, groups: Groups) -> bool:
    """Whether products between positions cost less than gradients of units, where these are vectors."""
    return _longest(outgoing, groups) <= _LONGEST


def _longest(outgoing: Tensor, groups: Groups) -> int:
    """Return the largest number of positions of a unit."""
    return groups.most if outgoing.dim() == 2 else groups.most * math.prod(outgoing.shape[1:-1])


def _by_position(rows: Tensor) -> NDArray[np.float32]:
    """Return rows and positions along one axis."""
    held: NDArray[np.float32] = np.ascontiguousarray(rows.numpy())
    return held if held.ndim == 2 else held.reshape(-1, held.shape[-1])
