"""Many private runs of a linear softmax model side by side: full batches, one product of matrices for all of them.

For the linear model the gradient of row i is (p_i − y_i) x_iᵀ, of length ‖p_i − y_i‖ ‖x_i‖, so it is clipped without
being formed. Runs differ in their settings; those of one seed share data and noise, so that they differ in nothing
else. Noise is
seeded: what comes out is for studies. The updates are those of `apportion.optim`; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from papers.heavy_tail.long_tail import LongTail

BETAS = (0.9, 0.999)
MOMENTUM = 0.9


@dataclass(frozen=True)
class Setting:
    """One optimizer with its settings.

    Attributes:
        optimizer: DP-GD, DP-GDM, DP-Adam or DP-AdamBC.
        lr: learning rate.
        constant: γ over the noise's standard deviation for DP-Adam, floor γ' over its variance for DP-AdamBC.
    """

    optimizer: str
    lr: float
    constant: float = 0.0


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
    """Runs of one optimizer, side by side.

    Args:
        data: the training rows.
        settings: of the runs; all of one optimizer.
        clip_norm: C.
        noise_multiplier: σ.
        seed: of the noise, which all runs share.
        device: a torch device.
        dtype: of everything.
    """

    def __init__(
        self,
        data: LongTail,
        settings: list[Setting],
        clip_norm: float,
        noise_multiplier: float,
        seed: int,
        device: str,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._kind = settings[0].optimizer
        self._x = torch.as_tensor(data.inputs, device=device).to(dtype)
        self._labels = torch.as_tensor(data.labels, device=device)
        self._groups = torch.as_tensor(data.groups, device=device)
        self._n_groups, self._n_classes = len(data.sizes), data.n_classes
        self._lengths = torch.linalg.vector_norm(self._x, dim=1)
        self._clip, self._stddev = clip_norm, noise_multiplier * clip_norm / len(data.labels)
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self.weights = torch.zeros((self._x.shape[1], len(settings), data.n_classes), device=device, dtype=dtype)
        shape = (1, len(settings), 1)
        self._lr = torch.tensor([s.lr for s in settings], device=device, dtype=dtype).reshape(shape)
        self._constant = torch.tensor([s.constant for s in settings], device=device, dtype=dtype).reshape(shape)
        self._first = torch.zeros_like(self.weights) if self._kind != "DP-GD" else None
        self._second = torch.zeros_like(self.weights) if "Adam" in self._kind else None
        self._taken = 0

    def run(self, steps: int, every: int) -> Curves:
        """Take the steps; look at every so many of them, and at the end."""
        seen: list[tuple[int, Any]] = []
        for step in range(steps):
            errors, found = self._errors(look=step % every == 0)
            if found is not None:
                seen.append((step, found))
            self._update(self._noisy_gradient(errors))
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
        runs, classes = self.weights.shape[1:]
        scores = (self._x @ self.weights.flatten(1)).reshape(len(self._x), runs, classes)
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
        runs, classes = self.weights.shape[1:]
        total = (self._x.T @ errors.flatten(1)).reshape(-1, runs, classes) / len(self._x)
        shape = (self._x.shape[1], 1, classes)
        return total.add_(
            torch.randn(shape, generator=self._generator, device=total.device, dtype=total.dtype), alpha=self._stddev
        )

    def _update(self, gradient: torch.Tensor) -> None:
        self._taken += 1
        if self._first is None:
            self.weights.sub_(gradient.mul_(self._lr))
        elif self._second is None:
            self._first.mul_(MOMENTUM).add_(gradient)
            self.weights.addcmul_(self._first, self._lr, value=-1)
        else:
            self._first.lerp_(gradient, 1 - BETAS[0])
            self._second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            moment = torch.div(self._second, 1 - BETAS[1] ** self._taken, out=gradient)
            if self._kind == "DP-Adam":
                divisor = moment.sqrt_().add_(self._constant * self._stddev)
            else:
                variance = self._stddev**2
                divisor = torch.maximum(moment.sub_(variance), self._constant * variance).sqrt_()
            step = torch.div(self._first, divisor, out=divisor)
            self.weights.addcmul_(step, self._lr, value=-1 / (1 - BETAS[0] ** self._taken))
