"""Encoders: from an item's public features to its vector, as torch modules. Needs the extra `torch`.

Every encoder maps a `FeatureBatch` of n items to n x d numbers. Wide layers are embedding bags with sparse gradients:
a step touches the rows of the features that occur in the batch, and no dense gradient of the width of the features
times d is made. Any `torch.nn.Module` that maps a `FeatureBatch` to n x d numbers serves as an encoder too.

Krichene, Mayoraz, Rendle, Zhang, "Private Learning with Public Features" (2023), appendix E.1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.errors import InputError

Tensor = Any  # torch.Tensor; torch is optional when types are checked


@dataclass(frozen=True)
class FeatureBatch:
    """Some items and their features, as tensors.

    Attributes:
        items: int64, the item of each row. New items are numbered after the items in training.
        offsets: int64, where each row's entries begin.
        indices: int64, the feature of each entry.
        values: its value, in the precision of the encoder.
        bag_weights: its value as a share of its row and group. These weights average bags.
        groups: ranges of features that belong together.
    """

    items: Tensor
    offsets: Tensor
    indices: Tensor
    values: Tensor
    bag_weights: Tensor
    groups: tuple[ColumnRange, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def n_features(self) -> int:
        """The number of features, used or not."""
        return self.groups[-1].last if self.groups else 0

    @property
    def owner(self) -> Tensor:
        """The row of each entry."""
        ends = torch.cat([self.offsets[1:], self.offsets.new_tensor([len(self.indices)])])
        return torch.repeat_interleave(torch.arange(len(self), device=self.items.device), ends - self.offsets)

    @classmethod
    def of(cls, rows: SparseRows, items: Sequence[int] | None = None, device: Any = None) -> FeatureBatch:
        """Return all rows, or those of the given items, as tensors; see `for_encoder`."""
        chosen = torch.arange(len(rows)) if items is None else torch.as_tensor(items, dtype=torch.int64)
        taken = rows if items is None else rows.take(chosen.numpy())
        arrays = (taken.indptr[:-1], taken.indices, taken.values, taken.averaged().values)
        offsets, indices, values, shares = (torch.tensor(array, device=device) for array in arrays)
        return cls(chosen.to(device), offsets, indices, values, shares, rows.groups)

    @classmethod
    def for_encoder(cls, encoder: nn.Module, rows: SparseRows, first: int = 0) -> FeatureBatch:
        """Return all rows, numbered from `first`, on the device and in the precision of the encoder's parameters."""
        known = next((held for held in encoder.parameters() if held.is_floating_point()), torch.zeros(0))
        made = cls.of(rows, device=known.device)
        values, shares = made.values.to(known.dtype), made.bag_weights.to(known.dtype)
        return replace(made, items=made.items + first, values=values, bag_weights=shares)

    def take(self, rows: Tensor) -> FeatureBatch:
        """Return the given rows of this batch, in that order."""
        rows = rows.to(self.items.device)
        ends = torch.cat([self.offsets[1:], self.offsets.new_tensor([len(self.indices)])])
        counts = (ends - self.offsets)[rows]
        offsets = torch.cumsum(counts, 0) - counts
        within = torch.arange(int(counts.sum()), device=rows.device) - torch.repeat_interleave(offsets, counts)
        places = torch.repeat_interleave(self.offsets[rows], counts) + within
        entries = (self.indices[places], self.values[places], self.bag_weights[places])
        return FeatureBatch(self.items[rows], offsets, *entries, self.groups)

    def to_sparse(self) -> Tensor:
        """Return the values as a sparse tensor of items x features, for custom modules."""
        places = torch.stack([self.owner, self.indices])
        return torch.sparse_coo_tensor(places, self.values, (len(self), self.n_features), check_invariants=True)


class IdEncoder(nn.Module):  # type: ignore[misc,unused-ignore]
    """One vector per item, whatever its features; a baseline for encoders."""

    def __init__(self, n_items: int, dimension: int, *, scale: float = 0.1, sparse: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(n_items, dimension, sparse=sparse)
        nn.init.normal_(self.table.weight, std=scale / dimension**0.5)

    def forward(self, batch: FeatureBatch) -> Tensor:
        """Return the items' own vectors."""
        return self.table(batch.items)


class LinearEncoder(nn.Module):  # type: ignore[misc,unused-ignore]
    """Σ x_f e_f over an item's features, with a sparse gradient; optionally with a bias."""

    def __init__(
        self, n_features: int, dimension: int, *, bias: bool = False, scale: float = 0.1, sparse: bool = True
    ) -> None:
        super().__init__()
        _refuse_no_features(n_features)
        self.table = nn.EmbeddingBag(n_features, dimension, mode="sum", sparse=sparse)
        nn.init.normal_(self.table.weight, std=scale / dimension**0.5)
        self.bias = nn.Parameter(torch.zeros(dimension)) if bias else None

    def forward(self, batch: FeatureBatch) -> Tensor:
        """Return the weighted sum of the features' embeddings."""
        summed = self.table(batch.indices, batch.offsets, per_sample_weights=batch.values)
        return summed if self.bias is None else summed + self.bias


class TwoLayerEncoder(nn.Module):  # type: ignore[misc,unused-ignore]
    """The paper's encoder: one embedding per feature group, bags averaged, concatenated, then a dense layer.

    A bag is averaged with its multiplicities: a value that an item has twice counts twice. A group that an item lacks
    embeds as zero.

    Args:
        groups: the feature groups, as in `ItemFeatures.rows.groups`.
        dimension: length of the item vector.
        hidden: length of each group's embedding; default: `dimension`.
        scale: standard deviation of the initial embeddings times the root of their length.
        sparse: whether the gradient of the embeddings is a sparse tensor.
    """

    def __init__(
        self,
        groups: Sequence[ColumnRange],
        dimension: int,
        *,
        hidden: int | None = None,
        scale: float = 0.3,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        width = hidden or dimension
        self.groups = tuple(groups)
        _refuse_no_features(len(self.groups))
        self.table = nn.EmbeddingBag(self.groups[-1].last, width, mode="sum", sparse=sparse)
        nn.init.normal_(self.table.weight, std=scale / width**0.5)
        self.dense = nn.Linear(len(self.groups) * width, dimension)
        lasts = torch.tensor([group.last for group in self.groups], dtype=torch.int64)
        self.register_buffer("lasts", lasts, persistent=False)

    def forward(self, batch: FeatureBatch) -> Tensor:
        """Apply the dense layer to the groups' averaged embeddings."""
        n_groups = len(self.groups)
        bag = batch.owner * n_groups + torch.searchsorted(self.lasts, batch.indices, right=True)
        counts = torch.bincount(bag, minlength=len(batch) * n_groups)
        offsets = torch.cumsum(counts, 0) - counts  # entries of a row are ascending, so its groups follow one another
        averaged = self.table(batch.indices, offsets, per_sample_weights=batch.bag_weights)
        return self.dense(averaged.reshape(len(batch), -1))


def _refuse_no_features(size: int) -> None:
    if size < 1:
        raise InputError(f"Expected at least one feature to encode, got {size}.", argument="n_features")
