"""Our optimizers in Opacus: a drop-in for its PrivacyEngine, and how the noise of its optimizer is read.

Opacus clips, adds noise and scales, then calls the optimizer that it wraps. At that moment, what it added is read from
the numbers that it used itself: its noise multiplier (adapted or not), its clip norm, the expected batch size, the
accumulated batches and the number of processes. So noise schedulers, adaptive clipping, per-layer clipping, ghost
clipping, virtual batches and several processes are all followed. Each of Opacus' optimizers adds noise in its own way;
an unknown one is refused.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from opacus import PrivacyEngine
from opacus.optimizers import (
    AdaClipDPOptimizer,
    DistributedDPOptimizer,
    DistributedDPOptimizerFastGradientClipping,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
)

from apportion.errors import InputError
from apportion.training.known_noise import AddedNoise, KnownNoiseOptimizer

__all__ = ["KnownNoisePrivacyEngine", "added_by", "follow"]

_FLAT = {DPOptimizer.add_noise, DistributedDPOptimizer.add_noise}
_GHOST = {DPOptimizerFastGradientClipping.add_noise, DistributedDPOptimizerFastGradientClipping.add_noise}
_ADAPTIVE = {AdaClipDPOptimizer.add_noise}
_AVERAGED = {DistributedDPOptimizer.reduce_gradients, DistributedDPOptimizerFastGradientClipping.reduce_gradients}


def added_by(optimizer: DPOptimizer) -> AddedNoise:
    """Return the noise in the gradients of an Opacus optimizer when it passes them to the wrapped one.

    Call it between the scaling of the gradients and the step. With several processes, one of them adds the noise, and
    afterwards all divide by their number.
    """
    _require_known(type(optimizer))
    divisor = 1.0
    if optimizer.loss_reduction == "mean":
        divisor = float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
        if hasattr(optimizer, "reduce_gradients"):
            divisor *= optimizer.world_size
    return AddedNoise(_multiplier(optimizer) * float(optimizer.max_grad_norm), divisor)


def _multiplier(optimizer: DPOptimizer) -> float:
    """Return the noise on gradients over the clip norm, as in the optimizer's own `add_noise`."""
    told = float(optimizer.noise_multiplier)
    if type(optimizer).add_noise in _GHOST:
        return float(getattr(optimizer, "_adjusted_noise_multiplier", told))
    if type(optimizer).add_noise in _ADAPTIVE and told > 0:
        # the count of unclipped rows takes part of the guarantee (Andrew et al., 2021, theorem 1)
        return float((told**-2 - (2 * optimizer.unclipped_num_std) ** -2) ** -0.5)
    return told


def follow(optimizer: DPOptimizer) -> DPOptimizer:
    """Make an Opacus optimizer tell the wrapped optimizer the noise of every step; return it.

    >>> import torch
    >>> from apportion.training import DPAdamBC
    >>> inner = DPAdamBC([torch.nn.Parameter(torch.zeros(2))])
    >>> outer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=10)
    >>> follow(outer) is outer
    True
    """
    inner = optimizer.original_optimizer
    if not isinstance(inner, KnownNoiseOptimizer):
        raise InputError(
            f"Expected an optimizer of apportion.training inside the Opacus optimizer, got {type(inner).__name__}.",
            argument="optimizer",
        )
    _require_known(type(optimizer))
    optimizer.scale_grad = MethodType(_scale_and_tell, optimizer)
    return optimizer


def _require_known(kind: type[DPOptimizer]) -> None:
    """Refuse an optimizer with its own way to add noise, scale or average."""
    known = kind.add_noise in _FLAT | _GHOST | _ADAPTIVE and kind.scale_grad is DPOptimizer.scale_grad
    if not known or getattr(kind, "reduce_gradients", None) not in {None, *_AVERAGED}:
        raise InputError(f"Expected an Opacus optimizer whose noise is known here, got {kind.__name__}.", argument=None)


def _scale_and_tell(optimizer: DPOptimizer) -> None:
    type(optimizer).scale_grad(optimizer)
    optimizer.original_optimizer.gradients_carry(added_by(optimizer))


class KnownNoisePrivacyEngine(PrivacyEngine):  # type: ignore[misc]
    """Opacus' PrivacyEngine for the optimizers of `apportion.training`; `make_private` and the rest work as usual.

    Privacy: that of Opacus: for adding or removing one row, by its accountants. Users with several rows are protected
    less.
    """

    def _prepare_optimizer(self, **kwargs: Any) -> DPOptimizer:
        return follow(super()._prepare_optimizer(**kwargs))
