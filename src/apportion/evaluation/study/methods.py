"""The methods of a study, `[[methods]]`: their settings, and every combination of their grids."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apportion.errors import InputError
from apportion.evaluation.study.table_reading import Table, is_list_of, is_table, is_text, is_whole

NON_PRIVATE: Final = "non-private"
"""The method without ε and noise: it is fitted once, whatever the budgets and seeds."""
FEATURES: Final = "features"
"""The setting that says whether a method gets public item features."""


@dataclass(frozen=True)
class Combination:
    """A method with every setting fixed.

    Attributes:
        method: the method's name in the study.
        settings: settings from the grid, by dotted key.
        spec: all settings, as the builder receives them.
    """

    method: str
    settings: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The method's name and its settings from the grid."""
        return f"{self.method}: {settings_in_words(self.settings)}" if self.settings else self.method


@dataclass(frozen=True)
class Method:
    """A row of the comparison: its name, its settings, and the grids to combine.

    Attributes:
        name: its name in tables.
        spec: settings, as the builder receives them.
        grid: lists of settings, by dotted key.
        draws: how many combinations of the grid to draw at random; None for all of them.
    """

    name: str
    spec: Mapping[str, Any]
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    draws: int | None = None

    @property
    def is_private(self) -> bool:
        """Whether the method has an ε."""
        return bool(self.spec["method"] != NON_PRIVATE)

    def combinations(self) -> tuple[Combination, ...]:
        """Return every combination of the grid, the last key varying fastest, or the combinations that are drawn."""
        if self.draws is not None:
            drawn = {repr(settings): settings for settings in map(self._drawn, range(self.draws))}
            return tuple(map(self._combined, drawn.values()))
        return tuple(
            self._combined(dict(zip(self.grid, values, strict=True)))
            for values in itertools.product(*self.grid.values())
        )

    def _drawn(self, number: int) -> dict[str, Any]:
        """Draw settings one by one. Methods that share a key and its list draw the same values."""
        positions = {key: zlib.crc32(f"{number} {key}".encode()) for key in self.grid}
        return {key: choices[positions[key] % len(choices)] for key, choices in self.grid.items()}

    def _combined(self, settings: Mapping[str, Any]) -> Combination:
        spec = dict(self.spec)
        for key, value in settings.items():
            spec = _with(spec, key.split("."), value, f"grid of method {self.name!r}")
        return Combination(self.name, settings, spec)


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """Format settings by the last word of their keys.

    >>> settings_in_words({"allocation.exponent": 0.25, "dimension": 8})
    'exponent 0.25, dimension 8'
    """
    return ", ".join(f"{key.rsplit('.', 1)[-1]} {_value_in_words(value)}" for key, value in settings.items())


def _value_in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(str(inner) if key in ("policy", "method") else f"{key} {inner}" for key, inner in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_methods(tables: Sequence[Mapping[str, Any]]) -> tuple[Method, ...]:
    """Check the tables of `[[methods]]`."""
    methods = tuple(_method(table, number) for number, table in enumerate(tables, 1))
    names = [method.name for method in methods]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"Expected a different name for each of [[methods]], got {name!r} {names.count(name)} times.",
                argument=None,
            )
    return methods


def _method(values: Mapping[str, Any], number: int) -> Method:
    table = Table(f"[[methods]] number {number}", values)
    kind = table.take("method", "text", is_text)
    name = table.take("name", "text", is_text, kind)
    grid = dict(_flat(table.take("grid", "a table of lists", is_table, {})))
    draws = table.take("draws", "a whole number from 1", is_whole(1), None)
    if draws is not None and not grid:
        raise InputError(f"Expected a grid for the {draws} draws of method {name!r}, got none.", argument=None)
    spec = {"method": kind, **table.values}
    for key, choices in grid.items():
        if not is_list_of(lambda _: True, distinct=False)(choices):
            raise InputError(
                f"Expected {key} in the grid of method {name!r} to be a list of values, got {choices!r}.", argument=None
            )
        if _holds(spec, key.split(".")):
            raise InputError(
                f"Expected {key} of method {name!r} either as a setting or in its grid, got both.", argument=None
            )
    for value in (*((spec[FEATURES],) if FEATURES in spec else ()), *grid.get(FEATURES, ())):
        if not isinstance(value, bool):
            raise InputError(
                f"Expected {FEATURES} of method {name!r} to be true or false, got {value!r}.", argument=None
            )
    method = Method(name, spec, {key: tuple(choices) for key, choices in grid.items()}, draws)
    method.combinations()  # refuses a key that leads into something other than a table
    return method


def _flat(table: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Return dotted keys, whether written in quotes or as nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{start}{key}.")
        else:
            yield f"{start}{key}", value


def _holds(spec: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(spec, Mapping) or key not in spec:
            return False
        spec = spec[key]
    return True


def _with(spec: Mapping[str, Any], keys: Sequence[str], value: Any, place: str) -> dict[str, Any]:
    """Return a copy with one value set, in nested tables."""
    first, *others = keys
    if not others:
        return {**spec, first: value}
    inner = spec.get(first, {})
    if not isinstance(inner, Mapping):
        raise InputError(
            f"Expected {first} to be a table, because the {place} sets {'.'.join(others)} in it, got {inner!r}.",
            argument=None,
        )
    return {**spec, first: _with(inner, others, value, place)}
