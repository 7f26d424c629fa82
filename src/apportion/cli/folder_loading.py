"""A folder of users as data for a fit: it is opened, checked shard by shard, and stays on disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from apportion.cli.item_files import read_item_list
from apportion.cli.loading import kind_of, remarks_on, rules_of, value_choice
from apportion.cli.options import DataOptions, Kind
from apportion.cli.row_options import refuse_rules
from apportion.data.item_lists import on_list
from apportion.data.on_disk import FolderManifest, UserFolder
from apportion.data.users import Users
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError


@dataclass(frozen=True)
class LoadedFolder:
    """A folder of users, what its rows are, what to say about it on the terminal, and the rules for the statement."""

    data: UserFolder
    kind: Kind
    remarks: tuple[str, ...]
    rules: tuple[str, ...]


def load_folder(path: Path, options: DataOptions) -> LoadedFolder:
    """Open a folder of users without loading it. Its values are looked at once, shard by shard."""
    made = FolderManifest.read(path)
    options = replace(options, user=options.user or made.user, item=options.item or made.item)  # of any name
    has_value, kind = kind_of(path, options)
    refuse_rules(options, path.name, "choose rows before `apportion shard`", unless="drop")
    data = UserFolder.open(path, value=value_choice(kind, options))
    _refuse_other_columns(data, options, path)
    dropped: tuple[str, ...] = ()
    if isinstance(options.items, Path):
        data, dropped = _on_given_list(data, options, path)
    if options.min_value is not None:
        change = partial(_clicks_of_at_least, min_value=options.min_value)
        data = data.mapped(change, f"clicks of at least {options.min_value!r}")
    for part in data.as_users.parts():  # also checks every shard before anything is spent
        if kind == "ratings":
            _refuse_outside(part, options.scale, path)
    remarks = (*remarks_on(kind, options, has_value, data, "--items FILE"), *dropped)
    return LoadedFolder(data, kind, remarks, tuple(rules_of(options, path)))


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
    vocabulary = Vocabulary(listed, name="item", declared=True)
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
