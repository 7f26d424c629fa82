"""What clipping and noise do to watched units. It is computed from raw data and not covered by ε.

A unit is what training clips: a user with all watched rows, or one row. Its length is taken in the metric in which the
step clips, so the figures describe what really happens.
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
_ROWS = 256  # rows at a time


class WatchedRows:
    """Raw rows, ordered by unit.

    Args:
        inputs: rows of model inputs.
        targets: their targets.
        class_groups: the group of each target, from 0.
        users: the user of each row; None if each row is a unit.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, class_groups: ArrayLike, users: ArrayLike | None) -> None:
        self._targets = targets
        self._class_groups = torch.as_tensor(np.asarray(class_groups, np.int64))
        if self._class_groups.shape != targets.shape:
            raise InputError(
                "Expected a group for each target, got class_groups of shape "
                f"{tuple(self._class_groups.shape)} for targets of shape {tuple(targets.shape)}.",
                argument="class_groups",
            )
        places = torch.arange(len(inputs))
        self.units = ExampleRows(inputs, places) if users is None else UserRows(inputs, places, users)

    def batches(self) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor, Tensor, Tensor]]:
        """Yield units with their inputs, targets, class groups and offsets, in batches."""
        first = 0
        for inputs, places, offsets in self.units.batches(np.arange(len(self.units)), _ROWS):
            units = np.arange(first, first + len(offsets) - 1)
            yield units, inputs, self._targets[places.to(self._targets.device)], self._class_groups[places], offsets
            first += len(units)


def clip_factors(module: nn.Module, loss: Loss, rows: WatchedRows, step: ComingStep) -> Floats:
    """Return the factor of each unit's gradient: 1 within the clip norm, less beyond, 0 if it is not finite."""
    parameters, way = list(trainable(module).values()), None
    scales = [step.noise.scales.get(p) for p in parameters]
    factors = np.zeros(len(rows.units))
    for units, inputs, targets, _, offsets in rows.batches():
        way = way or gradient_way(module, loss, inputs, targets)
        blocks = way.blocks(inputs, targets, offsets)
        parts = means_of_units(blocks, offsets) if step.mean_of_rows else blocks
        squares = [part.squared_norms(scale).double().cpu() for part, scale in zip(parts, scales, strict=True)]
        lengths = torch.stack(squares).sum(0).clamp_min(0).sqrt()
        result = step.clip_norm / lengths.clamp_min(step.clip_norm)
        factors[units] = result.where(lengths.isfinite(), 0.0).numpy()
    return factors


def noise_to_signal(
    module: nn.Module, loss: Loss, rows: WatchedRows, n_class_groups: int, step: ComingStep, factors: Floats
) -> Floats:
    """Return the length of a step's noise over that of each group's part of the mean clipped gradient.

    A unit's gradient is split by the groups of its targets. To this end, the derivatives of its loss in the outputs are
    split; outputs have their classes on axis 1. The mean is over the watched units, as if they were all units or a fair
    sample. A group without targets gets NaN.

    Args:
        module: the module before the step.
        loss: the training loss.
        rows: the watched rows.
        n_class_groups: the number of groups.
        step: how the step treats units.
        factors: the factor of each unit's gradient, from `clip_factors`.
    """
    parameters = list(trainable(module).values())
    sums = [[torch.zeros(p.shape, dtype=torch.float64) for p in parameters] for _ in range(n_class_groups)]
    seen = np.zeros(n_class_groups, bool)
    for units, inputs, targets, class_groups, offsets in rows.batches():
        seen[np.unique(class_groups.numpy())] = True
        sizes = offsets.diff()
        by_unit = torch.as_tensor(factors[units]) / (sizes.clamp_min(1) if step.mean_of_rows else 1)
        weights = by_unit.repeat_interleave(sizes)
        kept = weights > 0  # zero times a non-finite number would not be zero
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
            result = torch.autograd.grad(outputs, parameters, part, retain_graph=True, allow_unused=True)
            for total, gradient in zip(sums[group], result, strict=True):
                if gradient is not None:
                    total += gradient.double().cpu()


def _length(parts: Sequence[Tensor]) -> float:
    return float(torch.stack([part.square().sum() for part in parts]).sum().sqrt())


def _length_of_noise(noise: AddedNoise, parameters: Sequence[nn.Parameter]) -> float:
    """Return the square root of the sum of all coordinates' variances."""
    total = 0.0
    for parameter in parameters:
        variance = noise.variance_of(parameter)
        total += float(variance.double().sum()) if isinstance(variance, Tensor) else variance * parameter.numel()
    return float(np.sqrt(total))
