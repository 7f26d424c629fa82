"""What clipping and noise do to watched units, computed from raw data: nothing here is covered by ε.

A unit is what is clipped in training: a user with all watched rows, or one row. Its length is taken in the metric that
the step clips in, so that the figures are about the very thing that happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.clipping import ComingStep
from apportion.training.known_noise import AddedNoise
from apportion.training.per_unit import Loss, gradient_way, means_of_units, trainable
from apportion.training.units import ExampleRows, UserRows

Floats = NDArray[np.float64]
_ROWS = 256  # at a time


class WatchedRows:
    """Raw rows in the order of the units that they belong to.

    Args:
        inputs: rows of model inputs.
        targets: their targets.
        class_groups: the group of each target, from 0.
        users: whose row it is; None where each row is a unit.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, class_groups: ArrayLike, users: ArrayLike | None) -> None:
        self._targets = targets
        self._class_groups = torch.as_tensor(np.asarray(class_groups, np.int64))
        if self._class_groups.shape != targets.shape:
            raise InputError(
                f"Expected a group for each target, got class_groups of shape "
                f"{tuple(self._class_groups.shape)} for targets of "
                f"shape {tuple(targets.shape)}."
            )
        places = torch.arange(len(inputs))
        self.units = ExampleRows(inputs, places) if users is None else UserRows(inputs, places, users)

    def batches(self) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor, Tensor, Tensor]]:
        """Units, and their inputs, targets, class groups and offsets, some at a time."""
        first = 0
        for inputs, places, offsets in self.units.batches(np.arange(len(self.units)), _ROWS):
            units = np.arange(first, first + len(offsets) - 1)
            yield units, inputs, self._targets[places.to(self._targets.device)], self._class_groups[places], offsets
            first += len(units)


def clip_factors(module: nn.Module, loss: Loss, rows: WatchedRows, step: ComingStep) -> Floats:
    """What each unit's gradient is multiplied by: 1 within the clip norm, less beyond, 0 if it is not finite."""
    parameters, way = list(trainable(module).values()), None
    scales = [step.noise.scales.get(p) for p in parameters]
    factors = np.zeros(len(rows.units))
    for units, inputs, targets, _, offsets in rows.batches():
        way = way or gradient_way(module, loss, inputs, targets)
        blocks = way.blocks(inputs, targets, offsets)
        parts = means_of_units(blocks, offsets) if step.mean_of_rows else blocks
        squares = [part.squared_norms(scale).double().cpu() for part, scale in zip(parts, scales, strict=True)]
        lengths = torch.stack(squares).sum(0).clamp_min(0).sqrt()
        found = step.clip_norm / lengths.clamp_min(step.clip_norm)
        factors[units] = found.where(lengths.isfinite(), 0.0).numpy()
    return factors


def noise_to_signal(
    module: nn.Module, loss: Loss, rows: WatchedRows, n_class_groups: int, step: ComingStep, factors: Floats
) -> Floats:
    """Length of a step's noise over that of each group's part of the units' mean clipped gradient.

    A unit's gradient is split by the groups of its targets: the slopes of its loss in the outputs are, and outputs have
    their classes on axis 1. The mean is over the watched units, as if they were all units, or a fair sample of them.
    NaN for a group without targets.

    Args:
        module: as it is before the step.
        loss: that is trained with.
        rows: that are watched.
        n_class_groups: how many of these groups there are.
        step: how the step treats units.
        factors: what each unit's gradient is multiplied by, from `clip_factors`.
    """
    parameters = list(trainable(module).values())
    sums = [[torch.zeros(p.shape, dtype=torch.float64) for p in parameters] for _ in range(n_class_groups)]
    seen = np.zeros(n_class_groups, bool)
    for units, inputs, targets, class_groups, offsets in rows.batches():
        seen[np.unique(class_groups.numpy())] = True
        sizes = offsets.diff()
        by_unit = torch.as_tensor(factors[units]) / (sizes.clamp_min(1) if step.mean_of_rows else 1)
        weights = by_unit.repeat_interleave(sizes)
        kept = weights > 0  # zero times what is not finite would not be zero
        if bool(kept.any()):
            chosen = [part[kept.to(part.device)] for part in (inputs, targets)]
            _add_parts(sums, module, loss, (chosen[0], chosen[1]), class_groups[kept], weights[kept], parameters)
    signal = np.array([_length(parts) for parts in sums]) / max(1, len(rows.units))
    noise = _length_of_noise(step.noise, parameters)
    ratios = np.divide(noise, signal, out=np.full(n_class_groups, np.inf), where=signal > 0)
    return np.where(seen, ratios, np.nan)


def _add_parts(
    sums: list[list[Tensor]],
    module: nn.Module,
    loss: Loss,
    rows: tuple[Tensor, Tensor],
    class_groups: Tensor,
    weights: Tensor,
    parameters: Sequence[nn.Parameter],
) -> None:
    """Add the weighted gradients of some rows to the sums of their groups."""
    with torch.enable_grad():
        outputs = module(rows[0])
        losses = loss(outputs, rows[1])
        weighted = losses * weights.to(losses).reshape(-1, *[1] * (losses.dim() - 1))
        (slopes,) = torch.autograd.grad(weighted.sum(), outputs, retain_graph=True)
        for group in class_groups.unique().tolist():
            part = slopes * (class_groups == group).to(slopes.device).unsqueeze(1)
            found = torch.autograd.grad(outputs, parameters, part, retain_graph=True, allow_unused=True)
            for total, gradient in zip(sums[group], found, strict=True):
                if gradient is not None:
                    total += gradient.double().cpu()


def _length(parts: Sequence[Tensor]) -> float:
    return float(torch.stack([part.square().sum() for part in parts]).sum().sqrt())


def _length_of_noise(noise: AddedNoise, parameters: Sequence[nn.Parameter]) -> float:
    """The root of the sum of all coordinates' variances."""
    total = 0.0
    for parameter in parameters:
        variance = noise.variance_of(parameter)
        total += float(variance.double().sum()) if isinstance(variance, Tensor) else variance * parameter.numel()
    return float(np.sqrt(total))
