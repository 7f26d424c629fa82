"""The segment kernels on a torch device, for GPUs. It needs only NumPy and torch.

Segments of similar length are padded to the longest of their group and multiplied as one batch; groups are kept small
enough for a bounded amount of memory, and within a group no segment is padded to much more than its own length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from apportion.linalg.ranks import Ranked

_NUMBERS_AT_A_TIME = 1 << 27  # entries of a padded batch of rows
_PADDED_TO = 1.25
_SCORES_AT_A_TIME = 1 << 22  # scores of rows with all columns at a time, near the device's processors
_PAIRS_AT_A_TIME = 1 << 11

Tensor = Any  # torch.Tensor; torch is optional when types are checked


def pack(full: Tensor) -> Tensor:
    """Keep the lower triangles of symmetric matrices, over any leading axes."""
    rows, columns = torch.tril_indices(full.shape[-1], full.shape[-1], device=full.device)
    return full[..., rows, columns]


def segment_gram(indptr: Tensor, indices: Tensor, features: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Return Σ w x xᵀ of every segment, as packed lower triangles."""
    width = features.shape[1]
    grams = features.new_zeros((len(indptr) - 1, width * (width + 1) // 2))
    for group, rows, trust, _ in _batches(indptr, indices, features, weights, None):
        grams[group] = pack((rows * trust[:, :, None]).transpose(1, 2) @ rows)
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
    exact = base.double()
    side = torch.zeros_like(exact[0]) if base_rhs is None else base_rhs.double()
    solved = torch.linalg.solve(exact, side).to(features.dtype).repeat(len(indptr) - 1, 1)
    for group, narrow, trust, targets in _batches(indptr, indices, features, weights, labels):
        rows = narrow.double()
        weighted = rows * trust[:, :, None].double()
        factors, failed = torch.linalg.cholesky_ex(weighted.transpose(1, 2) @ rows + exact)
        if unsolved == "raise" and bool(failed.any()):
            raise ArithmeticError("A segment has no solution: its matrix is not positive definite or not finite.")
        moments = weighted.transpose(1, 2) @ targets[:, :, None].double() + side[:, None]
        found = torch.cholesky_solve(moments, factors)[:, :, 0]
        bad = (failed != 0) | ~torch.isfinite(found).all(dim=1)
        solved[group] = torch.where(bad[:, None], torch.zeros_like(found), found).to(features.dtype)
    return solved


def ranks(asked: Ranked, device: str) -> NDArray[np.int64]:
    """Return the rank of each pair. Products are added in the order of the columns, each rounded, as on processors."""
    columns = torch.tensor(np.ascontiguousarray(asked.right.T), device=device)
    at_once = max(1, _SCORES_AT_A_TIME // max(len(asked.right), 1))
    found = [
        _ranks(asked.part(first, min(first + at_once, len(asked.left))), columns)
        for first in range(0, len(asked.left), at_once)
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _ranks(asked: Ranked, columns: Tensor) -> NDArray[np.int64]:
    rows = torch.tensor(np.ascontiguousarray(asked.left.T), device=columns.device)
    scores = columns.new_zeros((rows.shape[1], columns.shape[1]))
    product = torch.empty_like(scores)
    for own, others in zip(rows, columns, strict=True):
        torch.mul(own[:, None], others[None], out=product)  # not fused with the addition, which would round once
        scores += product
    owner, excluded, pairs, picked = (
        torch.tensor(each, device=columns.device).long()
        for each in (asked.owner, asked.excluded, asked.rows, asked.columns)
    )
    scores[owner, excluded] = -torch.inf
    counted = [
        (scores[some] > scores[some, own][:, None]).sum(dim=1)
        for some, own in zip(pairs.split(_PAIRS_AT_A_TIME), picked.split(_PAIRS_AT_A_TIME), strict=True)
    ]
    return np.asarray(torch.cat([pairs[:0], *counted]).cpu().numpy())


def _batches(
    indptr: Tensor, indices: Tensor, features: Tensor, weights: Tensor | None, labels: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield groups of non-empty segments: their positions, padded rows, weights (0 for padding) and labels."""
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
        mask = filled.to(features.dtype)
        trust = mask if weights is None else weights[entries] * mask
        targets = mask if labels is None else labels[entries] * mask
        yield group, features[indices[entries].long()], trust, targets
        first = last


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
