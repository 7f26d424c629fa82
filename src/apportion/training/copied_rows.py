"""Copies of rows for passes: one for all steps, where everybody is in one pass and nothing in it writes to its inputs.

A copy that nothing wrote to is as good as a new one. It has the same numbers, and its rows lie in memory as those of a
new one do: behind one another, from the start of a piece of their own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from apportion.training.held_passes import HeldPasses
from apportion.training.module_state import version_of
from apportion.training.padding import PaddedPass
from apportion.training.units import Units


class CopiedRows:
    """Copies of rows of units.

    Args:
        units: whose rows.
    """

    def __init__(self, units: Units) -> None:
        self._units = units
        self._kept: tuple[HeldPasses, Tensor, int] | None = None

    def of(self, rows: Any, filled: PaddedPass, alone: HeldPasses | None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a pass.

        Args:
            rows: which.
            filled: the padding.
            alone: the passes of all units, if this is the only one and nothing in it writes to its inputs; else None,
                for a new copy.
        """
        inputs = self._known(alone)
        if inputs is None:
            inputs = filled.of(self._units.inputs_of(rows))
        self._kept = None if alone is None else (alone, inputs, version_of(inputs))
        return inputs, filled.of(self._units.targets_of(rows))

    def _known(self, alone: HeldPasses | None) -> Tensor | None:
        """Return the copy that was made for these passes, unless it was written to."""
        if self._kept is None or self._kept[0] is not alone:
            return None
        _, inputs, version = self._kept
        return inputs if version_of(inputs) == version else None
