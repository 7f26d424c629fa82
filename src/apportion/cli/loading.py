"""From a file to `Interactions`: ratings or clicks, the public item list, and the public scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apportion.cli.item_files import read_item_list
from apportion.cli.options import ITEMS_FROM_DATA, DataOptions, Kind
from apportion.data import IGNORE, Interactions
from apportion.data.columns import ColumnChoice, choose_columns
from apportion.data.item_lists import on_list
from apportion.data.sources import open_table
from apportion.errors import InputError


@dataclass(frozen=True)
class Loaded:
    """Data as a command uses them.

    Attributes:
        data: the observations.
        kind: ratings or clicks.
        remarks: decisions made while loading, for stderr.
    """

    data: Interactions
    kind: Kind
    remarks: tuple[str, ...]


def load_data(path: Path, options: DataOptions, item_list: str = "--items FILE") -> Loaded:
    """Read a CSV, TSV, MovieLens .dat or Parquet file by the options given.

    Args:
        path: the file.
        options: how it is to be read.
        item_list: the caller's name for the option with the public item list.
    """
    has_value = has_value_column(path, options)
    kind: Kind = options.kind or _guess_kind(options, has_value)
    if kind == "ratings" and not has_value:
        problem = f"{path.name}: ratings need a value column, but none was found"
        raise InputError(problem, argument="value", remedy="name it with")
    listed = read_item_list(options.items) if isinstance(options.items, Path) else None
    data = Interactions.read(
        path,
        user=options.user,
        task=options.item,
        value=_value_choice(kind, options),
        timestamp=options.timestamp or IGNORE,
        columns=names_given(options),
        task_ids=None if options.unlisted == "drop" else listed,
    )
    dropped: tuple[str, ...] = ()
    if options.unlisted == "drop" and listed is not None:
        data, dropped = _of_listed(data, listed, path)
    if options.min_value is not None:
        data = _at_least(data, options.min_value, path)
    if kind == "ratings":
        _check_scale(data, options.scale, path)
    return Loaded(data, kind, (*_remarks(kind, options, has_value, data, item_list), *dropped))


def _guess_kind(options: DataOptions, has_value: bool) -> Kind:
    return "ratings" if has_value and options.min_value is None else "clicks"


def _value_choice(kind: Kind, options: DataOptions) -> ColumnChoice:
    return options.value if kind == "ratings" or options.min_value is not None else IGNORE


def has_value_column(path: Path, options: DataOptions) -> bool:
    """Whether a value column was named, or exists under a usual name."""
    choices: dict[str, ColumnChoice] = {
        "user": options.user,
        "task": options.item,
        "value": options.value,
        "timestamp": options.timestamp or IGNORE,
    }
    try:
        return choose_columns(column_names(path, options), choices).value is not None
    except InputError as error:
        raise error.inside(path.name) from None


def column_names(path: Path, options: DataOptions) -> Sequence[str]:
    """Return the names of a file's columns, from its schema, its first line or the options."""
    return open_table(path, columns=names_given(options)).names


def names_given(options: DataOptions) -> list[str] | None:
    """Return the names in `--columns`."""
    return None if options.columns is None else [name.strip() for name in options.columns.split(",")]


def _of_listed(data: Interactions, listed: list[int] | list[str], path: Path) -> tuple[Interactions, tuple[str, ...]]:
    """Keep the rows of listed items; also returns a remark on how many rows were left out."""
    kept = on_list(data, [str(item) for item in listed])
    if not kept.n_observations:
        raise InputError(f"{path.name}: no row has an item of the list.", argument="items")
    left_out = data.n_observations - kept.n_observations
    remark = (
        f"{path.name}: {left_out} of {data.n_observations} rows are for items outside the list; they were left out."
    )
    return kept, (remark,) if left_out else ()


def _at_least(data: Interactions, min_value: float, path: Path) -> Interactions:
    kept = data.where(data.values >= np.float32(min_value))
    if not kept.n_observations:
        raise InputError(f"{path.name}: no row has a value of at least {min_value:g}.", argument="min_value")
    return kept.with_values(1.0)


def _check_scale(data: Interactions, scale: tuple[float, float], path: Path) -> None:
    low, high = scale
    outside = (data.values < np.float32(low)) | (data.values > np.float32(high))
    if outside.any():
        first = int(np.argmax(outside))
        user = data.user_ids.id_of(int(data.users[first]))
        item = data.task_ids.id_of(int(data.tasks[first]))
        raise InputError(
            f"{path.name}: the value {data.values[first]:g} of user {user!r} for item {item!r} is "
            f"outside the scale {low:g} to {high:g}",
            argument="value_range",
            remedy="declare the scale with",
        )


def _remarks(kind: Kind, options: DataOptions, has_value: bool, data: Interactions, item_list: str) -> Iterator[str]:
    if options.kind is None and options.min_value is None:
        reason = "a value column was found" if has_value else "there is no value column"
        other = "clicks" if kind == "ratings" else "ratings"
        yield f"Treating the rows as {kind}: {reason} (--{other} overrides this)."
    if options.items == ITEMS_FROM_DATA:
        yield (
            f"No item list was given ({item_list}): the {data.n_tasks} items in the data are declared public. "
            "Not protected: who holds an item that nobody else holds."
        )
