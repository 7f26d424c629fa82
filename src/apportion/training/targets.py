"""A check of all targets before anything is charged: whether the loss takes them at all.

A class beyond those of the module makes a cross entropy fail in the first step that meets it, when sampled steps are
already paid for. The loss is asked about the extreme targets on outputs for made-up rows, on the processor, because a
GPU that is asked for a class beyond the last one cannot be used again. A refusal depends on the targets, as the error
in a step would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.module_state import unchanged
from apportion.training.probing import accepted_rows

_MOST_NEGATIVE = 16  # negative whole numbers that are tried; one of them may stand for "no target"


def refuse_targets(
    module: nn.Module, loss: Callable[[Any, Any], Tensor], like: tuple[Tensor, Tensor], targets: Tensor
) -> None:
    """Refuse targets that a loss does not take, if it can be asked.

    Args:
        module: the module as it will be trained.
        loss: returns one number for each row.
        like: inputs and targets without rows.
        targets: all targets; private.
    """
    made = None if targets.is_complex() or not targets.numel() else _outputs(module, loss, like)
    if made is None:
        return
    outputs, accepted = made
    for extreme in _extremes(targets):
        try:
            loss(outputs.clone(), torch.full_like(accepted, extreme))
        except Exception as error:  # whatever a loss raises for a target that it does not take
            said = (str(error).splitlines() or [""])[0]
            raise InputError(
                f"Expected targets that the loss takes, got {extreme:g} ({type(error).__name__}: {said}); for a row, "
                f"outputs of the module have the shape {tuple(outputs.shape[1:])}.",
                argument="targets",
            ) from None


def _outputs(
    module: nn.Module, loss: Callable[[Any, Any], Tensor], like: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor] | None:
    """Return outputs for made-up rows, and targets that the loss takes with them; None if it cannot be asked."""
    devices = [d.index for d in {p.device for p in module.parameters()} if d.type == "cuda"]
    try:
        with torch.random.fork_rng(devices), unchanged(module, trained=True), torch.no_grad():
            inputs, targets = accepted_rows(module, loss, *like)
            outputs, accepted = module(inputs).cpu(), targets.cpu()
            loss(outputs.clone(), accepted)
    except Exception:  # modules with outputs of another kind, and those that are refused later with a better sentence
        return None
    return outputs, accepted


def _extremes(targets: Tensor) -> list[float]:
    """Return the largest target and the smallest, or the first of several negative whole numbers."""
    held = targets.detach()
    largest, smallest = held.max(), held.min()
    if held.is_floating_point() or smallest >= 0:
        return [float(largest), float(smallest)] if held.is_floating_point() else [int(largest)]
    return [int(largest), *map(int, torch.unique(held[held < 0])[-_MOST_NEGATIVE:])]
