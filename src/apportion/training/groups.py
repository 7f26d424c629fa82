"""Rows of a pass by unit: sums over each unit's rows, and a unit's rows side by side."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Groups:
    """Which rows of a pass each unit has.

    Args:
        offsets: unit k has the rows from offsets[k] to offsets[k + 1].

    Attributes:
        offsets: as given.
        units: the number of units.
        sizes: the number of rows of each.
        most: the largest of these.
    """

    def __init__(self, offsets: Tensor) -> None:
        self.offsets = offsets
        self.units = len(offsets) - 1
        self.sizes = offsets.diff()
        self.most = int(self.sizes.max()) if self.units else 0
        self._whose_on: dict[torch.device, Tensor] = {}
        self._places: dict[torch.device, Tensor] = {}

    @property
    def single(self) -> bool:
        """Whether every unit has one row."""
        return self.most == 1 and self.even

    @cached_property
    def whose(self) -> Tensor:
        """The unit of each row."""
        return torch.repeat_interleave(torch.arange(self.units), self.sizes)

    def whose_on(self, device: torch.device) -> Tensor:
        """Return the unit of each row, on a device."""
        if device not in self._whose_on:
            self._whose_on[device] = self.whose.to(device)
        return self._whose_on[device]

    def _places_on(self, device: torch.device) -> Tensor:
        """Return the place of each row, where every unit has room for the most rows, on a device."""
        if device not in self._places:
            within = torch.arange(len(self.whose)) - self.offsets[:-1][self.whose]
            self._places[device] = (self.whose * self.most + within).to(device)
        return self._places[device]

    @cached_property
    def even(self) -> bool:
        """Whether all units have as many rows."""
        return self.most * self.units == int(self.offsets[-1])

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        bounds: NDArray[np.int64] = self.offsets.numpy()
        return bounds

    def bounds(self, positions: int) -> NDArray[np.int64]:
        """Return the offsets of units among the positions of all rows, if every row has so many."""
        return self._bounds if positions == 1 else self._bounds * positions

    def added(self, values: Tensor) -> Tensor:
        """Return sums over the rows of each unit."""
        if self.even:  # all units have as many rows
            return values.reshape(self.units, self.most, *values.shape[1:]).sum(1) if self.most != 1 else values
        out = torch.zeros((self.units, *values.shape[1:]), dtype=values.dtype, device=values.device)
        return out.index_add_(0, self.whose_on(values.device), values)

    def side_by_side(self, values: Tensor) -> Tensor:
        """Return [rows, positions, width] as [units, rows of the largest x positions, width], padded with zeros."""
        _, positions, width = values.shape
        if self.even:  # nothing to pad, and nothing to copy
            return values.reshape(self.units, self.most * positions, width)
        out = values.new_zeros((self.units * self.most, positions, width))
        out[self._places_on(values.device)] = values
        return out.reshape(self.units, self.most * positions, width)
