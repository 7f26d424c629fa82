"""Ranks of columns on a torch device: those of the processors' order of additions, whatever order the device uses.

A rank counts columns with a larger product. A matrix product in float64 tells almost all of them: two products that lie
further apart than both ways of adding can err have the same order in either. The few that lie closer are added again in
the processors' order, each operation rounded by itself (docs/proofs/votes.md has the bound).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from apportion.linalg.ranks import Ranked

Tensor = Any  # torch.Tensor; torch is optional when types are checked

_SCORES_AT_A_TIME = 1 << 27  # products of rows with all columns
_SCORES_ELSEWHERE = 1 << 22  # the same on other devices than GPUs
_SHARE_OF_MEMORY = 0.05  # of the free memory of the device, for these products
_ADDED_AT_A_TIME = 1 << 20  # products that are added again


def ranks(asked: Ranked, device: str) -> NDArray[np.int64]:
    """Return the rank of each pair; see `linalg.ranks`."""
    columns = torch.tensor(np.ascontiguousarray(asked.right.T), device=device)
    at_once = max(1, _scores_at_once(device) // max(len(asked.right), 1))
    found = [
        _ranks(asked.part(first, min(first + at_once, len(asked.left))), columns)
        for first in range(0, len(asked.left), at_once)
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _ranks(asked: Ranked, columns: Tensor) -> NDArray[np.int64]:
    """Count what is certain, then look at the rest again."""
    if not len(asked.rows):
        return np.zeros(0, np.int64)
    rows = torch.tensor(np.ascontiguousarray(asked.left.T), device=columns.device)
    out, pairs, own = _places(asked, rows, columns)
    scores = (rows.double().T @ columns.double()).masked_fill_(out, -torch.inf)
    apart = scores[pairs]
    apart -= scores[pairs, own][:, None]
    margin = _margins(rows, columns)[pairs][:, None]
    larger = (apart > margin).sum(dim=1)
    doubtful, others = torch.nonzero(~(apart.abs_() > margin), as_tuple=True)  # numbers that are not finite, too
    ours = torch.where(out[pairs, own], -torch.inf, _added(rows[:, pairs], columns[:, own]))
    for some, column in zip(doubtful.split(_ADDED_AT_A_TIME), others.split(_ADDED_AT_A_TIME), strict=True):
        row = pairs[some]
        theirs = _added(rows[:, row], columns[:, column])
        larger.index_add_(0, some, ((theirs > ours[some]) & ~out[row, column]).long())
    return np.asarray(larger.cpu().numpy())


def _scores_at_once(device: str) -> int:
    """Return the number of products that are formed at a time."""
    if not device.startswith("cuda"):
        return min(_SCORES_AT_A_TIME, _SCORES_ELSEWHERE)
    free, _ = torch.cuda.mem_get_info(device)
    return int(min(_SCORES_AT_A_TIME, _SHARE_OF_MEMORY * free / 8))


def _places(asked: Ranked, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which products are left out, and the row and the column of each pair."""
    owner, excluded, pairs, own = (
        torch.tensor(each, device=columns.device).long()
        for each in (asked.owner, asked.excluded, asked.rows, asked.columns)
    )
    out = torch.zeros((rows.shape[1], columns.shape[1]), dtype=torch.bool, device=columns.device)
    out[owner, excluded] = True
    return out, pairs, own


def _margins(rows: Tensor, columns: Tensor) -> Tensor:
    """Return for each row how far two of its products have to lie apart, so that no way of adding turns them round.

    It is infinite where a product may be too large for its precision.
    """
    known, dim = torch.finfo(rows.dtype), len(rows)
    most = rows.double().norm(dim=0) * columns.double().norm(dim=0).max()
    margin = 2 * (dim + 2) * (known.eps * most + 2 * known.tiny)
    return torch.where(most < known.max / 4, margin, torch.inf)


def _added(left: Tensor, right: Tensor) -> Tensor:
    """Return Σ_k left[k, n] right[k, n] in the order of the processors, with no operation fused with another."""
    products = left * right
    total = torch.zeros_like(products[0])
    for each in products:
        total += each
    return total
