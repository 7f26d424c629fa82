"""A module as it is applied to rows of one tensor: taken apart, with keyed dropout, in 16 bits; and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.training.channels import pixels_together
from apportion.training.dropout import KeyedDropout
from apportion.training.per_unit import Loss
from apportion.training.probing import drops_out
from apportion.training.structured import LossInside, Unpacking, loss_of_itself
from apportion.training.units import Units


@dataclass(frozen=True, eq=False)
class Applied:
    """A module with what is around it.

    Attributes:
        module: takes rows of one tensor.
        loss: of its outputs and the targets.
        units: whose rows it takes.
        dropout: keys the masks of dropout; None without dropout.
        autocast: computes in 16 bits; None in full precision.
    """

    module: nn.Module
    loss: Loss
    units: Units
    dropout: KeyedDropout | None
    autocast: Autocast | None


class Autocast(nn.Module):  # type: ignore[misc]
    """Applies a module under `torch.autocast`, and returns its outputs in float32.

    Args:
        module: the module.
        dtype: of products inside.
        device: the kind of device.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.module = module
        self.on = True
        self._dtype = dtype
        self._device = device

    def forward(self, rows: Tensor) -> Any:
        """Return what the module returns, in float32."""
        with torch.autocast(self._device, self._dtype, enabled=self.on):
            outputs = self.module(rows)
        return outputs.float() if isinstance(outputs, Tensor) and outputs.dtype == self._dtype else outputs


def applied(module: nn.Module, loss: Loss | None, units: Units, autocast: torch.dtype | None) -> Applied:
    """Return the module as it is applied to rows of these units."""
    if autocast not in (None, torch.bfloat16):
        raise InputError(f"Expected autocast to be None or torch.bfloat16, got {autocast}.", argument="autocast")
    around = pixels_together(module, units.like[0]) if units.layout is None else Unpacking(module, units.layout)
    cast = None
    if autocast is not None:
        around = cast = Autocast(around, autocast, units.like[0].device.type)
    plain, outside = (LossInside(around, None), loss_of_itself) if loss is None else (around, loss)
    if not drops_out(plain, outside, *units.like):
        return Applied(plain, outside, units, None, cast)
    keyed = KeyedDropout(around, units.like[0])
    return Applied(LossInside(keyed, None) if loss is None else keyed, outside, units.numbered(), keyed, cast)


def refuse_surroundings(module: nn.Module, units: Units) -> None:
    """Refuse autocast around training, lazy and scripted layers, and rows on another device than the module."""
    if not isinstance(units, Units):
        raise InputError(
            f"Expected units as UserRows or ExampleRows, got {type(units).__name__}; UserRows.of and ExampleRows.of "
            "read a Dataset or a DataLoader.",
            argument="units",
        )
    lazy = [name for name, p in module.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise InputError(
            f"Expected parameters with shapes, got {lazy[0]!r} of a lazy layer; call the module once on made-up rows "
            "before you make the optimizer.",
            argument="module",
        )
    if any(p.is_meta for p in module.parameters()):
        raise InputError(
            "Expected parameters with numbers, got some on the device 'meta'; load or make them first.",
            argument="module",
        )
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise InputError(
            "Expected a module of Python, got a scripted one; train it before torch.jit.script.", argument="module"
        )
    devices, given = {p.device.type for p in module.parameters()}, units.like[0].device.type
    if any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")):
        raise InputError(
            "Expected no torch.autocast around training: its steps would depend on it unseen. Leave that block, and "
            "pass autocast=torch.bfloat16 in its place.",
            argument="module",
        )
    if len(devices) == 1 and given not in devices:
        raise InputError(
            f"Expected inputs on the device of the module, {devices.pop()}, got {given}; move one of them.",
            argument="inputs",
        )


def dropout_rates(parts: Iterable[nn.Module]) -> list[float]:
    """Return the rates of all parts of a module that drop out."""
    rates = []
    for part in parts:
        if isinstance(part, nn.modules.dropout._DropoutNd):
            rates.append(float(part.p))
        elif isinstance(part, nn.MultiheadAttention):
            rates.append(float(part.dropout))
    return rates


def modes(parts: Iterable[nn.Module]) -> list[tuple[int, bool]]:
    """Return the parts of a module and which of them are in training mode."""
    return [(id(part), part.training) for part in parts]
