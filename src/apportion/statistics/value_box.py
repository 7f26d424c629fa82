"""The public range of every column, and numbers scaled to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.estimators.private import check_value_range

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ValueBox:
    """The public range of every column."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, value_range: tuple[Any, Any], width: int) -> ValueBox:
        """The range as given, for so many columns; refuses one that is empty."""
        try:
            low, high = (np.broadcast_to(np.asarray(end, np.float64), (width,)) for end in value_range)
        except (TypeError, ValueError) as problem:
            raise InputError(
                f"Expected a value range (low, high) for {width} columns, got {value_range}.", argument="value_range"
            ) from problem
        for ends in zip(low.tolist(), high.tolist(), strict=True):
            check_value_range(ends)
        return cls(low, high)

    @property
    def width(self) -> Floats:
        """Of every range."""
        return np.asarray(self.high - self.low)

    def restored(self, scaled: Floats) -> Floats:
        """Numbers in [-1/2, 1/2] in the units of the data."""
        return np.asarray((self.low + self.high) / 2 + scaled * self.width)

    @property
    def words(self) -> str:
        """The ranges, for a statement: one where all are alike."""
        ranges = [f"{low:.12g} to {high:.12g}" for low, high in zip(self.low, self.high, strict=True)]
        return ranges[0] if len(set(ranges)) == 1 else ", ".join(ranges)
