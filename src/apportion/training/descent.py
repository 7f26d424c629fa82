"""DP-GD and DP-SGD, with or without momentum: Algorithm 1 of the heavy-tail paper, after the gradient was released."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from apportion.errors import InputError
from apportion.linalg import device_copies
from apportion.training.known_noise import AddedNoise, KnownNoiseOptimizer, decayed, require


class DPSGD(KnownNoiseOptimizer):
    """Gradient descent on released gradients: θ ← θ − η b, b ← μ b + (1 − dampening) g̃, with b = g̃ at first.

    With full batches it is DP-GD, with Poisson batches DP-SGD, with momentum DP-GDM. With noiseless gradients it takes
    the steps of `torch.optim.SGD`.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate η.
        momentum: μ.
        dampening: dampening of new gradients in the momentum.
        nesterov: whether to look one momentum step ahead.
        weight_decay: decay of parameters towards 0.
        decoupled_weight_decay: shrink parameters by η · weight_decay, instead of adding to gradients.

    Privacy: post-processing of released gradients.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        decoupled_weight_decay: bool = False,
    ) -> None:
        require("lr", lr, low=0)
        require("momentum", momentum, low=0)
        require("weight_decay", weight_decay, low=0)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InputError(
                f"Expected momentum above 0 and no dampening with nesterov, got {momentum} and {dampening}.",
                argument="nesterov",
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def _update_together(self, parameters: list[Tensor], group: dict[str, Any]) -> bool:
        on_gpu = bool(parameters) and all(device_copies.asynchronous(p.device) for p in parameters)
        if not on_gpu or group["momentum"] or group["weight_decay"]:
            return False
        torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-group["lr"])
        return True

    def _update(self, parameter: Tensor, group: dict[str, Any], noise: AddedNoise) -> None:
        gradient, momentum = decayed(parameter, group), group["momentum"]
        if momentum:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = gradient.clone()
            else:
                state["momentum_buffer"].mul_(momentum).add_(gradient, alpha=1 - group["dampening"])
            held = state["momentum_buffer"]
            gradient = gradient.add(held, alpha=momentum) if group["nesterov"] else held
        parameter.add_(gradient, alpha=-group["lr"])
