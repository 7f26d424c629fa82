"""Many private runs of a linear softmax model side by side: full batches, one product of matrices for all of them.

For the linear model the gradient of row i is (p_i − y_i) x_iᵀ, of length ‖p_i − y_i‖ ‖x_i‖, so it is clipped without
being formed. Runs differ in their settings and seeds; those of one seed share data and noise, so that they differ in
nothing else. Noise is seeded: what comes out is for studies. The updates are those of `apportion.training`; a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from papers.heavy_tail.long_tail import LongTail
from papers.heavy_tail.updates import Setting, Updates

_ALIGNED = 8  # classes are filled up to a multiple of this with ones that no row has; products are faster so


@dataclass(frozen=True)
class Curves:
    """What was seen on the way, before the steps in `steps`.

    Attributes:
        steps: how many steps had been taken.
        loss: of all rows, by run and step.
        group_loss: by run, step and group.
        group_accuracy: by run, step and group.
        clipped: fraction of rows whose gradients were clipped, by run and step.
    """

    steps: NDArray[np.int64]
    loss: NDArray[np.float64]
    group_loss: NDArray[np.float64]
    group_accuracy: NDArray[np.float64]
    clipped: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))


class ManyRuns:
    """Runs of one optimizer, side by side: all settings with the first seed, all with the second, and so on.

    Args:
        data: the training rows.
        settings: of the runs; all of one optimizer.
        clip_norm: C.
        noise_multiplier: σ.
        seeds: of the noise, which all settings share.
        device: a torch device.
        dtype: of everything.
    """

    def __init__(
        self,
        data: LongTail,
        settings: list[Setting],
        clip_norm: float,
        noise_multiplier: float,
        seeds: Sequence[int],
        device: str,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._x = torch.as_tensor(data.inputs, device=device).to(dtype)
        self._labels = torch.as_tensor(data.labels, device=device)
        self._groups = torch.as_tensor(data.groups, device=device)
        self._n_groups, self._n_classes = len(data.sizes), data.n_classes
        self._lengths = torch.linalg.vector_norm(self._x, dim=1)
        self._clip, self._stddev = clip_norm, noise_multiplier * clip_norm / len(data.labels)
        self._generators = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]
        runs = [setting for _ in seeds for setting in settings]
        padded = -(-data.n_classes // _ALIGNED) * _ALIGNED
        self._weights = torch.zeros((self._x.shape[1], len(runs), padded), device=device, dtype=dtype)
        lr, constant = (
            torch.tensor(values, device=device, dtype=dtype).reshape(1, -1, 1)
            for values in ([s.lr for s in runs], [s.constant for s in runs])
        )
        self._updates = Updates(settings[0].optimizer, lr, constant, self._stddev)

    @property
    def weights(self) -> torch.Tensor:
        """Of shape [columns, runs, classes]."""
        return self._weights[..., : self._n_classes]

    def run(self, steps: int, every: int) -> Curves:
        """Take the steps; look at every so many of them, and at the end."""
        seen: list[tuple[int, Any]] = []
        for step in range(steps):
            errors, found = self._errors(look=step % every == 0)
            if found is not None:
                seen.append((step, found))
            self._updates.apply(self._weights, self._noisy_gradient(errors))
        seen.append((steps, self._errors(look=True)[1]))
        parts = [torch.stack([found[k] for _, found in seen]).double().cpu().numpy() for k in range(4)]
        return Curves(
            np.array([step for step, _ in seen]),
            parts[0].T,
            parts[1].transpose(2, 0, 1),
            parts[2].transpose(2, 0, 1),
            parts[3].T,
        )

    def _errors(self, *, look: bool) -> tuple[torch.Tensor, tuple[torch.Tensor, ...] | None]:
        """Return p − y times the clip factor, for every row, run and class; and losses and accuracies if asked for."""
        runs, classes = self._weights.shape[1:]
        scores = (self._x @ self._weights.flatten(1)).reshape(len(self._x), runs, classes)
        scores[..., self._n_classes :] = -torch.inf
        at = self._labels[:, None, None].expand(-1, runs, 1)
        right = scores.argmax(2) == self._labels[:, None] if look else None
        logs = torch.log_softmax(scores, 2)
        losses = -logs.gather(2, at)[..., 0] if look else None
        errors = logs.exp_().scatter_add_(2, at, -torch.ones_like(at, dtype=logs.dtype))
        lengths = torch.linalg.vector_norm(errors, dim=2) * self._lengths[:, None]
        errors *= (self._clip / lengths.clamp_min(self._clip))[..., None]
        if losses is None or right is None:
            return errors, None
        by_group = self._by_group(losses), self._by_group(right.to(losses.dtype))
        return errors, (losses.mean(0), *by_group, (lengths > self._clip).to(losses.dtype).mean(0))

    def _by_group(self, values: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros((self._n_groups, values.shape[1]), device=values.device, dtype=values.dtype)
        counts = torch.bincount(self._groups, minlength=self._n_groups)
        return sums.index_add_(0, self._groups, values) / counts[:, None]

    def _noisy_gradient(self, errors: torch.Tensor) -> torch.Tensor:
        """(Σ clipped gradients + N(0, σ²C²)) / n."""
        runs, classes = self._weights.shape[1:]
        total = (self._x.T @ errors.flatten(1)).reshape(-1, runs, classes) / len(self._x)
        for noise, part in zip(self._generators, total.chunk(len(self._generators), 1), strict=True):
            shape = (self._x.shape[1], 1, self._n_classes)
            drawn = torch.randn(shape, generator=noise, device=part.device, dtype=part.dtype)
            part[..., : self._n_classes].add_(drawn, alpha=self._stddev)
        return total


def rounded(values: Any) -> Any:
    """A number or an array for a file, to four places; what is not finite is a large number."""
    return np.round(np.nan_to_num(np.asarray(values, np.float64), nan=1e9, posinf=1e9), 4).tolist()
