"""The noise in the gradients of a step, and the common part of the optimizers, which learn of it at every step.

A bias correction subtracts the variance of the noise that was really added. So nobody passes that variance by hand.
Whatever adds noise to gradients (`PrivateGradients`, or Opacus through `for_opacus`) makes an `AddedNoise` from what it
did, and passes it to the optimizer together with the gradients. It is used for one step and then forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as of_optimizers

from apportion.errors import InputError


@dataclass(frozen=True)
class AddedNoise:
    """The noise in the gradients of one step: N(0, (stddev / divisor)²) in every coordinate, times relative scales.

    Attributes:
        stddev: standard deviation of the noise on the clipped sum: noise multiplier times sensitivity.
        divisor: the divisor of the noisy sum: the EXPECTED number of units in a batch, or 1 for a sum.
        scales: relative noise of each coordinate, one tensor for each parameter that has any; 1 for all others.
    """

    stddev: float
    divisor: float
    scales: Mapping[Tensor, Tensor] = field(default_factory=dict)

    @property
    def variance(self) -> float:
        """The variance of one coordinate of a gradient with relative scale 1: (σC/L)²."""
        return (self.stddev / self.divisor) ** 2

    def variance_of(self, parameter: Tensor) -> Tensor | float:
        """Return the variance of the coordinates of one parameter's gradient."""
        scales = self.scales.get(parameter)
        return self.variance if scales is None else self.variance * scales.square()


NO_NOISE = AddedNoise(0.0, 1.0)


class KnownNoiseOptimizer(torch.optim.Optimizer, ABC):  # type: ignore[misc]
    """A PyTorch optimizer that knows the noise in its gradients.

    All features of PyTorch optimizers work: parameter groups, `state_dict`, learning-rate schedulers, parameters on
    several devices. Steps are post-processing of released gradients.
    """

    needs_noise = False

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        self._added: AddedNoise | None = None

    def gradients_carry(self, noise: AddedNoise) -> None:
        """Set the noise in the gradients of the coming step; called by the code that added it."""
        self._added = noise

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy or a pickle. The noise of a pending step is not restored."""
        super().__setstate__(state)
        self._added = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have gradients. A closure would compute gradients without privacy."""
        given = () if closure is None else (closure,)
        wrapped = type(self).step is not KnownNoiseOptimizer.step  # by PyTorch: a step of a subclass, around this one
        return self._step(*given) if wrapped or not _seen_by_others(self) else self._seen_step(*given)

    step.hooked = True  # type: ignore[attr-defined]  # so PyTorch does not wrap it again, which takes longer than a step

    def _step(self, closure: Callable[[], Any] | None = None) -> None:
        if closure is not None:
            raise InputError(
                "Expected no closure: gradients must come from private releases, not from a closure.",
                argument="closure",
            )
        if self._added is None and self.needs_noise:
            raise InputError(
                f"{type(self).__name__} must know the noise in its gradients before every step; let "
                "PrivateGradients fill them, or pass the Opacus optimizer to for_opacus.follow.",
                argument=None,
            )
        noise, self._added = self._added or NO_NOISE, None
        with torch.no_grad():
            for group in self.param_groups:
                held = [parameter for parameter in group["params"] if parameter.grad is not None]
                if not self._update_together(held, group):
                    for parameter in held:
                        self._update(parameter, group, noise)

    _seen_step = torch.optim.Optimizer.profile_hook_step(_step)  # with hooks, and known to profilers

    def _update_together(self, parameters: list[Tensor], group: dict[str, Any]) -> bool:
        """Move all parameters of a group in few operations, if that is worth it; return whether it was done."""
        return False

    @abstractmethod
    def _update(self, parameter: Tensor, group: dict[str, Any], noise: AddedNoise) -> None:
        """Move one parameter by its gradient."""


def _seen_by_others(optimizer: torch.optim.Optimizer) -> bool:
    """Whether hooks or a profiler want to know of steps; if torch no longer tells, yes."""
    try:
        hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
        of_all = of_optimizers._global_optimizer_pre_hooks or of_optimizers._global_optimizer_post_hooks
        return bool(hooks or of_all or torch.autograd._profiler_enabled())
    except AttributeError:
        return True


def decayed(parameter: Tensor, group: dict[str, Any]) -> Tensor:
    """Return the gradient after weight decay. Decoupled decay shrinks the parameter instead, in place."""
    gradient = parameter.grad
    assert gradient is not None
    if not group["weight_decay"]:
        return gradient
    if group["decoupled_weight_decay"]:
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        return gradient
    return gradient.add(parameter, alpha=group["weight_decay"])


def require(name: str, value: float, *, low: float, high: float = float("inf"), strictly_below: bool = False) -> None:
    """Refuse a setting outside its range, with its value."""
    if not (low <= value < high if strictly_below else low <= value <= high):
        end = f"below {high:g}" if strictly_below else f"to {high:g}"
        limits = f"at least {low:g}" if high == float("inf") else f"from {low:g} {end}"
        raise InputError(f"Expected {name} {limits}, got {value}.", argument=name)
