"""The segment kernels on a torch device, for GPUs. It needs only NumPy and torch.

Segments of similar length are padded to the longest of their group and multiplied as one batch; groups are kept small
enough for a bounded amount of memory, and within a group no segment is padded to much more than its own length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_NUMBERS_AT_A_TIME = 1 << 27  # entries of a padded batch of rows
_PADDED_TO = 1.25

Tensor = Any  # torch.Tensor; torch is optional when types are checked


@dataclass(frozen=True, eq=False)
class DeviceOrder:
    """Observations grouped by task, in the order of the users; see `data.Segments`."""

    indptr: Tensor
    indices: Tensor
    order: Tensor


def by_task(indptr: Tensor, tasks: Tensor, n_tasks: int) -> DeviceOrder:
    """Return the observations of these users grouped by task."""
    order = torch.sort(tasks, stable=True).indices
    everybody = torch.arange(len(indptr) - 1, dtype=torch.int32, device=tasks.device)
    owner = torch.repeat_interleave(everybody, indptr[1:] - indptr[:-1], output_size=len(tasks))
    ends = torch.cumsum(torch.bincount(tasks, minlength=n_tasks), 0)
    return DeviceOrder(torch.cat([ends.new_zeros(1), ends]), owner[order], order.to(torch.int32))


def pack(full: Tensor) -> Tensor:
    """Keep the lower triangles of symmetric matrices, over any leading axes."""
    rows, columns = torch.tril_indices(full.shape[-1], full.shape[-1], device=full.device)
    return full[..., rows, columns]


def segment_gram(indptr: Tensor, indices: Tensor, features: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Return Σ w x xᵀ of every segment, as packed lower triangles."""
    width = features.shape[1]
    grams = features.new_zeros((len(indptr) - 1, width * (width + 1) // 2))
    for group, rows, trust, _ in _batches(indptr, indices, features, weights, None):
        grams[group] = pack(_weighted(rows, trust).transpose(1, 2) @ rows)
    return grams


def segment_moment(indptr: Tensor, indices: Tensor, features: Tensor, *, coefficients: Tensor) -> Tensor:
    """Return Σ c x of every segment."""
    moments = features.new_zeros((len(indptr) - 1, features.shape[1]))
    for group, rows, trust, _ in _batches(indptr, indices, features, coefficients, None):
        moments[group] = (trust[:, None, :] @ rows)[:, 0]
    return moments


def segment_solve(
    indptr: Tensor,
    indices: Tensor,
    features: Tensor,
    *,
    labels: Tensor,
    base: Tensor,
    weights: Tensor | None = None,
    base_rhs: Tensor | None = None,
    unsolved: str = "raise",
) -> Tensor:
    """Return (base + Σ w x xᵀ)⁻¹ (base_rhs + Σ w y x) of every segment, by Cholesky, in float64.

    The batches depend on all segments, and a device may round a batch by its size: in float64 that changes a solution
    only negligibly. Segments without a solution become zero if `unsolved` says so.
    """
    exact, wide = base.double(), features.double()
    side = torch.zeros_like(exact[0]) if base_rhs is None else base_rhs.double()
    solved = torch.linalg.solve(exact, side).to(features.dtype).repeat(len(indptr) - 1, 1)
    for group, rows, trust, targets in _batches(indptr, indices, wide, weights, labels):
        weighted = _weighted(rows, trust)
        factors, failed = torch.linalg.cholesky_ex(weighted.transpose(1, 2) @ rows + exact)
        if unsolved == "raise" and bool(failed.any()):
            raise ArithmeticError("A segment has no solution: its matrix is not positive definite or not finite.")
        moments = weighted.transpose(1, 2) @ targets[:, :, None] + side[:, None]
        found = torch.cholesky_solve(moments, factors)[:, :, 0]
        bad = (failed != 0) | ~torch.isfinite(found).all(dim=1)
        solved[group] = torch.where(bad[:, None], torch.zeros_like(found), found).to(features.dtype)
    return solved


def _batches(
    indptr: Tensor, indices: Tensor, features: Tensor, weights: Tensor | None, labels: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield groups of non-empty segments: their positions, rows, weights and labels, with zeros for padding."""
    padded = torch.cat([features, features.new_zeros((1, features.shape[1]))])
    lengths = indptr[1:] - indptr[:-1]
    order = torch.argsort(lengths, descending=True)
    order = order[: int((lengths > 0).sum())]
    sorted_lengths = lengths[order].tolist()
    first = 0
    while first < len(sorted_lengths):
        longest = sorted_lengths[first]
        last = _end_of_group(sorted_lengths, first, features.shape[1])
        group = order[first:last]
        position = torch.arange(longest, device=indptr.device)
        filled = position < lengths[group, None]
        entries = torch.where(filled, indptr[group, None] + position, indptr[group, None])
        rows = padded[torch.where(filled, indices[entries].long(), len(features))]
        trust, targets = (
            None if each is None else torch.where(filled, each[entries].to(features.dtype), 0.0)
            for each in (weights, labels)
        )
        yield group, rows, trust, targets
        first = last


def _weighted(rows: Tensor, trust: Tensor | None) -> Tensor:
    return rows if trust is None else rows * trust[:, :, None]


def _end_of_group(sorted_lengths: list[int], first: int, width: int) -> int:
    """Return the end of a group: where it becomes too large, or its shortest segment would be padded too much."""
    longest = sorted_lengths[first]
    most = max(1, _NUMBERS_AT_A_TIME // (longest * (width + 4) + width * width))
    shortest = min(longest / _PADDED_TO - 4, longest - 1)
    low, high = first + 1, min(first + most, len(sorted_lengths))
    while low < high:  # lengths decrease, so the last one that is long enough is found by bisection
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sorted_lengths[middle - 1] >= shortest else (low, middle - 1)
    return low
