"""Constructors written from the fields of a class.

An estimator lists its arguments as fields, like a dataclass. An argument of several estimators is a field of their
common base, with its line under "Args:" in the base's docstring. `with_constructor` writes the constructor, which only
stores, and adds the inherited lines to the docstring, so that `help` and the reference show every argument.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform, get_type_hints

Class = TypeVar("Class", bound=type)

_SECTION = re.compile(r"(?<=^    Args:\n)(?:^ {8}.*\n)+", re.M)
_ENTRY = re.compile(r"^ {8}(\w+): .*\n(?: {12}.*\n)*", re.M)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def with_constructor(cls: Class) -> Class:
    """Give the class a constructor that stores each field under its name, documented in full.

    Keyword arguments are in the order of the classes: those of the class itself, then those of its bases. Attributes
    that a fit learns are fields with `init=False`.
    """
    dataclass(eq=False, repr=False)(cls)
    constructor: Any = cls.__init__  # type: ignore[misc]
    constructor.__signature__ = _own_arguments_first(cls, inspect.signature(constructor))
    names = [name for name in constructor.__signature__.parameters if name != "self"]
    types = get_type_hints(cls)  # a name in an annotation has its meaning in the module of its class
    constructor.__annotations__ = {**{name: types[name] for name in names}, "return": None}
    if cls.__doc__:
        cls.__doc__ = _with_inherited_lines(cls, names)
    return cls


def _own_arguments_first(cls: type, signature: inspect.Signature) -> inspect.Signature:
    """Sort keyword arguments: those of a class before those of its bases."""

    def depth(parameter: inspect.Parameter) -> int:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            return -1
        return next(k for k, each in enumerate(cls.__mro__) if parameter.name in vars(each).get("__annotations__", ()))

    return signature.replace(parameters=sorted(signature.parameters.values(), key=depth))


def _with_inherited_lines(cls: type, names: Iterable[str]) -> str:
    """Return the docstring with the lines of its bases included, in the order of the constructor."""
    lines = {name: line for each in reversed(cls.__mro__) for name, line in _documented(each).items()}
    ordered = dict.fromkeys([*names, *_documented(cls)])
    return _SECTION.sub(lambda _: "".join(lines.get(name, "") for name in ordered), cls.__doc__ or "")


def _documented(cls: type) -> dict[str, str]:
    """Return the lines about each argument, by name."""
    section = _SECTION.search(vars(cls).get("__doc__") or "")
    return {} if section is None else {entry[1]: entry[0] for entry in _ENTRY.finditer(section[0])}
