"""A form of a loss or a module that two runs can compare: its code, and every number that it holds.

A checkpoint is bound to this form. A step that is repeated has the same noise, so a different loss in its place would
cancel the noise. Objects of other libraries, and functions that the code calls, are known by their names alone.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_DEEPEST: Final = 8


def comparable(held: Any, depth: int = 0) -> Any:
    """Return plain data that is the same for the same object in every process.

    >>> comparable(nn.CrossEntropyLoss()) == comparable(nn.CrossEntropyLoss())
    True
    >>> comparable(nn.CrossEntropyLoss()) == comparable(nn.CrossEntropyLoss(label_smoothing=0.1))
    False
    """
    if isinstance(held, _PLAIN):
        return repr(held)
    if depth > _DEEPEST:
        return _name(held)
    if isinstance(held, Tensor | np.ndarray):
        return _numbers(held)
    if isinstance(held, FunctionType):
        return [_name(held), _code(held.__code__), *(comparable(part, depth + 1) for part in _values_of(held))]
    if isinstance(held, MethodType):
        return [comparable(held.__func__, depth + 1), comparable(held.__self__, depth + 1)]
    return _object(held, depth + 1)


def _object(held: Any, depth: int) -> Any:
    if isinstance(held, functools.partial):
        return ["partial", *(comparable(part, depth) for part in (held.func, held.args, held.keywords))]
    if isinstance(held, Mapping):
        return [[str(name), comparable(held[name], depth)] for name in sorted(held, key=str)]
    if isinstance(held, list | tuple | set | frozenset):
        parts = [comparable(part, depth) for part in held]
        return sorted(parts, key=str) if isinstance(held, set | frozenset) else parts
    if isinstance(held, type | BuiltinFunctionType) or not hasattr(held, "__dict__"):
        return _name(held)
    called = vars(type(held)).get("forward" if isinstance(held, nn.Module) else "__call__")
    own = isinstance(called, FunctionType) and not called.__module__.startswith("torch.")
    return [_name(held), comparable(called, depth) if own else None, comparable(vars(held), depth)]


def _values_of(function: FunctionType) -> list[Any]:
    """Defaults, what a function closes over, and plain numbers and tensors that it reads by name."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    read = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    numbers = {name: value for name, value in read.items() if isinstance(value, int | float | Tensor | np.ndarray)}
    return [function.__defaults__, function.__kwdefaults__, cells, numbers]


def _code(code: CodeType) -> list[Any]:
    parts = [_code(each) if isinstance(each, CodeType) else comparable(each) for each in code.co_consts]
    return [hashlib.sha256(code.co_code).hexdigest(), list(code.co_names), list(code.co_varnames), parts]


def _numbers(held: Tensor | np.ndarray[Any, Any]) -> list[str]:
    array = held.detach().cpu() if isinstance(held, Tensor) else torch.as_tensor(held)
    content = array.contiguous().view(torch.uint8).numpy().tobytes() if array.numel() else b""
    return [str(array.dtype), str(tuple(array.shape)), hashlib.sha256(content).hexdigest()]


def _name(held: Any) -> str:
    named = held if hasattr(held, "__qualname__") else type(held)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"
