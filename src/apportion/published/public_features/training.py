"""Training an encoder on a quadratic of its outputs. Sees released arrays and public features only; needs torch.

Mini-batches are over items: one forward and one backward pass per item and epoch (Algorithm 5). The gradients of
embedding tables stay sparse: a step touches the rows of the features that occur in its batch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apportion.data.sparse_rows import SparseRows
from apportion.errors import InputError
from apportion.published.public_features.encoders import FeatureBatch
from apportion.published.public_features.statistics import Surrogate

Floats = NDArray[np.float64]
Tensor = Any
_AT_A_TIME = 1 << 16  # items encoded at a time without a gradient


class CommonEncoder(nn.Module):  # type: ignore[misc,unused-ignore]
    """One vector for all items, whatever their features; a baseline for encoders when items have their own vectors."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(dimension))

    def forward(self, batch: FeatureBatch) -> Tensor:
        """Return the same row for every item."""
        return self.mean.expand(len(batch), -1)


@dataclass(frozen=True)
class Training:
    """How an encoder is trained on given statistics; all of it public.

    Attributes:
        epochs: passes over all items.
        batch_size: items per step; None for all items.
        rate: learning rate of Adam.
        decay: weight decay of dense parameters.
        seed: the seed of the order of items.
    """

    epochs: int = 10
    batch_size: int | None = 1024
    rate: float = 0.03
    decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or (self.batch_size is not None and self.batch_size < 1):
            raise InputError(
                f"Expected epochs and a batch size of at least 1, got {self.epochs}, {self.batch_size}.", argument=None
            )
        if not self.rate > 0:
            raise InputError(f"Expected a learning rate > 0, got {self.rate}.", argument="rate")

    def steps(self, n_items: int) -> int:
        """Return the number of steps in all epochs."""
        return self.epochs * -(-n_items // (self.batch_size or n_items))


class EncoderTrainer:
    """An encoder, the features of all items, and the optimiser's state between calls of `descend`."""

    def __init__(self, encoder: nn.Module, rows: SparseRows, training: Training) -> None:
        self._encoder = encoder
        self._batch = FeatureBatch.for_encoder(encoder, rows)
        self._training = training
        self._generator = torch.Generator().manual_seed(training.seed)
        self._optimisers: list[Any] = []
        self._order = self._orders()

    def descend(self, surrogate: Surrogate, steps: int) -> None:
        """Take this many steps on the quadratic, on the next batches of items."""
        scale = max(float(np.einsum("mii->", surrogate.curvature)) / surrogate.slope.size, 1e-12)
        wholes = torch.as_tensor(surrogate.curvature), torch.as_tensor(surrogate.slope)  # copies nothing
        held = self._brought(wholes, scale) if self._training.batch_size is None else wholes
        for _ in range(steps):
            items = next(self._order)
            if items is None:
                batch, (curvature, slope) = self._batch, held
            else:
                batch = self._batch.take(items)
                curvature, slope = self._brought([whole[items] for whole in wholes], scale)
            vectors = self._encoder(batch)
            bent = torch.einsum("mij,mj->mi", curvature, vectors)
            loss = ((0.5 * bent - slope) * vectors).sum() / len(batch)
            self._encoder.zero_grad()
            loss.backward()
            self._optimisers = self._optimisers or optimisers(self._encoder, self._training.rate, self._training.decay)
            for optimiser in self._optimisers:
                optimiser.step()

    def _brought(self, arrays: Iterable[Tensor], scale: float) -> list[Tensor]:
        """Return arrays divided by a number, on the encoder's device and in its precision."""
        like = self._batch.values
        return [finite(array / scale, 1e12).to(like.device, like.dtype) for array in arrays]

    def encoded(self) -> Floats:
        """Return the encoder's vectors of all items."""
        return encode(self._encoder, self._batch)

    def _orders(self) -> Iterator[Tensor]:
        """Yield the items of each step; None for all of them, in their own order."""
        n_items, size = len(self._batch), self._training.batch_size
        while size is None:
            yield None
        while True:
            mixed = torch.randperm(n_items, generator=self._generator)
            if n_items % size == 1:  # skip a last batch of one item, which batch normalisation cannot use
                yield from torch.tensor_split(mixed, -(-n_items // size))
            else:
                yield from torch.split(mixed, size)


def finite(values: Tensor, largest: float) -> Tensor:
    """Return the values, clipped to this size and with 0 for NaN, so that training continues whatever was released."""
    return torch.nan_to_num(values, nan=0.0).clamp(-largest, largest)


def encode(encoder: nn.Module, batch: FeatureBatch) -> Floats:
    """Return the encoder's vectors of a batch, without gradients, in batches of items.

    Its layers are in evaluation mode meanwhile: no dropout, and normalisation by the statistics of training.
    """
    modes = {module: module.training for module in encoder.modules()}
    encoder.eval()
    try:
        with torch.no_grad():
            parts = torch.split(torch.arange(len(batch), device=batch.items.device), _AT_A_TIME)
            taken = [batch] if len(parts) == 1 else [batch.take(part) for part in parts]
            result = torch.cat([encoder(part) for part in taken])
    finally:
        for module, mode in modes.items():
            module.training = mode
    return np.asarray(result.double().cpu().numpy())


def settle(encoder: nn.Module, batch: FeatureBatch) -> None:
    """Show all items once to layers with running averages; items are public."""
    if not any(getattr(module, "track_running_stats", False) for module in encoder.modules()):
        return
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        encoder(batch)


def encode_new(encoder: nn.Module, rows: SparseRows, n_known: int) -> Floats:
    """Return the encoder's vectors of items that were not in training; they are numbered after the others."""
    try:
        return encode(encoder, FeatureBatch.for_encoder(encoder, rows, n_known))
    except IndexError:
        raise InputError(
            f"The encoder {type(encoder).__name__} uses the item's number, so it knows nothing about new items.",
            argument="encoder",
        ) from None


def with_state(encoder: nn.Module, state: dict[str, NDArray[Any]]) -> nn.Module:
    """Return a copy of a module, in evaluation mode, with these parameters and buffers."""
    made = copy.deepcopy(encoder).eval()
    try:
        made.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in state.items()})
    except RuntimeError:
        raise InputError(
            f"Expected a module with the parameters of the stored encoder, {', '.join(state)}, got another form.",
            argument="encoder",
        ) from None
    return made


def optimisers(encoder: nn.Module, rate: float, decay: float) -> list[Any]:
    """Return Adam for parameters with dense gradients, and its sparse form for those with sparse gradients.

    Call it after the first backward pass, which shows which is which.
    """
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    thin = [parameter for parameter in trained if parameter.grad is not None and parameter.grad.is_sparse]
    chosen = {id(parameter) for parameter in thin}
    dense = [parameter for parameter in trained if id(parameter) not in chosen]
    made: list[Any] = [torch.optim.SparseAdam(thin, lr=rate)] if thin else []
    return [*made, torch.optim.Adam(dense, lr=rate, weight_decay=decay)] if dense else made
