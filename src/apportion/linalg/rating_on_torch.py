"""A round on ratings on a torch device: the operations of the NumPy reference, for millions of observations at once.

Each operation is rounded once, as on the processor, and sums over a user's observations are added in the same order, so
the whole numbers are the same. Imports only NumPy and torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from apportion.linalg import rating_reference
from apportion.linalg.fixed_sums import LANES, Runs, clipped_steps
from apportion.linalg.rating_settings import RatingRound, TaskWeights

Tensor = Any  # torch.Tensor; torch is optional where types are checked

_MOST_AT_ONCE = 1 << 24  # observations at a time; each pass has thousands of operations, so few passes are better
_SHARE_OF_MEMORY = 0.4  # share of the free memory of the device


@dataclass(frozen=True)
class DeviceRuns:
    """Runs of observations on a device.

    Within a user, the observations of each of its eight partial sums lie side by side, so that sums can be added in
    order.

    Attributes:
        owner: for each observation, the position of its user.
        ends: where each of a user's eight partial sums begins, and the end.
    """

    owner: Tensor
    ends: Tensor

    def sums(self) -> DeviceRuns:
        """Return sums over these runs."""
        return self

    def __call__(self, values: Tensor) -> Tensor:
        """Return the sum of each user's values, in the order of `fixed_sums`."""
        parts = torch.segment_reduce(values[:, None], "sum", offsets=self.ends, axis=0, unsafe=True, initial=0.0)
        parts = parts.reshape(-1, LANES)
        halves = parts[:, :4] + parts[:, 4:]
        quarters = halves[:, :2] + halves[:, 2:]
        return quarters[:, 0] + quarters[:, 1]


@dataclass(frozen=True, eq=False)
class _Told:
    """The numbers that users receive, with lookups for observations on the device."""

    this_round: RatingRound
    device: str

    @cached_property
    def features(self) -> Tensor:
        return torch.tensor(self.this_round.features, device=self.device)

    @cached_property
    def trust(self) -> Tensor:
        return torch.tensor(self.this_round.trust, device=self.device)

    @cached_property
    def scales(self) -> Tensor:
        return torch.tensor(self.this_round.scales, device=self.device)

    @cached_property
    def vector_weights(self) -> Tensor:
        return torch.tensor(self.this_round.vector_weights, device=self.device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.this_round, name)


def rating_round(
    indptr: np.ndarray[Any, Any],
    tasks: Tensor,
    values: Tensor,
    weights: Any,
    this_round: RatingRound,
    device: str,
) -> tuple[Tensor, Tensor]:
    """Return the sums of some users' parts, in whole steps; see `linalg.rating_round`.

    Args:
        indptr: offsets of users, on the processor.
        tasks: int32 on the device, in ascending order within a user, each once.
        values: the values, on the device.
        weights: the weights of observations, on the device, or of tasks.
        this_round: the public numbers of the round.
        device: the device to work on.

    Returns:
        The sums by task, int64 [n_tasks, width], and the sum of votes.
    """
    told: Any = _Told(this_round, device)
    by_task = torch.zeros((this_round.n_tasks, this_round.width), dtype=torch.int64, device=device)
    total = torch.zeros(this_round.summary_width, dtype=torch.int64, device=device)
    of_tasks = torch.tensor(weights.values, device=device) if isinstance(weights, TaskWeights) else None
    for runs, order in _some_at_a_time(indptr, this_round.dim, device):
        picks, seen = tasks[order].long(), values[order].double()
        own = weights.within_bound(of_tasks[picks], runs, torch) if of_tasks is not None else weights[order].double()
        rows, votes = rating_reference.rows_and_votes(runs, picks, seen, own, told, torch)
        by_task.index_add_(0, picks, clipped_steps(rows, runs, this_round.clip_norm, this_round.step, torch).long())
        whole = rating_reference.clipped_votes(votes, this_round.summary_clip, this_round.summary_step, torch)
        total += whole.long().sum(0)
    return by_task, total


def _some_at_a_time(indptr: np.ndarray[Any, Any], dim: int, device: str) -> Iterator[tuple[DeviceRuns, Tensor]]:
    """Yield some users at a time, and the positions of their observations, in the order of their eight partial sums."""
    for runs, part in Runs(indptr).some_at_a_time(_observations_at_once(dim, device)):
        starts = torch.tensor(runs.indptr, device=device)
        sizes = starts[1:] - starts[:-1]
        lane = torch.arange(LANES, device=device)
        lengths = torch.div(sizes[:, None] + (LANES - 1) - lane, LANES, rounding_mode="floor").reshape(-1)
        ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        sums = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
        owner = torch.div(sums, LANES, rounding_mode="floor")
        place = (torch.arange(len(sums), device=device) - ends[sums]) * LANES + sums % LANES
        yield DeviceRuns(owner, ends), starts[owner] + place + part.start


def _observations_at_once(dim: int, device: str) -> int:
    """Return the number of observations for which the arrays of one pass fit on the device."""
    if not device.startswith("cuda"):
        return _MOST_AT_ONCE
    free, _ = torch.cuda.mem_get_info(device)
    return int(min(_MOST_AT_ONCE, max(_SHARE_OF_MEMORY * free / (8 * (8 * dim + 40)), 1)))
