"""Undo what a pass over raw rows writes into a module.

Layers may keep running means, rescale what they look up, or remember their last inputs. None of that is released, so
all of it is undone after every pass. Only what a module stores outside itself, or in its own lists and dictionaries, is
out of reach.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_HELD = ("_parameters", "_buffers")
_OF_ANY = frozenset(vars(nn.Module()))  # attributes that every module has; none is a tensor


class unchanged:  # noqa: N801 - used like a function
    """Restore all buffers, frozen parameters and attributes afterwards, whatever happens inside.

    Args:
        module: the module with all its parts.
        trained: whether to restore trained parameters too.
    """

    def __init__(self, module: nn.Module, *, trained: bool = False) -> None:
        self._module = module
        self._trained = trained

    def __enter__(self) -> None:
        """Remember how everything is."""
        self._before = [(part, vars(part).copy(), _members(part)) for part in parts_of(self._module)]
        self._copies = [(t, t.detach().clone()) for t in _tensors(self._before, self._trained)]

    def __exit__(self, *problem: object) -> None:
        """Put everything back."""
        for part, values, held in self._before:
            _put_back(vars(part), values)
            for name, inside in zip(_HELD, held, strict=True):
                _put_back(values[name], inside)
        for tensor, copy in _changed(self._copies):
            with torch.no_grad():
                tensor.copy_(copy)


def parts_of(module: nn.Module) -> list[nn.Module]:
    """Return a module and all its parts, each once, in the order of `module.modules()`, which takes longer."""
    found: dict[nn.Module, None] = {}
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None and part not in found:
            found[part] = None
            waiting += reversed([*part._modules.values()])
    return list(found)


def version_of(values: Tensor) -> int:
    """Return how often a tensor was written to, as far as torch counts it."""
    return 0 if values.is_inference() else int(values._version)


def forget_gradients(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Clear all gradients, so that the optimizer uses released ones alone."""
    for part in parts_of(module):
        for parameter in part._parameters.values():
            if parameter is not None:
                parameter.grad = None
    for group in [] if optimizer is None else optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def _members(part: nn.Module) -> tuple[dict[str, Any], ...]:
    """Return copies of the dictionaries of parameters and buffers."""
    held = vars(part)
    return tuple(held[name].copy() for name in _HELD)


def _tensors(before: list[tuple[nn.Module, dict[str, Any], tuple[dict[str, Any], ...]]], trained: bool) -> list[Tensor]:
    """Return every tensor that a part holds, each once; those that need gradients only if these are asked for."""
    found = {}
    for _, values, held in before:
        own = [value for name, value in values.items() if name not in _OF_ANY]
        for inside in held:
            own += inside.values()
        for value in own:
            if isinstance(value, Tensor) and (trained or not value.requires_grad):
                found[id(value)] = value
    return list(found.values())


def _changed(copies: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Return tensors that differ from their copies, with these. A GPU is asked once, and not for each tensor."""
    there = [pair for pair in copies if pair[0].device.type == "cuda" and pair[0].shape == pair[1].shape]
    asked = {id(tensor) for tensor, _ in there}
    result = [pair for pair in copies if id(pair[0]) not in asked and not torch.equal(*pair)]
    by_device: dict[torch.device, list[tuple[Tensor, Tensor]]] = {}
    for pair in there:
        by_device.setdefault(pair[0].device, []).append(pair)
    for pairs in by_device.values():
        differ = torch.stack([(tensor != copy).any() for tensor, copy in pairs]).tolist()
        result += [pair for pair, moved in zip(pairs, differ, strict=True) if moved]
    return result


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    if len(now) != len(before) or now.keys() != before.keys():
        for name in now.keys() - before.keys():
            del now[name]
    now.update(before)
