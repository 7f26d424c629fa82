"""Embedding tables of long-tailed vocabularies: train only the rows that enough units look up.

Noise on every row of a table of 10^5 rows drowns what a few units say about a few of them, and costs time. So the units
that look up a row are counted, with noise: once before the first step, or at every step among the units that take part
in it. Rows whose count is too small stay as they are: their gradients are set to 0 before clipping, and they get no
noise. These are DP-FEST and DP-AdaFEST of Ghazi et al., "Sparsity-Preserving Differentially Private Training of Large
Embedding Models" (2023), for units of several rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.blocks import Lookup, Stored
from apportion.training.groups import Groups
from apportion.training.known_noise import AddedNoise
from apportion.training.layers import LayerFactors
from apportion.training.module_state import unchanged


@dataclass(frozen=True)
class RowRule:
    """A rule for which rows of embedding tables are trained.

    Attributes:
        share: share of μ² for the counts.
        least: the least count of a trained row, in standard deviations of the noise.
    """

    every_step: ClassVar[bool]

    share: float
    least: float

    def __post_init__(self) -> None:
        if not (0 < self.share < 1 and self.least >= 0):
            raise InputError(
                f"Expected a share in (0, 1) and least of at least 0, got {self.share} and {self.least}.",
                argument="share",
            )

    def of(self, module: nn.Module, way: Any, scaling: Any | None) -> TableRows:
        """Return the rows of a module's tables before any is chosen."""
        if not isinstance(way, LayerFactors) or scaling is not None:
            raise InputError(
                "Expected tables only with layers of known kinds, used once, and without scaling.", argument="tables"
            )
        return TableRows(self, module)


@dataclass(frozen=True)
class FrequentRows(RowRule):
    """Train the rows that enough of all units look up, counted once before the first step (DP-FEST).

    Attributes:
        share: share of the budget's μ² for the counts.
        least: the least count of a trained row, in standard deviations of the noise.
    """

    every_step = False

    share: float = 0.05
    least: float = 3.0


@dataclass(frozen=True)
class TouchedRows(RowRule):
    """At every step, train the rows that enough of the units in it look up (DP-AdaFEST).

    Privacy: a step releases the counts and then the gradient of the chosen rows. Both share the step's μ².

    Attributes:
        share: share of every step's μ² for the counts.
        least: the least count of a trained row, in standard deviations of the noise.
    """

    every_step = True

    share: float = 0.1
    least: float = 3.0


class TableRows:
    """The trained rows of a module's embedding tables.

    Args:
        rule: which rows are trained.
        module: the module.
    """

    def __init__(self, rule: RowRule, module: nn.Module) -> None:
        self.rule = rule
        self._module = module
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        of_tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
        self._tables = [k for k, p in enumerate(self._parameters) if id(p) in of_tables]
        if not self._tables:
            raise InputError("Expected a module with a trained embedding table, got none.", argument="tables")
        sizes = [len(self._parameters[k]) for k in self._tables]
        self._firsts = dict(zip(self._tables, np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist(), strict=True))
        self.n_rows = int(sum(sizes))
        self.selected = torch.zeros(0, dtype=torch.int64)
        self._places: dict[int, Tensor] = {}
        self._scales: dict[int, Tensor] = {}

    def looked_up(
        self, inputs: Tensor, offsets: Tensor, real: Tensor | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the unit and the row, of all tables in order, of every look-up; from a pass without gradients."""
        groups, seen = Groups(offsets), _inputs_of_tables(self._module, inputs)
        counted = torch.ones(groups.units, dtype=torch.bool) if real is None else real.cpu()
        units, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for k in self._tables:
            for ids in seen.get(id(self._parameters[k]), []):
                by_row = ids.reshape(len(ids), -1).cpu() + self._firsts[k]
                held = by_row.where(counted[groups.whose][:, None], -1)
                units.append(groups.whose[:, None].expand(held.shape).reshape(-1).numpy())
                rows.append(held.reshape(-1).numpy())
        return np.concatenate(units), np.concatenate(rows)

    def enough(self, counts: NDArray[np.float64], stddev: float) -> Tensor:
        """Return the rows whose released counts are large enough."""
        return torch.as_tensor(np.flatnonzero(np.asarray(counts) >= self.rule.least * stddev))

    def select(self, rows: Tensor) -> None:
        """Train only these rows."""
        self.selected = rows
        for k in self._tables:
            first, size = self._firsts[k], len(self._parameters[k])
            own = rows[(rows >= first) & (rows < first + size)] - first
            self._places[k] = own.to(self._parameters[k].device)
            self._scales[k] = torch.zeros_like(self._parameters[k]).detach()
            self._scales[k][self._places[k]] = 1.0

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of what is released of each parameter."""
        whole = [tuple(p.shape) for p in self._parameters]
        return [(len(self._places[k]), *s[1:]) if k in self._places else s for k, s in enumerate(whole)]

    def without_others(self, blocks: Sequence[Any]) -> list[Any]:
        """Return gradients of the trained rows alone."""
        result = list(blocks)
        for k, places in self._places.items():
            at = torch.full((len(self._parameters[k]) + 1,), -1, dtype=torch.int64, device=places.device)
            at[places] = torch.arange(len(places), device=places.device)
            if isinstance(blocks[k], Lookup):  # otherwise the pass did not use the table
                result[k] = Lookup(blocks[k].outgoing, at[blocks[k].rows], self.shapes[k])  # row -1 is none, and last
            else:
                result[k] = Stored(blocks[k].each().new_zeros((len(blocks[k].each()), *self.shapes[k])))
        return result

    def spread_out(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of all parameters, with those of trained rows at their places; all others are 0."""
        result = list(parts)
        for k, places in self._places.items():
            result[k] = torch.zeros(self._parameters[k].shape, dtype=parts[k].dtype, device=places.device)
            result[k][places] = parts[k].to(places.device)
        return result

    def only_there(self, noise: AddedNoise) -> AddedNoise:
        """Return the noise, with none on rows that are not trained."""
        return replace(noise, scales={self._parameters[k]: scales for k, scales in self._scales.items()})


def _inputs_of_tables(module: nn.Module, inputs: Tensor) -> dict[int, list[Tensor]]:
    """Return what a pass looks up in each table, by the identity of its weight."""
    seen: dict[int, list[Tensor]] = {}

    def keep(table: nn.Module, given: Any, output: Tensor) -> None:
        seen.setdefault(id(table.weight), []).append(given[0])

    tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    hooks = [table.register_forward_hook(keep) for table in tables]
    try:
        with torch.no_grad(), unchanged(module):
            module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen
