"""Telling callbacks of a step. Beside a checkpoint they may change nothing that a coming step depends on.

A step that is repeated after a stop has the same noise as the first time. If a callback had changed the module in one
of the two runs alone, the difference of both releases would be bare. So everything is compared, number by number:
torch's own count of changes misses what is written through `.data`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.comparable import comparable, comparable_module
from apportion.training.runs import StepDone

_WHOLE: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes; bits that are no number compare, too


def tell(
    callbacks: Sequence[Callable[[StepDone], None]], done: StepDone, loss: Any, scheduler: Any | None, repeats: bool
) -> None:
    """Call the callbacks.

    Args:
        callbacks: receive `done`.
        done: the step.
        loss: of the training.
        scheduler: of the training, if it has one.
        repeats: whether the training has a checkpoint. Then callbacks that change anything are refused.
    """
    held = _Held(done.module, done.optimizer, loss, scheduler) if repeats and callbacks else None
    for callback in callbacks:
        callback(done)
    if held is not None and held.changed():
        raise InputError(
            "Expected callbacks that change neither module nor optimizer, because a training with a checkpoint "
            "repeats steps with the same noise; use a scheduler for learning rates.",
            argument="callbacks",
        )


def optimizer_settings(optimizer: torch.optim.Optimizer) -> str:
    """Return the settings of all groups of parameters, such as learning rates, in words that can be compared."""
    groups = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    return repr([sorted((name, repr(value)) for name, value in group.items()) for group in groups])


def scheduler_settings(scheduler: Any | None) -> str:
    """Return the settings and the state of a scheduler, in words that can be compared."""
    if scheduler is None:
        return "none"
    held = sorted((name, repr(value)) for name, value in scheduler.state_dict().items())
    return f"{type(scheduler).__qualname__} {held}"


class _Held:
    """What the coming steps depend on, as it is now."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, loss: Any, scheduler: Any | None) -> None:
        self._of = module, optimizer, loss, scheduler
        self._words = self._in_words()
        self._numbers = [bits.clone() for bits in self._bits()]

    def changed(self) -> bool:
        """Whether any of it is another now."""
        if self._in_words() != self._words:
            return True
        return not all(torch.equal(*pair) for pair in zip(self._bits(), self._numbers, strict=True))

    def _in_words(self) -> list[Any]:
        module, optimizer, loss, scheduler = self._of
        shapes = [[name, str(t.dtype), list(t.shape)] for name, t in self._tensors()]
        return [
            optimizer_settings(optimizer), scheduler_settings(scheduler), comparable_module(module), comparable(loss),
            shapes,
        ]  # fmt: skip

    def _bits(self) -> list[Tensor]:
        held = [tensor.detach().contiguous().reshape(-1) for _, tensor in self._tensors()]
        return [each.view(_WHOLE.get(each.element_size(), torch.uint8)) for each in held]

    def _tensors(self) -> list[tuple[str, Tensor]]:
        module, optimizer = self._of[:2]
        state = optimizer.state_dict()["state"]
        remembered = ((f"{key} {name}", each) for key, of in state.items() for name, each in of.items())
        return [(name, each) for name, each in (*module.state_dict().items(), *remembered) if isinstance(each, Tensor)]
