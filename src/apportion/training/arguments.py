"""What a training refuses about its arguments before it looks at rows or charges anything, each by its name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from apportion.errors import InputError
from apportion.training.checkpoints import TrainingCheckpoint
from apportion.training.clipping import ReleasedLoss, SecondMomentScales
from apportion.training.table_rows import RowRule


def require_length(steps: Any, sampling: float, rows_at_once: int) -> None:
    """Refuse a number of steps or rows below 1, and a probability outside (0, 1]."""
    for name, count in (("steps", steps), ("rows_at_once", rows_at_once)):
        if isinstance(count, float) or not count >= 1:
            raise InputError(f"Expected {name} as a whole number of at least 1, got {count}.", argument=name)
    if not 0 < sampling <= 1:
        raise InputError(f"Expected sampling in (0, 1], got {sampling}.", argument="sampling")


def require_rules(clip: Any, scaling: Any, losses: Any, tables: Any) -> None:
    """Refuse rules of the wrong kind."""
    if not hasattr(clip, "following"):
        hint = f"; for a constant norm pass FixedClip({clip})" if isinstance(clip, (int, float)) else ""
        raise InputError(f"Expected a rule such as FixedClip or QuantileClip, got {clip!r}{hint}.", argument="clip")
    kinds = {"scaling": SecondMomentScales, "losses": ReleasedLoss, "tables": RowRule}
    given = {"scaling": scaling, "losses": losses, "tables": tables}
    for name, kind in kinds.items():
        if given[name] is not None and not isinstance(given[name], kind):
            raise InputError(f"Expected None or a {kind.__name__}, got {given[name]!r}.", argument=name)


def require_optimizer(optimizer: torch.optim.Optimizer, module: nn.Module, scheduler: Any | None) -> None:
    """Refuse an optimizer that would change no parameter of the module, and a scheduler of another optimizer."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(
            f"Expected an optimizer of PyTorch, made with parameters, got {optimizer!r}.", argument="optimizer"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise InputError(
            "Expected an optimizer of dense gradients, got SparseAdam: every row of a table has noise. Use Adam.",
            argument="optimizer",
        )
    if scheduler is not None and not callable(getattr(scheduler, "step", None)):
        raise InputError(f"Expected a scheduler of PyTorch, got {scheduler!r}.", argument="scheduler")
    _require_scheduler_of(optimizer, scheduler)
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InputError(
            f"Expected an optimizer that takes gradients as they are, got {type(optimizer).__name__}, which computes "
            "its own by a closure.",
            argument="optimizer",
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trained = {id(p) for p in module.parameters() if p.requires_grad}
    if trained and not held & trained:
        raise InputError(
            "Expected an optimizer of the module's parameters, got one that has none of those that are trained.",
            argument="optimizer",
        )


def _require_scheduler_of(optimizer: torch.optim.Optimizer, scheduler: Any | None) -> None:
    if scheduler is not None and getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise InputError("Expected a scheduler of this optimizer, got one of another.", argument="scheduler")


def require_long_enough(scheduler: Any | None, steps: int) -> None:
    """Refuse a scheduler that fails before the last step, when most is paid for."""
    planned = getattr(scheduler, "total_steps", None)
    if isinstance(scheduler, torch.optim.lr_scheduler.OneCycleLR) and planned is not None and planned < steps:
        raise InputError(
            f"Expected a scheduler for {steps} steps, got OneCycleLR with total_steps={planned}.", argument="scheduler"
        )


def require_all_updated(optimizer: torch.optim.Optimizer, module: nn.Module) -> None:
    """Refuse an optimizer that lacks a trained parameter: its gradients would be clipped and paid for, and not used."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    left = [name for name, p in module.named_parameters() if p.requires_grad and id(p) not in held]
    if left:
        others = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise InputError(
            f"Expected an optimizer of all trained parameters, got one without {left[0]!r}{others}: what they add to "
            "every gradient would be clipped and paid for, and not used. Freeze them by requires_grad_(False), or give "
            "them to the optimizer.",
            argument="optimizer",
        )


def require_calls(progress: Any, callbacks: Sequence[Callable[..., Any]], checkpoint: Any) -> None:
    """Refuse what would only fail after a step was paid for."""
    if progress is not None and not callable(progress):
        raise InputError(f"Expected progress as a function of two numbers, got {progress!r}.", argument="progress")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise InputError(f"Expected callbacks as a sequence of functions, got {callbacks!r}.", argument="callbacks")
    if checkpoint is not None and not isinstance(checkpoint, TrainingCheckpoint):
        raise InputError(f"Expected a TrainingCheckpoint, got {checkpoint!r}.", argument="checkpoint")


def require_one_way_of_length(steps: Any, epochs: Any, sampling: Any, batch_size: Any) -> None:
    """Refuse both ways, or neither way, of saying how many steps there are, and both of saying how large a batch is."""
    if (steps is None) == (epochs is None):
        given = "neither" if steps is None else f"{steps} and {epochs}"
        raise InputError(f"Expected steps or epochs, and not both, got {given}.", argument="steps")
    if sampling is not None and batch_size is not None:
        raise InputError(
            f"Expected sampling or batch_size, and not both, got {sampling} and {batch_size}.", argument="batch_size"
        )
    if epochs is not None and not 0 < epochs < math.inf:
        raise InputError(f"Expected epochs above 0, got {epochs}.", argument="epochs")
    if sampling is not None and not 0 < sampling <= 1:
        raise InputError(f"Expected sampling in (0, 1], got {sampling}.", argument="sampling")
