"""The engine of a GPU: the heavy sums and solves on a torch device, everything else as on the processor.

Sums come back to the processor sealed, since they are small beside the data; per-user rows stay on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from apportion.data import Interactions, Segments
from apportion.engines.local import LocalEngine
from apportion.engines.protocol import check_layout, refuse_observation_rows, rows_by_task
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, ObservationRows, Rows, Weights
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours


class TorchEngine(LocalEngine):
    """Sums and solves on a torch device.

    Args:
        device: a torch device, by default the first GPU.
        dtype: precision of what users compute for themselves; released sums are in float64.
    """

    def __init__(self, device: str = "cuda", dtype: DTypeLike = np.float32) -> None:
        super().__init__(dtype)
        self.device = device
        self._placed: list[tuple[Segments, Any, Any]] = []

    def moments(self, data: Interactions, weights: Weights, rows: Rows, labels: Labels | None = None) -> BoundedSum:
        """Σ_j w_ij y_ij x_j for every task i; labels of 1 if none are given."""
        check_layout(data, weights, rows, labels)
        indptr, indices = self._place_by_task(data, rows)
        coefficients = weights._in_order(data.by_task.order)
        if labels is not None:
            coefficients = coefficients * labels._values[data.by_task.order]
        sums = self._kernels.segment_moment(
            indptr, indices, self._exact(rows._values), coefficients=self._exact(coefficients)
        )
        return BoundedSum.moments(sums.cpu().numpy(), weights, rows, labels)

    def grams(self, data: Interactions, weights: Weights, rows: Rows) -> BoundedSum:
        """Σ_j w_ij x_j x_jᵀ for every task i, packed lower triangles."""
        check_layout(data, weights, rows)
        indptr, indices = self._place_by_task(data, rows)
        placed = self._exact(weights._in_order(data.by_task.order))
        sums = self._kernels.segment_gram(indptr, indices, self._exact(rows._values), weights=placed)
        return BoundedSum.grams(sums.cpu().numpy(), weights, rows)

    def user_total(self, data: Interactions, rows: Rows) -> BoundedSum:
        """Σ_j x_j over the users who have data."""
        return BoundedSum.user_total(self._present(data, rows).sum(0).cpu().numpy(), rows)

    def user_gram(self, data: Interactions, rows: Rows, neighbours: Neighbours = ADD_REMOVE) -> BoundedSum:
        """Σ_j x_j x_jᵀ over the users who have data, packed."""
        present = self._present(data, rows)
        packed = self._kernels.pack(present.T @ present).cpu().numpy()
        return BoundedSum.user_gram(packed, rows, neighbours=neighbours)

    def total_of_users(self, data: Interactions, features: Any) -> Any:
        """Add up the features of every user's own tasks."""
        indptr, indices = self._place(data.by_user)
        ones = self.asarray(np.ones(data.n_observations, self.dtype))
        return self._kernels.segment_moment(indptr, indices, self.asarray(features), coefficients=ones)

    def solve_users(
        self,
        data: Interactions,
        features: Any,
        labels: Any,
        base: Any,
        base_rhs: Any | None = None,
        weights: Any | None = None,
    ) -> Any:
        """Solve every user's own ridge regression; see `Engine.solve_users`."""
        indptr, indices = self._place(data.by_user)
        return self._kernels.segment_solve(
            indptr,
            indices,
            self.asarray(features),
            weights=None if weights is None else self.asarray(weights),
            labels=self.asarray(labels),
            base=self.asarray(base),
            base_rhs=None if base_rhs is None else self.asarray(base_rhs),
            unsolved="zero",  # a refusal would tell of one user's data
        )

    def asarray(self, values: Any) -> Any:
        """Bring values to the device, in this engine's precision."""
        import torch

        dtype = getattr(torch, self.dtype.name)
        if isinstance(values, torch.Tensor):
            return values.to(device=self.device, dtype=dtype).contiguous()
        return torch.tensor(np.asarray(values, self.dtype), device=self.device)

    @property
    def _kernels(self) -> Any:
        from apportion.linalg import on_torch  # needs torch, which is optional

        return on_torch

    def _exact(self, values: Any) -> Any:
        """Bring values to the device in float64, for sums that are released."""
        import torch

        if isinstance(values, torch.Tensor):
            return values.to(device=self.device, dtype=torch.float64).contiguous()
        return torch.tensor(np.asarray(values, np.float64), device=self.device)

    def _place(self, segments: Segments) -> tuple[Any, Any]:
        """The structure on the device; both orders of the last data set are kept, since every round needs them."""
        import torch

        for known, indptr, indices in self._placed:
            if known is segments:
                return indptr, indices
        indptr, indices = (torch.tensor(a, device=self.device) for a in (segments.indptr, segments.indices))
        self._placed = [*self._placed[-1:], (segments, indptr, indices)]
        return indptr, indices

    def _place_by_task(self, data: Interactions, rows: Rows) -> tuple[Any, Any]:
        """The structure of sums by task, where an observation's features are its user's row or its own."""
        indptr, indices = self._place(data.by_task)
        if not isinstance(rows, ObservationRows):
            return indptr, indices
        import torch

        return indptr, torch.tensor(rows_by_task(data, rows), device=self.device)

    def _present(self, data: Interactions, rows: Rows) -> Any:
        import torch

        refuse_observation_rows(rows)
        check_layout(data, rows=rows)
        with_data = torch.as_tensor(np.diff(data.by_user.indptr) > 0, device=self.device)
        return self.asarray(rows._values)[with_data].to(torch.float64)
