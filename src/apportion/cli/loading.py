"""From a file to `Interactions`: ratings or clicks, the public item list, and the public scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from apportion.cli.cautions import said_of_folder
from apportion.cli.item_files import read_item_list
from apportion.cli.options import ITEMS_FROM_DATA, DataOptions, Kind
from apportion.data import IGNORE, Interactions
from apportion.data.columns import ColumnChoice, choose_columns
from apportion.data.item_lists import on_list
from apportion.data.on_disk import UserFolder
from apportion.data.sources import open_table
from apportion.data.user_data import UserData
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary
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


@dataclass(frozen=True)
class LoadedFolder:
    """The same for a folder of users, which stays on disk."""

    data: UserFolder
    kind: Kind
    remarks: tuple[str, ...]


def load_data(path: Path, options: DataOptions, item_list: str = "--items FILE") -> Loaded:
    """Read a CSV, TSV, MovieLens .dat or Parquet file, or a folder of users, by the options given.

    Args:
        path: the file.
        options: how it is to be read.
        item_list: the caller's name for the option with the public item list.
    """
    has_value, kind = _kind_of(path, options)
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
    remarks = (*said_of_folder(path), *_remarks(kind, options, has_value, data, item_list), *dropped)
    return Loaded(data, kind, remarks)


def load_folder(path: Path, options: DataOptions) -> LoadedFolder:
    """Open a folder of users without loading it. Its values are looked at once, shard by shard."""
    has_value, kind = _kind_of(path, options)
    data = UserFolder.open(path, value=_value_choice(kind, options))
    _refuse_other_columns(data, options, path)
    dropped: tuple[str, ...] = ()
    if isinstance(options.items, Path):
        data, dropped = _on_given_list(data, options, path)
    if options.min_value is not None:
        data = data.mapped(partial(_clicks_of_at_least, min_value=options.min_value))
    for part in data.as_users.parts():  # also checks every shard before anything is spent
        if kind == "ratings":
            _refuse_outside(part, options.scale, path)
    return LoadedFolder(data, kind, (*_remarks(kind, options, has_value, data, "--items FILE"), *dropped))


def _kind_of(path: Path, options: DataOptions) -> tuple[bool, Kind]:
    """Return whether there is a value column, and what the rows are."""
    has_value = has_value_column(path, options)
    kind: Kind = options.kind or _guess_kind(options, has_value)
    if kind == "ratings" and not has_value:
        problem = f"{path.name}: ratings need a value column, but none was found"
        raise InputError(problem, argument="value", remedy="name it with")
    return has_value, kind


def _refuse_other_columns(data: UserFolder, options: DataOptions, path: Path) -> None:
    for argument, given, made in (
        ("user", options.user, data.manifest.user),
        ("item", options.item, data.manifest.item),
    ):
        if given not in (None, made):
            problem = f"{path.name}: the folder was made with {argument} column {made!r}, got {given!r}."
            raise InputError(problem, argument=argument)


def _on_given_list(data: UserFolder, options: DataOptions, path: Path) -> tuple[UserFolder, tuple[str, ...]]:
    assert isinstance(options.items, Path)
    listed = read_item_list(options.items)
    if options.unlisted == "drop":
        return on_list(data, [str(item) for item in listed]), (
            f"{path.name}: rows of items outside the list are left out.",
        )
    vocabulary = Vocabulary(listed, name="task", declared=True)
    codes = vocabulary.match(data.task_ids)
    unlisted = data.first_task(codes < 0)
    if unlisted is not None:
        shown = data.task_ids.id_of(unlisted)
        raise InputError(f"{path.name}: item {shown!r} is not one of the {len(listed)} listed.", argument="items")
    return data.recoded(codes, vocabulary), ()


def _clicks_of_at_least(users: Users, min_value: float) -> Users:
    kept = users.with_rows(users.column("values") >= np.float32(min_value))
    return kept.with_columns(values=np.ones(kept.n_rows, np.float32))


def _refuse_outside(users: Users, scale: tuple[float, float], path: Path) -> None:
    values, (low, high) = users.column("values"), scale
    outside = (values < np.float32(low)) | (values > np.float32(high))
    if outside.any():
        first = values[int(np.argmax(outside))]
        problem = f"{path.name}: the value {first:g} is outside the scale {low:g} to {high:g}"
        raise InputError(problem, argument="value_range", remedy="declare the scale with")


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


def _remarks(kind: Kind, options: DataOptions, has_value: bool, data: UserData, item_list: str) -> Iterator[str]:
    if options.kind is None and options.min_value is None:
        reason = "a value column was found" if has_value else "there is no value column"
        other = "clicks" if kind == "ratings" else "ratings"
        yield f"Treating the rows as {kind}: {reason} (--{other} overrides this)."
    if options.items == ITEMS_FROM_DATA:
        yield (
            f"No item list was given ({item_list}): the {data.n_tasks} items in the data are declared public. "
            "Not protected: who holds an item that nobody else holds."
        )
