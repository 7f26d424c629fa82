"""Gradients of convolutions, formed row by row and added up by unit.

A convolution has many positions in a row, so forming a row's gradient costs less than products between positions. The
number of positions is the same in every row. So a row's gradient is one matrix product of its own numbers, in the
precision of the pass, as in `FunctionalGradients`; sums over a unit's rows, and all that follows, are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from apportion.training.blocks import OnDevice, Stored, lengths, rounding_of
from apportion.training.groups import Groups

_ROWS = 32  # at a time on a processor: what is formed on the way stays in its cache


@dataclass(frozen=True, repr=False)
class ByRow(OnDevice):
    """The gradient of a weight as its two factors, by row and position.

    Attributes:
        outgoing: b, of shape [rows, rows of the weight, positions].
        inputs: of the layer.
        seen: returns a, of shape [rows, positions, kernel x channels], of some inputs.
        sizes: for each row, at least Σ_t ‖a_t‖ ‖b_t‖ over its positions.
        groups: which rows each unit has.
        shape: of the parameter, channels before the kernel.
    """

    outgoing: Tensor
    inputs: Tensor
    seen: Callable[[Tensor], Tensor]
    sizes: Tensor
    groups: Groups
    shape: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        """Of the factors."""
        return self.outgoing.device

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient, divided by scales if given."""
        if scales is not None:
            return self._with_sizes.squared_norms(scales)
        sizes = self.groups.added(self.sizes)
        narrow = self.outgoing.dtype != torch.float64
        return lengths(self._added, narrow).square() + (rounding_of(self.outgoing) * sizes).square()

    def add_to(self, total: Tensor, factors: Any) -> None:
        """Add the sum over units, each times its factor."""
        own = self.zeros(self._added.shape[1])
        Stored(self._added).add_to(own, factors)
        total += self._in_order(own[None])[0].to(total.device)

    def each(self) -> Tensor:
        """Return one gradient for each unit."""
        return self._in_order(self._added).to(self.outgoing.dtype)

    def keeping(self, kept: Any) -> Stored:
        """Return the block with zeros for units that are not kept."""
        return Stored(self._in_order(self._added)).keeping(kept)

    def _in_order(self, gradients: Tensor) -> Tensor:
        """Return gradients in the shape of the parameter."""
        out, channels, *kernel = self.shape
        return gradients.reshape(-1, out, math.prod(kernel), channels).mT.reshape(-1, *self.shape)

    @cached_property
    def _added(self) -> Tensor:
        """Return the gradients of all units: sums in float64, or as they are where each unit has one row."""
        units = self.groups.units
        if self.groups.single and units:
            return torch.cat([formed for _, formed in self._formed()])
        if self.leaves_out and self.groups.even and units:  # all rows at a time, and nothing to look up
            formed = next(self._formed())[1]
            return formed.reshape(units, self.groups.most, -1).sum(1, dtype=torch.float64)
        out = torch.zeros((units, math.prod(self.shape)), dtype=torch.float64, device=self.device)
        whose = self.groups.whose_on(self.device)
        for some, formed in self._formed():
            out.index_add_(0, whose[some], formed.double())
        return out

    def _formed(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield some rows and their gradients."""
        in_cache = self.device.type == "cpu" and not self.leaves_out
        at_once = _ROWS if in_cache else max(1, len(self.outgoing))
        for first in range(0, len(self.outgoing), at_once):
            some = slice(first, first + at_once)
            yield some, torch.bmm(self.outgoing[some], self.seen(self.inputs[some])).flatten(1)

    @cached_property
    def _with_sizes(self) -> Stored:
        """Return the gradients that are added, with the sizes of their terms number by number."""
        seen = self.seen(self.inputs)
        in_order = seen.reshape(*seen.shape[:2], -1, self.shape[1]).mT.flatten(2)
        b, a = (self.groups.side_by_side(x).double().abs() for x in (self.outgoing.mT, in_order))
        gradients, sizes = self._in_order(self._added).flatten(1), torch.bmm(b.mT, a).flatten(1)
        return Stored(gradients, sizes, rounding_of(self.outgoing), self.outgoing.dtype != torch.float64)


def cheaper_by_row(positions: int, columns: int, rows: int) -> bool:
    """Whether forming a row's gradient costs less than products between its positions."""
    return 3 * positions * (columns + rows) > 2 * columns * rows
