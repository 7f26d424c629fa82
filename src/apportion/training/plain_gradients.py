"""Gradients without privacy, to compare private runs with."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from apportion.training.known_noise import NO_NOISE, AddedNoise, KnownNoiseOptimizer
from apportion.training.per_unit import Loss, trainable
from apportion.training.units import Units


class PlainGradients:
    """Gradients of full batches without clipping or noise, to compare private runs with. Not private.

    Args:
        module: what is trained.
        loss: as for `PrivateGradients`.
        units: the training rows.
        rows_at_once: how many rows go through the module at a time.
    """

    def __init__(self, module: nn.Module, loss: Loss, units: Units, rows_at_once: int = 256) -> None:
        self._module = module
        self._loss = loss
        self._units = units
        self._rows_at_once = rows_at_once

    def fill(self, optimizer: torch.optim.Optimizer | None = None) -> AddedNoise:
        """Put the mean gradient into `grad`."""
        parameters = list(trainable(self._module).values())
        totals = [torch.zeros_like(p) for p in parameters]
        for inputs, targets, _ in self._units.batches(np.arange(len(self._units)), self._rows_at_once):
            losses = self._loss(self._module(inputs), targets).sum()
            for total, gradient in zip(totals, torch.autograd.grad(losses, parameters), strict=True):
                total += gradient
        for parameter, total in zip(parameters, totals, strict=True):
            parameter.grad = total / max(1, len(self._units))
        if isinstance(optimizer, KnownNoiseOptimizer):
            optimizer.gradients_carry(NO_NOISE)
        return NO_NOISE
