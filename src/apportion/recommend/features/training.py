"""Training an encoder on a quadratic of its outputs. Sees released arrays and public features only; needs torch.

Mini-batches are over items: one forward and one backward pass per item and epoch (Algorithm 5). Tables of embeddings
with sparse gradients keep them: a step touches the rows of the features that occur in its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apportion.data.sparse_rows import SparseRows
from apportion.errors import InputError
from apportion.recommend.features.encoders import FeatureBatch
from apportion.recommend.features.statistics import Surrogate

Floats = NDArray[np.float64]
Tensor = Any
_AT_A_TIME = 1 << 16  # items encoded at once without a gradient


class CommonEncoder(nn.Module):  # type: ignore[misc,unused-ignore]
    """One vector for all items, whatever their features: what encoders are compared with when items have their own."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(dimension))

    def forward(self, batch: FeatureBatch) -> Tensor:
        """The same row for every item."""
        return self.mean.expand(len(batch), -1)


@dataclass(frozen=True)
class Training:
    """How an encoder is trained on given statistics; all of it public.

    Attributes:
        epochs: passes over all items.
        batch_size: items a step; None for all of them.
        rate: learning rate of Adam.
        decay: weight decay of dense parameters.
        seed: of the order of items.
    """

    epochs: int = 10
    batch_size: int | None = 1024
    rate: float = 0.03
    decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or (self.batch_size is not None and self.batch_size < 1):
            raise InputError(f"Expected epochs and a batch size of at least 1, got {self.epochs}, {self.batch_size}.")
        if not self.rate > 0:
            raise InputError(f"Expected a learning rate > 0, got {self.rate}.")

    def steps(self, n_items: int) -> int:
        """Number of steps in all epochs."""
        return self.epochs * -(-n_items // (self.batch_size or n_items))


class EncoderTrainer:
    """An encoder, the features of all items, and the optimiser's state between calls of `descend`."""

    def __init__(self, encoder: nn.Module, rows: SparseRows, training: Training) -> None:
        self._encoder = encoder
        self._batch = FeatureBatch.of(rows)
        self._training = training
        self._generator = torch.Generator().manual_seed(training.seed)
        self._optimisers = optimisers(encoder, training.rate, training.decay)
        self._order = self._orders()

    def descend(self, surrogate: Surrogate, steps: int) -> None:
        """Take this many steps on the quadratic, on the next batches of items."""
        scale = max(float(np.einsum("mii->", surrogate.curvature)) / surrogate.slope.size, 1e-12)
        for _ in range(steps):
            items = next(self._order)
            chosen = items.numpy()
            curvature = torch.as_tensor(surrogate.curvature[chosen] / scale, dtype=torch.float32)
            slope = torch.as_tensor(surrogate.slope[chosen] / scale, dtype=torch.float32)
            vectors = self._encoder(self._batch.take(items))
            bent = torch.einsum("mij,mj->mi", curvature, vectors)
            loss = ((0.5 * bent - slope) * vectors).sum() / len(items)
            for optimiser in self._optimisers:
                optimiser.zero_grad()
            loss.backward()
            for optimiser in self._optimisers:
                optimiser.step()

    def encoded(self) -> Floats:
        """The encoder's vectors of all items."""
        return encode(self._encoder, self._batch)

    def _orders(self) -> Iterator[Tensor]:
        n_items = len(self._batch)
        while True:
            mixed = torch.randperm(n_items, generator=self._generator)
            yield from torch.split(mixed, self._training.batch_size or n_items)


def encode(encoder: nn.Module, batch: FeatureBatch) -> Floats:
    """The encoder's vectors of a batch, without gradients, some items at a time."""
    with torch.no_grad():
        parts = torch.split(torch.arange(len(batch)), _AT_A_TIME)
        found = torch.cat([encoder(batch.take(part)) for part in parts])
    return np.asarray(found.double().cpu().numpy())


def optimisers(encoder: nn.Module, rate: float, decay: float) -> list[Any]:
    """Adam for dense parameters, its sparse form for embeddings whose gradients are sparse."""
    sparse = {
        id(module.weight)
        for module in encoder.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    }
    thin = [parameter for parameter in encoder.parameters() if id(parameter) in sparse]
    dense = [parameter for parameter in encoder.parameters() if id(parameter) not in sparse]
    made: list[Any] = [torch.optim.SparseAdam(thin, lr=rate)] if thin else []
    return [*made, torch.optim.Adam(dense, lr=rate, weight_decay=decay)] if dense else made
