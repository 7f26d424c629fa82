"""Steps of the four optimizers for many runs at once, each with its own rate and constant; a test compares the library.

Sizes of steps are named alike for all: the *effective rate* is what a constant gradient is multiplied by in the long
run, where the second moment is all noise. So settings of different optimizers lie on one scale, and a search can go
over it in the same way for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

OPTIMIZERS = ("DP-GD", "DP-GDM", "DP-Adam", "DP-AdamBC")
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


def has_constant(optimizer: str) -> bool:
    """Whether an optimizer has a constant beside its rate."""
    return "Adam" in optimizer


def setting_for(optimizer: str, effective: float, constant: float, stddev: float) -> Setting:
    """The setting with an effective rate: lr, lr / (1 − momentum), lr / (s + γ) or lr / √γ', s the noise's deviation.

    >>> setting_for("DP-GDM", 2.0, 0.0, 1e-3).lr
    0.2
    """
    match optimizer:
        case "DP-GD":
            return Setting(optimizer, effective)
        case "DP-GDM":
            return Setting(optimizer, float(f"{effective * (1 - MOMENTUM):.12g}"))
        case "DP-Adam":
            return Setting(optimizer, effective * stddev * (1 + constant), constant)
        case _:
            return Setting(optimizer, effective * stddev * math.sqrt(constant), constant)


class Updates:
    """The state of many runs of one optimizer.

    Args:
        optimizer: its name.
        lr: learning rates, in a shape that fits the weights.
        constant: likewise.
        stddev: of the noise in a gradient.
    """

    def __init__(self, optimizer: str, lr: Tensor, constant: Tensor, stddev: float) -> None:
        self._kind = optimizer
        self._lr = lr
        self._constant = constant
        self._stddev = stddev
        self._first: Tensor | None = None
        self._second: Tensor | None = None
        self._taken = 0

    def apply(self, weights: Tensor, gradient: Tensor) -> None:
        """Move the weights in place; the gradient is overwritten."""
        self._taken += 1
        if self._kind == "DP-GD":
            weights.sub_(gradient.mul_(self._lr))
            return
        if self._first is None:
            self._first = torch.zeros_like(gradient)
        if self._kind == "DP-GDM":
            self._first.mul_(MOMENTUM).add_(gradient)
            weights.addcmul_(self._first, self._lr, value=-1)
            return
        self._first.lerp_(gradient, 1 - BETAS[0])
        step = torch.div(self._first, self._divisor(gradient), out=gradient)
        weights.addcmul_(step, self._lr, value=-1 / (1 - BETAS[0] ** self._taken))

    def _divisor(self, gradient: Tensor) -> Tensor:
        if self._second is None:
            self._second = torch.zeros_like(gradient)
        self._second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        moment = torch.div(self._second, 1 - BETAS[1] ** self._taken, out=gradient)
        if self._kind == "DP-Adam":
            return moment.sqrt_().add_(self._constant * self._stddev)
        variance = self._stddev**2
        return torch.maximum(moment.sub_(variance), self._constant * variance).sqrt_()
