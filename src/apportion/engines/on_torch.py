"""The engine for a GPU: heavy sums and local regressions on a torch device, everything else on the processor.

Sums return to the processor sealed, since they are small compared with the data. Per-user rows stay on the device. On
the device "cpu", users compute with the processor's own kernels, whose order of operations is fixed, so sums are the
same in every bit. Rounds on ratings use the processor's operations one by one, on a GPU too. A GPU rounds the solutions
of other regressions differently, so sums on a lattice differ by a few steps for each user. What is made from released
values alone, popularity and denoised vectors, is computed on the device, too, and differs in its last bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion import linalg
from apportion.engines.local import LocalEngine
from apportion.engines.processors import Processors, Summed
from apportion.linalg.places import PROCESSORS, Place
from apportion.linalg.ranks import Ranked
from apportion.privacy.contributions import Kernels
from apportion.privacy.contributions.base import Floats, TaskOrder, UserRun
from apportion.privacy.contributions.distinct_tasks import require_distinct_tasks

_AT_A_TIME = 1 << 24  # numbers formed on the device at a time
# rows of users whose parts are formed at a time; small batches cost more
_ROWS_ON_PROCESSOR, _ROWS_ON_GPU = 200_000, 1_000_000


class TorchEngine(LocalEngine):
    """Adds up on a torch device.

    Args:
        device: a torch device, by default the first GPU.
        dtype: precision of what users compute for themselves; released sums are float64 or whole numbers.
        exact: whether every sum is on a lattice.
        runs: number of runs into which users are divided.
    """

    def __init__(
        self, device: str = "cuda", dtype: DTypeLike = np.float32, *, exact: bool = False, runs: int = 1
    ) -> None:
        self.device = device
        super().__init__(dtype, exact=exact, runs=runs)

    def _make_kernels(self) -> Kernels:
        return Device(self.device, self.dtype, exact=self.exact)


class Device(Processors):
    """Segment sums and local regressions on a torch device."""

    def __init__(self, device: str, dtype: DTypeLike, *, exact: bool) -> None:
        super().__init__(dtype, rows_at_once=_ROWS_ON_PROCESSOR if device == "cpu" else _ROWS_ON_GPU, exact=exact)
        self.device = device
        self._placed: list[tuple[Any, Any]] = []
        self._orders: list[tuple[Any, Any]] = []

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the private positions of rows, because kernels are sent with contributions."""
        return {**self.__dict__, "_placed": [], "_orders": []}

    @property
    def _on_processor(self) -> bool:
        return self.device == "cpu"

    @property
    def rows_travel(self) -> bool:
        """Whether rows are copied to a device. They are if the device is a GPU."""
        return not self._on_processor

    @property
    def place(self) -> Place:
        """Where to compute from released values: on the device."""
        return PROCESSORS if self._on_processor else Place(self.device)

    @property
    def on_processors(self) -> Processors:
        """Return the processor's own kernels."""
        return Processors(self.dtype, self.threads, exact=self.exact)

    def ranks(self, asked: Ranked) -> NDArray[np.int64]:
        """Return the rank of each pair: the same as on processors; see `linalg.ranks_on_torch`."""
        if self._on_processor:
            return super().ranks(asked)
        from apportion.linalg import ranks_on_torch  # needs torch, which is optional

        return ranks_on_torch.ranks(asked, self.device)

    def by_task(self, users: UserRun) -> TaskOrder:
        """Return the rows of these users grouped by task, on the device. The last two are kept, for every round."""
        if self._on_processor:
            return super().by_task(users)
        for known, held in self._orders:
            if known is users:
                return held  # type: ignore[no-any-return]
        placed = self._place(users.indptr), self._place(users.column("tasks"))
        order: TaskOrder = self._torch_kernels.by_task(*placed, users.n_tasks)
        self._orders = [*self._orders[-1:], (users, order)]
        return order

    def arranged(self, values: Any, order: Any) -> Any:
        """Return one number per row in another order, in float64."""
        return super().arranged(values, order) if self._on_processor else self._double(values)[order.long()]

    def moments(
        self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, coefficients: Floats, bound: float
    ) -> Summed:
        """Return Σ c x for every task."""
        placed = self._place(order.indptr), self._place(indices)
        if self.exact:
            step = linalg.step_below(bound)
            return self._lattice_moments(*placed, self._double(rows), self._double(coefficients), step), step
        sums = self._torch_kernels.segment_moment(*placed, self._double(rows), coefficients=self._double(coefficients))
        return self._back(sums), None

    def grams(self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, weights: Floats, norm: float) -> Summed:
        """Return Σ w x xᵀ for every task, packed."""
        placed = self._place(order.indptr), self._place(indices)
        if self.exact:
            step = linalg.step_below(norm, linalg.FACTOR_BITS)
            return self._lattice_grams(*placed, self._double(rows), self._double(weights), step), step**2
        sums = self._torch_kernels.segment_gram(*placed, self._double(rows), weights=self._double(weights))
        return self._back(sums), None

    def total(self, rows: Any, norm: float) -> Summed:
        """Return Σ x over rows."""
        step = linalg.step_below(norm)
        whole = (self._double(rows) / step).trunc().long()
        return whole.sum(0).cpu().numpy(), step

    def gram(self, rows: Any, norm: float) -> Summed:
        """Return Σ x xᵀ over rows, packed."""
        held = self._double(rows)
        if not self.exact:
            return self._torch_kernels.pack(held.T @ held).cpu().numpy(), None
        import torch

        everybody = torch.arange(len(held), device=self.device)
        ends = torch.tensor([0, len(held)], device=self.device)
        step = linalg.step_below(norm, linalg.FACTOR_BITS)
        ones = torch.ones(len(held), dtype=torch.float64, device=self.device)
        return self._lattice_grams(ends, everybody, held, ones, step)[0], step**2

    def total_of_users(self, users: UserRun, features: Any) -> Any:
        """Add up the features of each user's own tasks."""
        if self._on_processor:
            return super().total_of_users(users, features)
        ones = self._real(np.broadcast_to(self.dtype.type(1), users.n_rows))
        placed = self._place(users.indptr), self._place(users.column("tasks"))
        return self._torch_kernels.segment_moment(*placed, self._real(features), coefficients=ones)

    def solve_users(
        self,
        users: UserRun,
        features: Any,
        labels: Any,
        base: Any,
        base_rhs: Any | None = None,
        weights: Any | None = None,
    ) -> Any:
        """Solve each user's own ridge regression; see `Kernels.solve_users`."""
        if self._on_processor:
            return super().solve_users(users, features, labels, base, base_rhs, weights)
        return self._torch_kernels.segment_solve(
            self._place(users.indptr),
            self._place(users.column("tasks")),
            self._real(features),
            weights=None if weights is None else self._real(weights),
            labels=self._real(labels),
            base=self._real(base),
            base_rhs=None if base_rhs is None else self._real(base_rhs),
            unsolved="zero",  # a refusal would reveal something about one user's data
        )

    def rating_round(
        self,
        users: UserRun,
        weights: Floats | linalg.TaskWeights,
        this_round: linalg.RatingRound,
        by_task: NDArray[np.int64],
        total: NDArray[np.int64],
    ) -> None:
        """Add every user's part of a round on ratings; see `Kernels.rating_round`."""
        if self._on_processor:
            super().rating_round(users, weights, this_round, by_task, total)
            return
        from apportion.linalg import rating_on_torch  # needs torch, which is optional

        require_distinct_tasks(users)
        own = weights if isinstance(weights, linalg.TaskWeights) else self._place(weights)
        placed = self._place(users.column("tasks")), self._place(users.column("values"))
        rows, votes = rating_on_torch.rating_round(users.indptr, *placed, own, this_round, self.device)
        by_task += self._back(rows)
        total += votes.cpu().numpy()

    def _lattice_moments(self, indptr: Any, indices: Any, rows: Any, coefficients: Any, step: float) -> NDArray[Any]:
        """Add up whole steps of c x by task, in 64 bits."""
        import torch

        sums = torch.zeros((len(indptr) - 1, rows.shape[1]), dtype=torch.int64, device=self.device)
        owners = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=self.device), indptr[1:] - indptr[:-1])
        at_once = max(1, _AT_A_TIME // rows.shape[1])
        for first in range(0, len(indices), at_once):
            part = slice(first, first + at_once)
            products = rows[indices[part].long()] * coefficients[part, None]
            sums.index_add_(0, owners[part], (products / step).trunc().long())
        return self._back(sums)

    def _lattice_grams(self, indptr: Any, indices: Any, rows: Any, weights: Any, step: float) -> NDArray[Any]:
        """Multiply whole steps of √|w| x and add them up by task in 64 bits, with the sign of w."""
        import torch

        width = rows.shape[1]
        one, two = torch.tril_indices(width, width, device=self.device)
        sums = torch.zeros((len(indptr) - 1, len(one)), dtype=torch.int64, device=self.device)
        owners = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=self.device), indptr[1:] - indptr[:-1])
        at_once = max(1, _AT_A_TIME // len(one))
        for first in range(0, len(indices), at_once):
            part = slice(first, first + at_once)
            scales, signs = weights[part].abs().sqrt(), weights[part].sign().long()
            whole = (rows[indices[part].long()] * scales[:, None] / step).trunc().long()
            sums.index_add_(0, owners[part], whole[:, one] * whole[:, two] * signs[:, None])
        return self._back(sums)

    @property
    def _torch_kernels(self) -> Any:
        from apportion.linalg import on_torch  # imported here, because torch is optional

        return on_torch

    def _real(self, values: Any) -> Any:
        """Bring values to the device, in this engine's precision."""
        return self._there(values, self.dtype)

    def _double(self, values: Any) -> Any:
        """Bring values to the device in float64, for sums that are released."""
        return self._there(values, np.dtype(np.float64))

    def _there(self, values: Any, dtype: np.dtype[Any]) -> Any:
        import torch

        kind = getattr(torch, dtype.name)
        if isinstance(values, torch.Tensor):
            return values.to(device=self.device, dtype=kind).contiguous()
        held = np.asarray(values)
        if held.size and not any(held.strides):  # one number for all
            return torch.full(held.shape, held.flat[0].item(), dtype=kind, device=self.device)
        return torch.tensor(held, device=self.device).to(kind)

    def _back(self, sums: Any) -> NDArray[Any]:
        """Bring sums to the processor. Pages that a GPU may write to are kept by torch from one time to the next."""
        import torch

        if sums.device.type != "cuda":
            return np.asarray(sums.cpu().numpy())
        held = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True)
        return np.asarray(held.copy_(sums).numpy())

    def _place(self, indices: Any) -> Any:
        """Return offsets and positions on the device. The last few are kept, because every round needs them."""
        import torch

        if isinstance(indices, torch.Tensor):
            return indices
        for known, placed in self._placed:
            if known is indices:
                return placed
        placed = torch.tensor(np.asarray(indices), device=self.device)
        self._placed = [*self._placed[-5:], (indices, placed)]
        return placed
