"""Embedding tables of long-tailed vocabularies: train only the rows that enough units look up.

Noise on every row of a table of 10^5 rows drowns what a few units say about a few of them, and costs time. So the rows
are counted once, with noise, before the first step. Rows whose count is too small stay as they are: their gradients are
set to 0 before clipping, and they get no noise. This is the filter of Ghazi et al., "Sparsity-Preserving Differentially
Private Training of Large Embedding Models" (2023), in its form with one release for all steps (DP-FEST).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.blocks import Lookup
from apportion.training.known_noise import AddedNoise
from apportion.training.layers import LayerFactors


@dataclass(frozen=True)
class FrequentRows:
    """A rule for which rows of embedding tables are trained.

    Attributes:
        share: share of the budget's μ² for the counts.
        least: the least count of a trained row, in standard deviations of the noise.
    """

    share: float = 0.05
    least: float = 3.0

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


class TableRows:
    """The trained rows of a module's embedding tables.

    Args:
        rule: which rows are trained.
        module: the module.
    """

    def __init__(self, rule: FrequentRows, module: nn.Module) -> None:
        self.rule = rule
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

    def looked_up(self, blocks: Sequence[Any], real: Tensor | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the unit and the row, of all tables in order, of every look-up."""
        units, rows = [], []
        for k in self._tables:
            held = blocks[k].rows.cpu() if real is None else blocks[k].rows.cpu()[real.cpu()]
            numbers = torch.arange(len(held))[:, None].expand(held.shape)
            units.append(numbers.reshape(-1).numpy())
            rows.append(held.where(held < 0, held + self._firsts[k]).reshape(-1).numpy())
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
            result[k] = Lookup(blocks[k].outgoing, at[blocks[k].rows], self.shapes[k])  # row -1 is the last, and none
        return result

    def spread_out(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of all parameters, with those of trained rows at their places; all others are 0."""
        result = list(parts)
        for k, places in self._places.items():
            result[k] = torch.zeros(self._parameters[k].shape, dtype=torch.float64)
            result[k][places.cpu()] = parts[k]
        return result

    def only_there(self, noise: AddedNoise) -> AddedNoise:
        """Return the noise, with none on rows that are not trained."""
        return replace(noise, scales={self._parameters[k]: scales for k, scales in self._scales.items()})
