"""Read a table key by key: every value is checked, and errors and leftovers are refused with their place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from apportion.errors import InputError

_NEEDED: Final = object()


class Table:
    """A table that is read key by key. Errors and leftovers are refused with their place."""

    def __init__(self, place: str, values: Mapping[str, Any]) -> None:
        self.place = place
        self.values = dict(values)
        self.known: list[str] = []

    def take(self, key: str, expected: str, accept: Callable[[Any], bool], default: Any = _NEEDED) -> Any:
        """Return the value of a key, checked."""
        self.known.append(key)
        if key not in self.values:
            if default is _NEEDED:
                raise InputError(f"Expected {key} in {self.place} ({expected}), got none.", argument=None)
            return default
        value = self.values.pop(key)
        if not accept(value):
            raise InputError(f"Expected {key} in {self.place} to be {expected}, got {value!r}.", argument=None)
        return value

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self.values:
            raise InputError(f"Expected only {', '.join(self.known)} in {self.place}, got {key!r}.", argument=None)


def is_table(value: Any) -> bool:
    """Whether it is a table."""
    return isinstance(value, Mapping)


def is_tables(value: Any) -> bool:
    """Whether it is a list of tables, at least one."""
    return isinstance(value, Sequence) and len(value) > 0 and all(map(is_table, value))


def is_text(value: Any) -> bool:
    """Whether it is text that is not blank."""
    return isinstance(value, str) and value.strip() != ""


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_range(value: Any) -> bool:
    """Whether it is [low, high] with low below high."""
    return isinstance(value, Sequence) and len(value) == 2 and all(map(is_number, value)) and value[0] < value[1]


def is_positive(value: Any) -> bool:
    """Whether it is a number above 0."""
    return is_number(value) and value > 0


def is_fraction(value: Any) -> bool:
    """Whether it is a number strictly between 0 and 1."""
    return is_number(value) and 0 < value < 1


def is_whole(least: int) -> Callable[[Any], bool]:
    """Return a test for whole numbers of at least `least`."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_list_of(accept: Callable[[Any], bool], *, distinct: bool = True, least: int = 1) -> Callable[[Any], bool]:
    """Return a test for lists of at least `least` accepted values, all different if `distinct`."""

    def accepted(value: Any) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) < least:
            return False
        return all(map(accept, value)) and not (distinct and len(set(value)) < len(value))

    return accepted
