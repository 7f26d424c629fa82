"""Gradients of every unit of a batch: by the factors of known layers if possible, else by torch.func, else row by row.

Rows of a batch are ordered by unit; unit k has the rows from offsets[k] to offsets[k + 1]. The loss returns one number
for each row. Both loss and module must treat each row by itself, otherwise they would mix units before clipping.
`gradient_way` checks this (`probing`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.privacy.clipped_gradients import Block
from apportion.training.blocks import Stored, rounding_of
from apportion.training.groups import Groups
from apportion.training.layers import LayerFactors
from apportion.training.module_state import unchanged
from apportion.training.probing import factors_suffice

Loss = Callable[[Any, Any], Tensor]
"""Takes outputs and targets of some rows; returns one number for each row (or several, which are added)."""


class UnitBlock(Block, Protocol):
    """A block that can also return its units' gradients one by one."""

    def each(self) -> Tensor:
        """Return one gradient for each unit."""


class GradientWay(Protocol):
    """A way to compute the gradients of every unit."""

    def blocks(self, inputs: Tensor, targets: Tensor, offsets: Tensor) -> Sequence[UnitBlock]:
        """Return one block for each trainable parameter."""


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name, each once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def gradient_way(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> GradientWay:
    """Return the cheapest way that this module allows, found by a pass over made-up rows of the same kind."""
    if factors_suffice(module, loss, inputs, targets):
        return LayerFactors(module, loss)
    zeros = [like.new_zeros((2, *like.shape[1:])) for like in (inputs, targets)]
    problems = []
    for way in (FunctionalGradients(module, loss), RowsOneByOne(module, loss)):
        try:
            with unchanged(module):
                way.blocks(zeros[0], zeros[1], torch.arange(3))
        except Exception as error:  # whatever torch raises for an unsupported module
            problems.append(error)
        else:
            return way
    raise InputError(
        f"Expected a module that gives gradients row by row, got the error {problems[-1]}", argument="module"
    ) from problems[-1]


class RowByRowWarning(UserWarning):
    """Said once before a training whose gradients take a pass of their own for every row."""


def warn_if_row_by_row(way: GradientWay) -> None:
    """Say so if every row takes a pass of its own."""
    if isinstance(way, RowsOneByOne):
        warnings.warn(
            "Gradients of this module are computed row by row, which is slow. The reason is a part that "
            "torch.func.vmap does not support, such as nn.GRU or a custom function without a vmap of its own.",
            RowByRowWarning,
            stacklevel=5,  # of the call of `fit`
        )


class FunctionalGradients:
    """Gradients of every row by torch.func's vmap of grad, added up by unit; for any module that vmap supports."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self._module = module
        self._loss = loss

    def blocks(self, inputs: Tensor, targets: Tensor, offsets: Tensor) -> list[Stored]:
        """Return one stored block for each parameter."""
        parameters = trainable(self._module)
        held = {name: p.detach() for name, p in parameters.items()}
        fixed = {name: p.detach() for name, p in self._module.named_parameters() if name not in held}
        fixed |= dict(self._module.named_buffers())

        def loss_of_row(values: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
            outputs = torch.func.functional_call(self._module, {**values, **fixed}, (row.unsqueeze(0),))
            return self._loss(outputs, target.unsqueeze(0)).sum()

        by_row = torch.func.vmap(torch.func.grad(loss_of_row), in_dims=(None, 0, 0), randomness="error")
        result = by_row(held, inputs, targets)
        groups = Groups(offsets)
        return [_stored(result[name], groups) for name in parameters]


class RowsOneByOne:
    """Gradients of every row by a pass of its own, for modules that vmap does not support, such as `nn.GRU`; slow.

    What a pass writes into the module is undone before the next, so a row's gradient depends on nothing but the row.
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self._module = module
        self._loss = loss

    def blocks(self, inputs: Tensor, targets: Tensor, offsets: Tensor) -> list[Stored]:
        """Return one stored block for each parameter."""
        parameters = list(trainable(self._module).values())
        rows = [self._of(parameters, inputs[k : k + 1], targets[k : k + 1]) for k in range(len(inputs))]
        groups, made = Groups(offsets), [p.detach().new_zeros((len(rows), *p.shape)) for p in parameters]
        for k, row in enumerate(rows):
            for by_row, gradient in zip(made, row, strict=True):
                if gradient is not None:
                    by_row[k] = gradient.to_dense() if gradient.is_sparse else gradient
        return [_stored(by_row, groups) for by_row in made]

    def _of(self, parameters: list[nn.Parameter], row: Tensor, target: Tensor) -> Sequence[Tensor | None]:
        with torch.enable_grad(), unchanged(self._module):
            loss = self._loss(self._module(row.clone()), target).sum()
            result: Sequence[Tensor | None] = torch.autograd.grad(loss, parameters, allow_unused=True)
        return result


def _stored(by_row: Tensor, groups: Groups) -> Stored:
    """Return the sums over the rows of each unit, in float64 where there are several."""
    if groups.single:
        return Stored(by_row, None, rounding_of(by_row))
    wide = by_row.double()
    return Stored(groups.added(wide), groups.added(wide.abs()), rounding_of(by_row), by_row.dtype != torch.float64)


def losses_of_units(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, offsets: Tensor) -> Tensor:
    """Return the mean loss over each unit's rows."""
    with torch.no_grad(), unchanged(module):
        losses = loss(module(inputs), targets)
    by_row = losses.double().reshape(len(inputs), -1).sum(1)
    groups = Groups(offsets)
    return groups.added(by_row) / groups.sizes.clamp_min(1).to(by_row.device)


def means_of_units(blocks: Sequence[Block], offsets: Tensor) -> list[Any]:
    """Return each unit's gradient divided by its number of rows."""
    return [_Scaled(block, 1 / offsets.diff().clamp_min(1).double()) for block in blocks]


class _Scaled:
    """A block with each unit's part multiplied by its own factor."""

    def __init__(self, block: Block, numbers: Tensor) -> None:
        self._block = block
        self._numbers = numbers

    def squared_norms(self, scales: Any | None) -> Tensor:
        result: Tensor = self._block.squared_norms(scales)
        return result * self._numbers.to(result.device).square()

    @property
    def leaves_out(self) -> bool:
        return bool(getattr(self._block, "leaves_out", False))

    def joint_squares(self) -> Any | None:
        squares: Any = getattr(self._block, "joint_squares")()  # noqa: B009 - of blocks on a GPU
        return None if squares is None else squares * self._numbers.to(squares.device).square()

    def zeros(self, size: int) -> Any:
        return self._block.zeros(size)

    def add_to(self, total: Any, factors: Any) -> None:
        self._block.add_to(total, factors * self._numbers.to(factors.device))

    def keeping(self, kept: Any) -> _Scaled:
        return _Scaled(self._block.keeping(kept), self._numbers)

    @property
    def few_rows(self) -> bool:
        return bool(getattr(self._block, "few_rows", False))

    def added_rows(self, factors: Any) -> Any:
        added: Any = getattr(self._block, "added_rows")  # noqa: B009 - of tables alone
        return added(factors * self._numbers.to(factors.device))
