"""What is the same at every step of full batches: which rows each pass takes, and what follows from these alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.privacy.clipped_gradients import GradientTotal
from apportion.training.blocks import Found, different_rows
from apportion.training.layers import LayerFactors, Passed
from apportion.training.padding import PaddedPass
from apportion.training.replays import Replays


@dataclass(eq=False, repr=False)
class HeldPasses:
    """The passes of all units of a process.

    Attributes:
        units: all of them.
        key: what the passes depend on beside these.
        pieces: for each pass, which rows it takes, and its padding.
        replays: of a step's work on a GPU.
        found: by layer, the different rows of a large table that are looked up; private, like the rows of data.
    """

    units: NDArray[np.int64]
    key: Hashable
    pieces: list[tuple[Any, PaddedPass]]
    replays: Replays = field(default_factory=Replays)
    found: dict[nn.Module, Found] = field(default_factory=dict)

    def sum_of(
        self,
        make: Callable[[], GradientTotal],
        way: LayerFactors,
        passed: Sequence[Passed],
        inputs: Tensor,
        offsets: Tensor,
        real: Tensor | None,
    ) -> GradientTotal:
        """Return the sum of the clipped gradients of the only pass, on a GPU; replayed from the third step on.

        Args:
            make: makes a sum without any unit.
            way: computes the gradients.
            passed: of this step, as `way` returned it for these inputs.
            inputs: of the pass.
            offsets: of the units, the same object at every step.
            real: which units are real; None for all.
        """
        rows = way.few_looked_up(passed, inputs, offsets)
        found = None if rows is None else self._different(rows)
        layers = [layer for layer, *_ in passed]

        def work(values: Sequence[Tensor]) -> GradientTotal:
            total = make()
            total.add(way.blocks_of(list(zip(layers, values[::2], values[1::2], strict=True)), offsets, found), real)
            return total

        values = [value for _, a, b in passed for value in (a, b)]
        if found is None:  # what is looked up may be other rows at every step, which the host has to know
            return work(values)
        return self.replays((make().clip_norm, *map(id, layers)), values, work)

    def _different(self, looked_up: Mapping[nn.Module, Tensor]) -> dict[nn.Module, Found]:
        """Return what different rows these are; they are the same at every step."""
        for layer, rows in looked_up.items():
            if layer not in self.found:
                self.found[layer] = different_rows(rows.clamp_min(0).flatten().clone())
        return self.found
