"""Opacus and our optimizers: a drop-in for its PrivacyEngine, and how its optimizer's noise is read.

Opacus clips, adds noise and scales, then calls the optimizer that it wraps. What it added is read at that moment from
the numbers that it used itself: its noise multiplier (adapted or not), its clip norm, the expected batch size, the
batches it accumulated. So noise schedulers, adaptive clipping, per-layer clipping, ghost clipping and virtual batches
are followed.
"""

from __future__ import annotations

from typing import Any

from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer

from apportion.errors import InputError
from apportion.optim.known_noise import AddedNoise, KnownNoiseOptimizer


def added_by(optimizer: DPOptimizer) -> AddedNoise:
    """The noise in the gradients that an Opacus optimizer has just scaled."""
    multiplier = getattr(optimizer, "_adjusted_noise_multiplier", optimizer.noise_multiplier)
    divisor = 1.0
    if optimizer.loss_reduction == "mean":
        divisor = float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
    return AddedNoise(float(multiplier) * float(optimizer.max_grad_norm), divisor)


def follow(optimizer: DPOptimizer) -> DPOptimizer:
    """Make an Opacus optimizer that wraps one of ours tell it the noise of every step; returns it.

    >>> import torch
    >>> from apportion.optim import DPAdamBC
    >>> inner = DPAdamBC([torch.nn.Parameter(torch.zeros(2))])
    >>> outer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=10)
    >>> follow(outer) is outer
    True
    """
    inner = optimizer.original_optimizer
    if not isinstance(inner, KnownNoiseOptimizer):
        raise InputError(f"Expected an optimizer of apportion.optim inside Opacus' own, got {type(inner).__name__}.")
    scale = optimizer.scale_grad

    def scale_and_tell() -> None:
        scale()
        inner.gradients_carry(added_by(optimizer))

    optimizer.scale_grad = scale_and_tell
    return optimizer


class KnownNoisePrivacyEngine(PrivacyEngine):  # type: ignore[misc]
    """Opacus' PrivacyEngine for the optimizers of `apportion.optim`: `make_private` and all else as there.

    Privacy: Opacus' own: for adding or removing one row, by its accountants. Users with several rows are protected
    less.
    """

    def _prepare_optimizer(self, **kwargs: Any) -> DPOptimizer:
        return follow(super()._prepare_optimizer(**kwargs))
