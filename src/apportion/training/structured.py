"""Rows of several tensors, such as dictionaries of a tokenizer, and modules that compute their own loss.

All tensors of a row are laid side by side in one row of numbers, exactly, and a small module around the trained one
takes them apart again. So everything else (batches, padding, checks on made-up rows, gradients) sees one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apportion.errors import InputError

_LARGEST_WHOLE = 2**53  # whole numbers up to this are exact in float64


@dataclass(frozen=True)
class Field:
    """Where one tensor of a row lies.

    Attributes:
        name: its key, or None for a position.
        shape: of one row.
        dtype: of its numbers.
        first: the first column.
    """

    name: str | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    first: int

    @property
    def width(self) -> int:
        """The number of columns."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """How the tensors of a row lie side by side; public.

    Attributes:
        fields: in order.
    """

    fields: tuple[Field, ...]

    @classmethod
    def of(cls, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[Layout, Tensor]:
        """Return the layout of some rows, and the rows."""
        named = isinstance(inputs, Mapping)
        tensors = [torch.as_tensor(each) for each in (inputs.values() if isinstance(inputs, Mapping) else inputs)]
        lengths = {len(each) if each.dim() else -1 for each in tensors}
        if len(lengths) != 1 or -1 in lengths:
            raise InputError(
                f"Expected inputs with one row each for the same rows, got {_shapes(inputs)}.", argument="inputs"
            )
        fields, first = [], 0
        for name, each in zip(inputs if named else [None] * len(tensors), tensors, strict=True):
            fields.append(Field(name, tuple(each.shape[1:]), each.dtype, first))
            first += fields[-1].width
        return cls(tuple(fields)), _side_by_side(tensors)

    @property
    def whole_columns(self) -> list[int]:
        """The columns of whole numbers."""
        whole = [field for field in self.fields if not field.dtype.is_floating_point]
        return [column for field in whole for column in range(field.first, field.first + field.width)]

    def taken_apart(self, rows: Tensor) -> dict[str, Tensor] | tuple[Tensor, ...]:
        """Return the tensors of some rows."""
        parts = [_as(rows[:, f.first : f.first + f.width], f) for f in self.fields]
        if self.fields[0].name is None:
            return tuple(parts)
        return {str(field.name): part for field, part in zip(self.fields, parts, strict=True)}


def _side_by_side(tensors: list[Tensor]) -> Tensor:
    """Return one row of whole numbers if all are whole, otherwise of float64, which holds all of them exactly."""
    whole = all(not each.is_floating_point() for each in tensors)
    for each in tensors:
        if each.is_complex() or (not whole and not each.is_floating_point() and _beyond(each)):
            raise InputError(
                f"Expected real numbers, and whole ones up to 2^53 beside others, got {each.dtype}.", argument="inputs"
            )
    return torch.cat([each.reshape(len(each), -1).to(torch.int64 if whole else torch.float64) for each in tensors], 1)


def _beyond(values: Tensor) -> bool:
    return bool(values.numel()) and int(values.abs().max()) > _LARGEST_WHOLE


def _as(columns: Tensor, field: Field) -> Tensor:
    """Return columns in the field's own shape and dtype; made-up numbers of whole fields are rounded."""
    values = columns.reshape(len(columns), *field.shape)
    whole = not field.dtype.is_floating_point and columns.is_floating_point()
    return (values.round() if whole else values).to(field.dtype)


def _shapes(inputs: Mapping[str, Any] | Sequence[Any]) -> str:
    named = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return ", ".join(f"{name}: {tuple(torch.as_tensor(each).shape)}" for name, each in named)


class Unpacking(nn.Module):  # type: ignore[misc]
    """Takes rows apart and calls a module: with keywords for a dictionary, with positions for a tuple."""

    def __init__(self, module: nn.Module, layout: Layout | None) -> None:
        super().__init__()
        self.module = module
        self._layout = layout

    def forward(self, rows: Tensor) -> Any:
        """Return what the module returns."""
        if self._layout is None:
            return self.module(rows)
        parts = self._layout.taken_apart(rows)
        return self.module(**parts) if isinstance(parts, dict) else self.module(*parts)

    def acceptable(self, rows: Tensor) -> Tensor:
        """Return made-up rows with 0 and 1 in columns of whole numbers: they may be ids, and a table is of any size."""
        result = rows.clone()
        if self._layout is not None and rows.is_floating_point():
            columns = self._layout.whole_columns
            result[:, columns] = rows[:, columns].round().clamp(0, 1)
        return result


class LossInside(Unpacking):
    """A module that returns its own loss: as `loss` of its result, under the key "loss", or alone.

    Such a loss is a mean over the rows of a batch. So each row goes through by itself, and has its own.
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Return one loss for each row."""
        return torch.stack([_loss_in(super(LossInside, self).forward(rows[k : k + 1])) for k in range(len(rows))])


def loss_of_itself(outputs: Any, targets: Any) -> Tensor:
    """Return the losses that `LossInside` returned."""
    return torch.as_tensor(outputs)


def _loss_in(result: Any) -> Tensor:
    loss = result if isinstance(result, Tensor) else getattr(result, "loss", None)
    if loss is None and isinstance(result, Mapping):
        loss = result.get("loss")
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InputError(
            f"Expected a loss function, or a module that returns its own loss; got {type(result).__name__}.",
            argument="loss",
        )
    return loss.reshape(())
