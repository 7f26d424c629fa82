"""Undo what a pass over raw rows writes into a module.

Layers may keep running means, rescale what they look up, or remember their last inputs. None of that is released, so
all of it is undone after every pass. Only what a module stores outside itself, or in its own lists and dictionaries, is
out of reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_HELD = ("_parameters", "_buffers")
_OF_ANY = frozenset(vars(nn.Module()))  # attributes that every module has; none is a tensor


@contextmanager
def unchanged(module: nn.Module, *, trained: bool = False) -> Iterator[None]:
    """Restore all buffers, frozen parameters and attributes afterwards, whatever happens inside.

    Args:
        module: the module with all its parts.
        trained: whether to restore trained parameters too.
    """
    parts = list(module.modules())
    attributes = [vars(part).copy() for part in parts]
    members = [[dict(values[name]) for name in _HELD] for values in attributes]
    copies = [(t, t.detach().clone()) for t in _tensors(attributes, members) if trained or not t.requires_grad]
    try:
        yield
    finally:
        for part, values, held in zip(parts, attributes, members, strict=True):
            _put_back(vars(part), values)
            for name, inside in zip(_HELD, held, strict=True):
                _put_back(values[name], inside)
        for tensor, copy in copies:
            if not torch.equal(tensor, copy):
                with torch.no_grad():
                    tensor.copy_(copy)


def _tensors(attributes: list[dict[str, Any]], members: list[list[dict[str, Any]]]) -> list[Tensor]:
    """Return every tensor that a part holds, each once."""
    own = [value for values in attributes for name, value in values.items() if name not in _OF_ANY]
    held = [value for both in members for inside in both for value in inside.values()]
    return list({id(value): value for value in own + held if isinstance(value, Tensor)}.values())


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    if len(now) != len(before) or now.keys() != before.keys():
        for name in now.keys() - before.keys():
            del now[name]
    now.update(before)
