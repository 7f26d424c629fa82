"""Many private trainings of a small module side by side on a GPU: each row's gradient, for every run at once.

Runs differ in optimizer and settings, and share start, samples and noise. A row's gradient is formed by torch.func,
clipped as a whole and added up; Poisson samples and noise come from a seeded torch generator, so what comes out is for
studies. Clipping and updates are those of `apportion.training`; a test compares the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from papers.heavy_tail.many_runs import Curves
from papers.heavy_tail.updates import Setting, Updates

Score = Callable[[dict[str, Tensor], Tensor], Tensor]
"""Takes parameters by name and one row; returns scores of classes along the first axis, then positions if any."""


@dataclass(frozen=True)
class Task:
    """What is trained, on which rows.

    Attributes:
        score: the module, as a function of its parameters and one row.
        start: the parameters at the start.
        inputs: rows.
        targets: the class of each row, or of each of its positions.
        groups: the frequency group of each target.
        n_groups: how many groups there are.
        watched: how many rows are scored, the first of them; None for all.
    """

    score: Score
    start: dict[str, Tensor]
    inputs: Tensor
    targets: Tensor
    groups: NDArray[np.int64]
    n_groups: int
    watched: int | None = None


@dataclass(frozen=True)
class Privacy:
    """How rows take part, and the noise.

    Attributes:
        clip_norm: C.
        noise_multiplier: σ.
        sampling: probability with which a row takes part in a step.
    """

    clip_norm: float
    noise_multiplier: float
    sampling: float


class ManyTrainings:
    """Trainings side by side.

    Args:
        task: what is trained.
        privacy: clipping, noise and samples.
        settings: of the runs; those of one optimizer stand together.
        seed: of noise and samples, which all runs share.
        device: a torch device.
        rows_at_once: rows of a batch whose gradients are held at a time.
    """

    def __init__(
        self, task: Task, privacy: Privacy, settings: Sequence[Setting], seed: int, device: str, rows_at_once: int = 512
    ) -> None:
        self._score = task.score
        self._privacy = privacy
        self._rows_at_once = rows_at_once
        self._inputs, self._targets = task.inputs.to(device), task.targets.to(device)
        self._groups = torch.as_tensor(task.groups, device=device)[: task.watched]
        self._n_groups, self._watched = task.n_groups, task.watched
        self._shapes = {name: value.shape for name, value in task.start.items()}
        flat = torch.cat([value.detach().flatten() for value in task.start.values()]).to(device)
        self.weights = flat.repeat(len(settings), 1)
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._expected = privacy.sampling * len(task.inputs)
        stddev = privacy.noise_multiplier * privacy.clip_norm / self._expected
        self._updates: list[tuple[slice, Updates]] = []
        first = 0
        for name, some in itertools.groupby(settings, lambda setting: setting.optimizer):
            held = list(some)
            lr, constant = (
                self.weights.new_tensor(values)[:, None]
                for values in ([s.lr for s in held], [s.constant for s in held])
            )
            self._updates.append((slice(first, first + len(held)), Updates(name, lr, constant, stddev)))
            first += len(held)

    def run(self, steps: int, every: int) -> Curves:
        """Take the steps; look at every so many of them, and at the end."""
        seen = []
        for step in range(steps):
            if step % every == 0:
                seen.append((step, self._look()))
            gradient = self._noisy_gradient()
            for part, updates in self._updates:
                updates.apply(self.weights[part], gradient[part])
        seen.append((steps, self._look()))
        losses, group_losses, accuracies = (np.stack([found[k] for _, found in seen], 1) for k in range(3))
        return Curves(np.array([step for step, _ in seen]), losses, group_losses, accuracies)

    def _named(self) -> dict[str, Tensor]:
        """The runs' parameters by name, views of the weights."""
        sizes = [shape.numel() for shape in self._shapes.values()]
        parts = self.weights.split(sizes, 1)
        return {name: p.unflatten(1, s) for (name, s), p in zip(self._shapes.items(), parts, strict=True)}

    def _noisy_gradient(self) -> Tensor:
        """(Σ clipped gradients of a Poisson sample + N(0, σ²C²)) / expected rows, for every run."""
        n, clip = len(self._inputs), self._privacy.clip_norm
        rows = torch.arange(n, device=self.weights.device)
        if self._privacy.sampling < 1:
            drawn = torch.rand(n, generator=self._generator, device=self.weights.device)
            rows = rows[drawn < self._privacy.sampling]
        total = torch.zeros_like(self.weights)
        by_row = vmap(vmap(grad(self._loss), in_dims=(None, 0, 0)), in_dims=(0, None, None))
        for some in rows.split(self._rows_at_once) if len(rows) else ():
            found = by_row(self._named(), self._inputs[some], self._targets[some])
            blocks = [value.flatten(2) for value in found.values()]
            norms = torch.stack([torch.linalg.vector_norm(b, dim=2) for b in blocks]).square().sum(0).sqrt()
            factors = clip / norms.clamp_min(clip)
            total += torch.cat([torch.bmm(factors[:, None], b)[:, 0] for b in blocks], 1)
        noise = torch.randn(total.shape[1], generator=self._generator, device=total.device, dtype=total.dtype)
        return total.add_(noise, alpha=clip * self._privacy.noise_multiplier).div_(self._expected)

    def _loss(self, parameters: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        """Of one row; positions are averaged."""
        return functional.cross_entropy(self._score(parameters, row)[None], target[None])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _look(self) -> tuple[NDArray[np.float64], ...]:
        """Loss, and losses and accuracies by group, of every run."""
        runs, named = len(self.weights), self._named()
        both = vmap(vmap(self._score, in_dims=(None, 0)), in_dims=(0, None))
        lost, right = [], []
        watched = self._inputs[: self._watched], self._targets[: self._watched]
        for inputs, targets in zip(*(part.split(self._rows_at_once) for part in watched), strict=True):
            scores = both(named, inputs).movedim(2, -1)
            at = targets.expand(runs, *targets.shape)
            lost.append(functional.cross_entropy(scores.flatten(0, -2), at.flatten(), reduction="none").view(runs, -1))
            right.append((scores.argmax(-1) == at).view(runs, -1))
        losses, hits = torch.cat(lost, 1).double(), torch.cat(right, 1).double()
        groups = self._groups.flatten()
        counts = torch.bincount(groups, minlength=self._n_groups).double()
        by_group = [
            torch.zeros((runs, self._n_groups), dtype=torch.float64, device=losses.device).index_add_(1, groups, v)
            / counts
            for v in (losses, hits)
        ]
        return tuple(v.cpu().numpy() for v in (losses.mean(1), *by_group))


def cnn_scores(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
    """`models.SmallCnn` on one image, its convolutions as products of matrices."""
    p = parameters
    padded = functional.pad(image, (3, 3, 3, 3))
    h = _convolved(padded, p["first.weight"], p["first.bias"])
    h = _convolved(_pooled(h), p["second.weight"], p["second.bias"])
    hidden = torch.relu(p["hidden.weight"] @ _pooled(h).flatten() + p["hidden.bias"])
    return p["out.weight"] @ hidden + p["out.bias"]


def _convolved(image: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution with an even kernel and stride 2, and its positive part.

    Windows are put together from blocks of 2 x 2 pixels, by operations that torch.func can take for many at once.
    """
    channels, half = len(image), weight.shape[-1] // 2
    blocks = image.shape[-1] // 2
    places = blocks - half + 1
    pairs = image[:, : 2 * blocks, : 2 * blocks].reshape(channels, blocks, 2, blocks, 2)
    windows = torch.stack(
        [pairs[:, a : a + places, :, b : b + places] for a, b in itertools.product(range(half), repeat=2)]
    ).unflatten(0, (half, half))
    flat = windows.permute(2, 0, 4, 1, 6, 3, 5).reshape(channels * 4 * half**2, places**2)
    return torch.relu(weight.flatten(1) @ flat + bias[:, None]).reshape(len(weight), places, places)


def _pooled(image: Tensor) -> Tensor:
    return functional.max_pool2d(image[None], 2, 1)[0]


def token_scores(module: torch.nn.Module) -> Score:
    """A module that takes rows of tokens, as a function of its parameters and one row."""

    def score(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # the one that torch.func can take for many rows at once
            scores: Tensor = torch.func.functional_call(module, parameters, (row[None],))
        return scores[0]

    return score
