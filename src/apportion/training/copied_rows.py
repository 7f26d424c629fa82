"""Copies of rows for passes: into the same memory at every step, where everybody is in one pass that only reads.

New memory of many rows takes longer than to copy into it. What lies there is copied anew at every step, so whatever was
written to the rows since, or to the copy, is seen or gone as with a new one. And its rows lie in memory as those of a
new one do: behind one another, from the start of a piece of their own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from apportion.training.held_passes import HeldPasses
from apportion.training.padding import PaddedPass
from apportion.training.units import Units


class CopiedRows:
    """Copies of rows of units.

    Args:
        units: whose rows.
    """

    def __init__(self, units: Units) -> None:
        self._units = units
        self._kept: tuple[HeldPasses, Tensor] | None = None

    def of(self, rows: Any, filled: PaddedPass, alone: HeldPasses | None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a pass.

        Args:
            rows: which.
            filled: the padding.
            alone: the passes of all units, if this is the only one and nothing in it writes to its inputs; else None,
                for new memory.
        """
        kept = self._memory_of(alone)
        if kept is None:
            inputs = filled.of(self._units.inputs_of(rows))
        else:
            inputs = self._units.inputs_into(kept, rows, filled.rows)
        fixed = inputs.requires_grad or inputs.is_inference()  # torch refuses to write there, or keeps a history
        self._kept = None if alone is None or fixed else (alone, inputs)
        return inputs, filled.of(self._units.targets_of(rows))

    def _memory_of(self, alone: HeldPasses | None) -> Tensor | None:
        """Return the copy that was made for these passes."""
        return self._kept[1] if self._kept is not None and self._kept[0] is alone else None
