"""Padding of passes, so that the rounding of a row's numbers does not depend on other rows.

Matrix products treat the last few rows of a batch differently from the rest, and some treat every second or fourth row
differently. In real numbers this makes no difference. But at a kink of a loss, the last bit decides on which side a row
falls, so adding a unit before or after others could move them across (docs/proofs/optimizers.md). The number of rows is
therefore always a multiple of 16, and if made-up rows show that the position of a row matters, every unit starts at an
equivalent position. The padding consists of copies of a row of the same unit, whose gradients are dropped before
anything is added or counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apportion.training.layers import LayerFactors
from apportion.training.module_state import unchanged
from apportion.training.probing import equal_rows

_FULL = 16  # the number of rows in a pass is a multiple of this
_LOOKED_AT = 32  # number of equal rows that show whether positions matter


@dataclass(frozen=True, eq=False, repr=False)
class PaddedPass:
    """A pass over some units, with its padding.

    Attributes:
        rows: the row of the batch at each position; None for the rows as they are.
        offsets: offsets of units, including padding.
        real: for each of these, whether it is a real unit; None if all are.
    """

    rows: Tensor | None
    offsets: Tensor
    real: Tensor | None

    def of(self, values: Tensor) -> Tensor:
        """Return what the rows have, with the padding."""
        return values if self.rows is None else values[self.rows.to(values.device)]

    def at(self, device: torch.device) -> PaddedPass:
        """Return the same with what the rows' device is asked for on that device."""
        if device.type == "cpu" or self.rows is None:
            return self
        real = None if self.real is None else self.real.to(device)
        return PaddedPass(self.rows.to(device), self.offsets, real)


def padded(offsets: Tensor, apart: int, full: int = _FULL) -> PaddedPass:
    """Copy each unit's last row behind it until the next one starts at a multiple of `apart`; pad to one of `full`.

    With `apart` 0 nothing is padded: for a unit that is alone in a pass.
    """
    if not apart or (apart == 1 and int(offsets[-1]) % full == 0):
        return PaddedPass(None, offsets, None)
    sizes = offsets.diff()
    longest = max(int(sizes.max()), 1)
    behind = torch.where(sizes > 0, -sizes % apart, 0)
    missing = int(-(sizes + behind).sum() % full)
    last = int((sizes > 0).nonzero()[-1]) if bool((sizes > 0).any()) else -1
    if missing and last >= 0:
        behind[last] += missing
    units = torch.repeat_interleave(torch.arange(len(sizes)), sizes + behind)
    starts = torch.cumsum(sizes + behind, 0) - sizes - behind
    within = torch.arange(len(units)) - starts[units]
    rows = offsets[:-1][units] + torch.minimum(within, sizes[units] - 1)
    pieces = -(-behind // longest)  # no padding is longer than the longest unit
    counts = 1 + pieces
    owner = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    place = torch.arange(len(owner)) - (torch.cumsum(counts, 0) - counts)[owner]
    real = place == 0
    left = (behind[owner] - (place - 1) * longest).clamp(0, longest)
    lengths = torch.where(real, sizes[owner], left)
    return PaddedPass(rows, torch.cat([offsets.new_zeros(1), torch.cumsum(lengths, 0)]), real)


def row_alignment(way: Any, module: nn.Module, loss: Any, inputs: Tensor, targets: Tensor) -> int:
    """Return the least distance of positions at which equal made-up rows give equal numbers, at most 16."""
    apart = 1
    with equal_rows(module, loss, inputs, targets, _LOOKED_AT) as batches:
        for x, t, watched in batches:
            if not isinstance(way, LayerFactors):
                with unchanged(module):
                    watched = [block.each() for block in way.blocks(x, t, torch.arange(_LOOKED_AT + 1))]
            seen = [values.detach().nan_to_num() for values in watched if values.dim() and len(values) == _LOOKED_AT]
            while apart < _FULL and not all(_alike(values, apart) for values in seen):
                apart *= 2
    return apart


def _alike(values: Tensor, distance: int) -> bool:
    return bool(torch.equal(values[distance:], values[:-distance]))
