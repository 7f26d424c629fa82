"""Questions as bytes: numbers, texts, arrays, and names of this library's own classes and functions.

A client reads what a server sends, so nothing of the sender's may run when it is read. Unlike a pickle, these bytes
call nothing but constructors that check their fields: they name a class or function of this library, and give the
fields of objects. Objects of other libraries cannot be sent.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy.bounds import Hidden

REFUSED: Final = ("auditing", "cli", "evaluation", "exports", "parties", "report", "serving", "training")
"""Parts of the library that no contribution needs: they look at raw data, write files or run programs."""


def to_bytes(value: object) -> bytes:
    """Write a value.

    >>> from_bytes(to_bytes({"rows": np.arange(3), "name": ("x", 1.5)}))
    {'rows': array([0, 1, 2]), 'name': ('x', 1.5)}
    """
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_written(value, arrays))
    body = io.BytesIO()
    named = {f"a{k}": array for k, array in enumerate(arrays)}
    np.savez(body, tree=np.frombuffer(tree.encode(), np.uint8), **named)  # type: ignore[arg-type]
    return body.getvalue()


def from_bytes(content: bytes) -> Any:
    """Read back what `to_bytes` wrote. Refuse other bytes and other names."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            tree = json.loads(held["tree"].tobytes())
            return _read(tree, {name: held[name] for name in held.files})
    except (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError(f"Expected a message of this library, got other bytes: {problem}", argument=None) from None


def _written(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Return a value as JSON; arrays are put aside."""
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum | np.generic)):
        return value
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            raise InputError(f"Expected arrays of numbers or texts to send, got {value.dtype}.", argument=None)
        arrays.append(np.asarray(value))
        return {"scalar" if isinstance(value, np.generic) else "array": f"a{len(arrays) - 1}"}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_written(each, arrays) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[_written(k, arrays), _written(v, arrays)] for k, v in value.items()]}
    return _written_object(value, arrays)


def _written_object(value: Any, arrays: list[NDArray[Any]]) -> Any:
    if isinstance(value, Hidden):
        raise InputError(f"A {type(value).__name__} holds private values and cannot be sent.", argument=None)
    if isinstance(value, MethodType):
        return {"method": [_written(value.__self__, arrays), value.__name__]}
    if isinstance(value, partial):
        return {"partial": [_written(each, arrays) for each in (value.func, value.args, dict(value.keywords))]}
    if isinstance(value, FunctionType | type):
        return {"name": _name_of(value)}
    if isinstance(value, Enum):
        return {"enum": [_name_of(type(value)), value.name]}
    return {"object": _name_of(type(value)), "fields": _written(_fields(value), arrays)}


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of an object: what its class declares, and nothing that was worked out from it and kept."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    state = value.__getstate__()
    if isinstance(state, tuple):  # of a class with slots
        return {**(state[0] or {}), **(state[1] or {})}
    return dict(state or {})


def _name_of(thing: Any) -> str:
    name = f"{thing.__module__}:{thing.__qualname__}"
    if _found(name) is not thing:
        raise InputError(f"Expected something that clients can find by its name, got {name}.", argument=None)
    return name


def _found(name: str) -> Any:
    """Return the class or function of this library that a name stands for; refuse other names."""
    module, _, path = name.partition(":")
    parts = module.split(".")
    if parts[0] != "apportion" or len(parts) < 2 or parts[1] in REFUSED or "__" in path or "<" in path:
        raise InputError(
            f"Expected a name in this library, of a part that contributions use, got {name}.", argument=None
        )
    thing: Any = importlib.import_module(module)
    for part in path.split("."):
        thing = getattr(thing, part, None)
    if not isinstance(thing, FunctionType | type) or thing.__module__ != module:
        raise InputError(f"Expected the name of a class or function of this library, got {name}.", argument=None)
    return thing


def _read(tree: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "object" in tree:
        return _made(_found(tree["object"]), _read(tree["fields"], arrays))
    ((kind, held),) = tree.items()
    if kind in ("array", "scalar"):
        return arrays[held] if kind == "array" else arrays[held][()]
    if kind == "bytes":
        return base64.b64decode(held)
    if kind == "dtype":
        return np.dtype(held)
    if kind == "name":
        return _found(held)
    if kind == "enum":
        return _found(held[0])[held[1]]
    read = [_read(each, arrays) for each in held] if kind != "dict" else held
    if kind == "dict":
        return {_read(k, arrays): _read(v, arrays) for k, v in read}
    if kind == "method":
        return _method(*read)
    if kind == "partial":
        return partial(read[0], *read[1], **read[2])
    if kind in ("list", "tuple"):
        return read if kind == "list" else tuple(read)
    raise InputError(f"Expected a kind of value that this library writes, got {kind!r}.", argument=None)


def _method(owner: Any, name: str) -> Any:
    if name.startswith("_") or not type(owner).__module__.startswith("apportion."):
        raise InputError(f"Expected a method of an object of this library, got {name!r}.", argument=None)
    return getattr(owner, name)


def _made(kind: Any, given: dict[str, Any]) -> Any:
    """Return an object with these fields. A class that declares its fields checks them; of others nothing is called."""
    if not isinstance(kind, type) or issubclass(kind, Hidden):
        raise InputError(f"Expected a class whose objects may be sent, got {kind}.", argument=None)
    if is_dataclass(kind):
        return kind(**given)
    made = object.__new__(kind)
    for name, value in given.items():
        object.__setattr__(made, name, value)
    return made
