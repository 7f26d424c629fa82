"""A form of a loss or a module that two runs can compare: its code, and every number that it holds.

A checkpoint is bound to this form. A step that is repeated has the same noise, so a different loss or module in its
place would cancel the noise. The form has the code of an object's class, of the classes that it inherits from, and of
functions of the same file that the code calls by name. Objects of PyTorch and of Python's library, and functions of
other files, are known by their names alone.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_DEEPEST: Final = 8
_OF_ANY: Final = frozenset(vars(nn.Module()))  # attributes that every module has
_HOOKS: Final = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def comparable(held: Any) -> Any:
    """Return plain data that is the same for the same object in every process.

    >>> comparable(nn.CrossEntropyLoss()) == comparable(nn.CrossEntropyLoss())
    True
    >>> comparable(nn.CrossEntropyLoss()) == comparable(nn.CrossEntropyLoss(label_smoothing=0.1))
    False
    """
    return _Form().of(held)


def comparable_module(module: nn.Module) -> Any:
    """Return the same for a trained module. Of what a checkpoint restores, numbers do not count.

    >>> comparable_module(nn.Linear(2, 1)) == comparable_module(nn.Linear(2, 1))  # other weights
    True
    """
    form = _Form(module.state_dict(keep_vars=True).values())
    return [[name, form.of_part(part)] for name, part in module.named_modules()]


class _Form:
    """Takes objects apart. An object that comes again is known by the place where it came first.

    Args:
        restored: tensors whose numbers do not count.
    """

    def __init__(self, restored: Iterable[Any] = ()) -> None:
        self._restored = {id(tensor) for tensor in restored}
        self._met: dict[int, tuple[int, Any]] = {}  # with the objects, so that no other gets the same id

    def of(self, held: Any, depth: int = 0) -> Any:
        """Return what an object is made of."""
        if isinstance(held, _PLAIN):
            return repr(held)
        if depth > _DEEPEST:
            return _name(held)
        if isinstance(held, Tensor):
            return self._tensor(held)
        if isinstance(held, np.ndarray | np.generic):
            plain = held.dtype.kind in "biufc"
            return _digest(torch.as_tensor(np.array(held))) if plain else self.of(held.tolist(), depth)
        if isinstance(held, functools.partial | MethodType | Mapping | list | tuple | set | frozenset):
            return self._several(held, depth + 1)
        if not isinstance(held, FunctionType) and _is_foreign(held):
            return _name(held)
        return self._once(held, depth + 1)

    def of_part(self, part: nn.Module) -> Any:
        """Return what a part of a module is made of, without the parts inside it."""
        own = {name: value for name, value in vars(part).items() if name not in _OF_ANY}
        hooks = [list(vars(part)[name].values()) for name in _HOOKS]
        held = own, part._parameters, part._buffers, hooks
        return [_name(part), part.training, self._class(type(part), 1), *(self.of(each) for each in held)]

    def _several(self, held: Any, depth: int) -> Any:
        if isinstance(held, functools.partial):
            return ["partial", *(self.of(part, depth) for part in (held.func, held.args, held.keywords))]
        if isinstance(held, MethodType):
            return [self.of(held.__func__, depth), self.of(held.__self__, depth)]
        if isinstance(held, Mapping):
            return [[str(name), self.of(held[name], depth)] for name in sorted(held, key=str)]
        parts = sorted(held, key=str) if isinstance(held, set | frozenset) else held
        return [self.of(part, depth) for part in parts]

    def _once(self, held: Any, depth: int) -> Any:
        if id(held) in self._met:
            return ["again", self._met[id(held)][0]]
        self._met[id(held)] = len(self._met), held
        if isinstance(held, FunctionType):
            return [_name(held), _code(held.__code__), *(self.of(part, depth) for part in _values_of(held))]
        return [_name(held), self._class(type(held), depth), self.of(vars(held), depth)]

    def _class(self, kind: type, depth: int) -> Any:
        """Return the code and the numbers of a class, and of those that it inherits from."""
        return [
            [name, self.of(_function_of(value), depth)]
            for each in kind.__mro__
            if not _is_of_library(each)
            for name, value in sorted(vars(each).items(), key=lambda item: item[0])
            if _counts(value)
        ]

    def _tensor(self, held: Tensor) -> list[Any]:
        kind = [str(held.dtype), str(tuple(held.shape)), held.requires_grad]
        computed = held.grad_fn is not None  # from parameters, as old ways of weight norm keep it
        return kind if computed or id(held) in self._restored else [*kind, _digest(held.detach())]


def _values_of(function: FunctionType) -> list[Any]:
    """Defaults, what a function closes over, and numbers and functions of its own file that it reads by name."""
    cells = [_content(cell) for cell in function.__closure__ or ()]
    read = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    own = {name: value for name, value in read.items() if _is_number(value) or _is_from(value, function.__module__)}
    return [function.__defaults__, function.__kwdefaults__, cells, own]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code reads, and that functions inside it read."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _is_number(value: Any) -> bool:
    """Whether a value is plain, or holds nothing but plain values."""
    if isinstance(value, Mapping):
        return all(map(_is_number, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_number, value))
    return isinstance(value, (*_PLAIN, Tensor, np.ndarray, np.generic))


def _is_from(value: Any, file: str) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == file


def _counts(value: Any) -> bool:
    """Whether an attribute of a class says what its objects do."""
    return isinstance(_function_of(value), FunctionType) or (_is_number(value) and not isinstance(value, str | None))


def _function_of(value: Any) -> Any:
    """Return the function behind a method of a class or a property; any other value as it is."""
    return getattr(value, "__func__", getattr(value, "fget", value))


def _is_foreign(held: Any) -> bool:
    """Whether an object is known by its name alone."""
    if isinstance(held, type) or not hasattr(held, "__dict__"):
        return True
    return not isinstance(held, nn.Module | SimpleNamespace) and _is_of_library(type(held))


def _is_of_library(kind: type) -> bool:
    """Whether a class is PyTorch's or Python's own."""
    library = kind.__module__.partition(".")[0]
    return library == "torch" or (library in sys.stdlib_module_names and library != "__main__")


def _code(code: CodeType) -> list[Any]:
    parts = [_code(each) if isinstance(each, CodeType) else _Form().of(each) for each in code.co_consts]
    return [hashlib.sha256(code.co_code).hexdigest(), list(code.co_names), list(code.co_varnames), parts]


def _digest(held: Tensor) -> list[str]:
    array = held.cpu().to_dense() if held.layout != torch.strided else held.cpu()
    content = array.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b""
    return [str(array.dtype), str(tuple(array.shape)), hashlib.sha256(content).hexdigest()]


def _name(held: Any) -> str:
    named = held if hasattr(held, "__qualname__") else type(held)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"
