"""DP-Adam and DP-AdamBC: Algorithm 2 of the heavy-tail paper, applied after the gradient was released.

The second moment of a noisy gradient is too large by the variance of the noise: E[v̂_t] = E[ĝ²]_t + n_t, where n_t is
the same moving average of the added variances, (σC/L)² if they are all equal. DP-AdamBC divides by
√max(v̂_t − n_t, floor) (Tang, Shpilevskiy and Lécuyer, 2023), DP-Adam by √v̂_t + γ.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from apportion.training.known_noise import AddedNoise, KnownNoiseOptimizer, decayed, require

_TINY = 1e-16  # least second moment: the square of Adam's usual 1e-8


class _Moments(KnownNoiseOptimizer):
    """The common part: moving averages of gradients and of their squares, corrected for their start at zero."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        require("lr", defaults["lr"], low=0)
        require("weight_decay", defaults["weight_decay"], low=0)
        for beta in defaults["betas"]:
            require("each beta", beta, low=0, high=1, strictly_below=True)
        super().__init__(params, defaults)

    def _update(self, parameter: Tensor, group: dict[str, Any], noise: AddedNoise) -> None:
        gradient, state = decayed(parameter, group), self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        first, second = group["betas"]
        state["step"] += 1
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        taken = state["step"].item()
        squares = state["exp_avg_sq"] / (1 - second**taken)
        self._remember(parameter, group, noise)
        divisor = self._divisor(squares, state, group, 1 - second**taken)
        parameter.addcdiv_(state["exp_avg"], divisor, value=-group["lr"] / (1 - first**taken))

    def _remember(self, parameter: Tensor, group: dict[str, Any], noise: AddedNoise) -> None:
        """Store what a divisor needs to know about the noise; by default, nothing."""

    @abstractmethod
    def _divisor(self, squares: Tensor, state: dict[str, Any], group: dict[str, Any], weight: float) -> Tensor:
        """Return the divisor of the first moment."""


class DPAdam(_Moments):
    """Adam on released gradients: θ ← θ − η m̂ / (√v̂ + eps), with v̂ raised to a floor if there is one.

    With noiseless gradients it takes the steps of `torch.optim.Adam`, or of AdamW if weight decay is decoupled.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate η.
        betas: of the moving averages of gradients and of their squares.
        eps: the stability constant γ, added to √v̂.
        weight_decay: of parameters towards 0.
        floor: the least v̂ that is divided by.
        decoupled_weight_decay: shrink parameters by η · weight_decay, instead of adding to gradients.

    Privacy: post-processing of released gradients.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        floor: float = 0.0,
        decoupled_weight_decay: bool = False,
    ) -> None:
        require("eps", eps, low=0)
        require("floor", floor, low=0)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "floor": floor,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def _divisor(self, squares: Tensor, state: dict[str, Any], group: dict[str, Any], weight: float) -> Tensor:
        if group["floor"]:
            squares = squares.clamp_min(group["floor"])
        return squares.sqrt().add_(group["eps"])


class DPAdamBC(_Moments):
    """Adam on released gradients, with the noise variance removed from the second moment.

    θ ← θ − η m̂ / √max(v̂ − n̂, γ'), where n̂ averages the variances of the noise that was added, as v̂ averages
    squares; the floor γ' is the larger of `floor` and `noise_floor` · n̂. v̂ − n̂ has no bias, whether or not noise,
    clip norm and batch size stay the same over the steps.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate η.
        betas: of the moving averages of gradients and of their squares.
        noise_floor: relative part of the floor, in units of the noise variance.
        floor: absolute part of the floor.
        weight_decay: of parameters towards 0.
        decoupled_weight_decay: shrink parameters by η · weight_decay, instead of adding to gradients.

    Privacy: post-processing of released gradients; the variance is a public number.
    """

    needs_noise = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        noise_floor: float = 1.0,
        weight_decay: float = 0.0,
        *,
        floor: float = _TINY,
        decoupled_weight_decay: bool = False,
    ) -> None:
        require("noise_floor", noise_floor, low=0)
        require("floor", floor, low=math.ulp(0.0))
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "noise_floor": noise_floor,
                "weight_decay": weight_decay,
                "floor": floor,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    def second_moment(self, parameter: Tensor) -> Tensor:
        """Return the unbiased estimate v̂ − n̂ of a parameter's squared gradients, before the floor."""
        state, second = self.state[parameter], self._betas_of(parameter)[1]
        weight = 1 - second ** state["step"].item()
        return torch.as_tensor((state["exp_avg_sq"] - state["noise_sq"]) / weight)

    def _betas_of(self, parameter: Tensor) -> tuple[float, float]:
        for group in self.param_groups:
            if any(held is parameter for held in group["params"]):
                first, second = group["betas"]
                return first, second
        raise KeyError("not a parameter of this optimizer")

    def _remember(self, parameter: Tensor, group: dict[str, Any], noise: AddedNoise) -> None:
        state, second = self.state[parameter], group["betas"][1]
        variance = torch.as_tensor(noise.variance_of(parameter), dtype=parameter.dtype, device=parameter.device)
        before = state.get("noise_sq", torch.zeros_like(variance))
        state["noise_sq"] = second * before + (1 - second) * variance

    def _divisor(self, squares: Tensor, state: dict[str, Any], group: dict[str, Any], weight: float) -> Tensor:
        noise = state["noise_sq"] / weight
        least = torch.clamp(group["noise_floor"] * noise, min=group["floor"])
        return torch.maximum(squares.sub_(noise), least).sqrt_()
