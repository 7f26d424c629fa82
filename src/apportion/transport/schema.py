"""What plain data must look like: types, shapes and ranges, checked before anything is made of them.

A schema takes exactly what it names, nothing more and nothing less. Shapes are not sent: they follow from the public
list of items and from whole numbers that were read before in the same table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, Protocol

import numpy as np

from apportion.errors import InputError

Sizes = Mapping[str, int]
"""Whole numbers that shapes are made of, by name."""

LARGEST: Final = 1e9  # of a number in an array, unless said otherwise


class Schema(Protocol):
    """Reads a value, or refuses it; and writes it."""

    def read(self, plain: Any, sizes: Sizes) -> Any:
        """Return the value that plain data stand for."""

    def written(self, value: Any, sizes: Sizes) -> Any:
        """Return plain data that stand for a value."""


@dataclass(frozen=True)
class Whole:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def read(self, plain: Any, sizes: Sizes) -> int:
        """Return the number."""
        if type(plain) is not int or not self.low <= plain <= self.high:
            refuse(f"a whole number from {self.low} to {self.high}")
        return plain

    def written(self, value: Any, sizes: Sizes) -> int:
        """Return the number."""
        return self.read(int(value), sizes)


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`."""

    low: float
    high: float

    def read(self, plain: Any, sizes: Sizes) -> float:
        """Return the number."""
        if type(plain) not in (int, float) or not self.low <= plain <= self.high:  # also refuses NaN
            refuse(f"a number from {self.low:g} to {self.high:g}")
        return float(plain)

    def written(self, value: Any, sizes: Sizes) -> float:
        """Return the number."""
        return self.read(float(value), sizes)


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def read(self, plain: Any, sizes: Sizes) -> bool:
        """Return it."""
        if type(plain) is not bool:
            refuse("true or false")
        return plain

    def written(self, value: Any, sizes: Sizes) -> bool:
        """Return it."""
        return bool(value)


@dataclass(frozen=True)
class Word:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, plain: Any, sizes: Sizes) -> str:
        """Return the word."""
        if type(plain) is not str or plain not in self.words:
            refuse(f"one of the words {', '.join(self.words)}")
        return plain

    def written(self, value: Any, sizes: Sizes) -> str:
        """Return the word."""
        return self.read(value, sizes)


@dataclass(frozen=True)
class Raw:
    """Raw bytes, between `low` and `high` of them."""

    low: int
    high: int

    def read(self, plain: Any, sizes: Sizes) -> bytes:
        """Return the bytes."""
        if type(plain) is not bytes or not self.low <= len(plain) <= self.high:
            refuse(f"from {self.low} to {self.high} bytes")
        return plain

    def written(self, value: Any, sizes: Sizes) -> bytes:
        """Return the bytes."""
        return self.read(value, sizes)


@dataclass(frozen=True)
class Array:
    """Finite numbers of a known shape, within limits.

    Attributes:
        shape: names of sizes, or numbers.
        low: least number.
        high: largest number.
        kind: how a number is stored: "<f8" and "<f4" for real ones, "<u8" for whole ones.
    """

    shape: tuple[str | int, ...]
    low: float = -LARGEST
    high: float = LARGEST
    kind: Literal["<f8", "<f4", "<u8"] = "<f8"

    def read(self, plain: Any, sizes: Sizes) -> Any:
        """Return the array, which nobody can write to."""
        shape = self._shape(sizes)
        if type(plain) is not bytes or len(plain) != math.prod(shape) * np.dtype(self.kind).itemsize:
            refuse(f"an array of shape {shape}")
        numbers = np.frombuffer(plain, self.kind).reshape(shape)
        if self.kind != "<u8" and not ((numbers >= self.low) & (numbers <= self.high)).all():  # also refuses NaN
            refuse(f"numbers from {self.low:g} to {self.high:g}")
        return numbers.astype(np.dtype(self.kind).newbyteorder("="), copy=False)

    def written(self, value: Any, sizes: Sizes) -> bytes:
        """Return the numbers in order."""
        array = np.asarray(value)
        if array.shape != self._shape(sizes) or not np.can_cast(array.dtype, self.kind, "safe"):
            refuse(f"an array of shape {self._shape(sizes)} and kind {self.kind}")
        plain = np.ascontiguousarray(array, self.kind).tobytes()
        self.read(plain, sizes)
        return plain

    def _shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(each if isinstance(each, int) else sizes[each] for each in self.shape)


@dataclass(frozen=True)
class Maybe:
    """A value, or nothing."""

    of: Schema

    def read(self, plain: Any, sizes: Sizes) -> Any:
        """Return the value or None."""
        return None if plain is None else self.of.read(plain, sizes)

    def written(self, value: Any, sizes: Sizes) -> Any:
        """Return the value or None."""
        return None if value is None else self.of.written(value, sizes)


@dataclass(frozen=True)
class Several:
    """From `least` to `most` values of one kind."""

    of: Schema
    least: int
    most: int

    def read(self, plain: Any, sizes: Sizes) -> tuple[Any, ...]:
        """Return the values."""
        if type(plain) is not list or not self.least <= len(plain) <= self.most:
            refuse(f"a list of {self.least} to {self.most} values")
        return tuple(self.of.read(each, sizes) for each in plain)

    def written(self, value: Any, sizes: Sizes) -> list[Any]:
        """Return the values."""
        plain = [self.of.written(each, sizes) for each in value]
        if not self.least <= len(plain) <= self.most:
            refuse(f"a list of {self.least} to {self.most} values")
        return plain


@dataclass(frozen=True)
class ByPosition:
    """Values of clients, by position, in ascending order; positions are below the size `clients`."""

    of: Schema

    def read(self, plain: Any, sizes: Sizes) -> dict[int, Any]:
        """Return the values by position."""
        if type(plain) is not list or len(plain) > sizes["clients"]:
            refuse("a list of clients' values")
        position, held = Whole(0, sizes["clients"] - 1), {}
        for pair in plain:
            if type(pair) is not list or len(pair) != 2:
                refuse("pairs of a position and a value")
            held[position.read(pair[0], sizes)] = self.of.read(pair[1], sizes)
        if len(held) != len(plain) or list(held) != sorted(held):
            refuse("each client once, in order")
        return held

    def written(self, value: Any, sizes: Sizes) -> list[Any]:
        """Return pairs of a position and a value."""
        return [[each, self.of.written(value[each], sizes)] for each in sorted(value)]


@dataclass(frozen=True)
class Table:
    """Named values, all of them and no others. Whole numbers are sizes for the fields after them."""

    fields: Mapping[str, Schema]

    def read(self, plain: Any, sizes: Sizes) -> dict[str, Any]:
        """Return the values by name."""
        if type(plain) is not dict or set(plain) != set(self.fields):
            refuse(f"the fields {', '.join(self.fields) or 'of nothing'}")
        return self._each(plain, sizes, lambda schema, value, known: schema.read(value, known))

    def written(self, value: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
        """Return plain data by name."""
        return self._each(value, sizes, lambda schema, each, known: schema.written(each, known))

    def _each(self, values: Mapping[str, Any], sizes: Sizes, make: Any) -> dict[str, Any]:
        known, made = dict(sizes), {}
        for name, schema in self.fields.items():
            made[name] = make(schema, values[name], known)
            if isinstance(schema, Whole):
                known[name] = int(values[name])
        return made


def refuse(expected: str) -> NoReturn:
    """Refuse plain data that are something else; what they are is not repeated."""
    raise InputError(f"Expected {expected}, got something else.", argument=None)
