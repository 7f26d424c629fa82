"""From a file to `Interactions`: ratings or clicks, the public item list, and the public scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize

import numpy as np

from apportion.cli.cautions import OF_QUERY, declared_of, said_of_folder
from apportion.cli.item_files import read_item_list
from apportion.cli.option_types import ITEMS_FROM_DATA
from apportion.cli.options import DataOptions, Kind
from apportion.cli.row_options import if_option, said_of_rows
from apportion.data import IGNORE, Interactions
from apportion.data.columns import ColumnChoice, Columns, choose_columns, refuse_uneven_guess, usually
from apportion.data.item_lists import on_list
from apportion.data.query_tables import is_query
from apportion.data.row_rules import RowRules
from apportion.data.sources import OpenTable, Place, name_of, naming, open_table, rows_say_schema
from apportion.data.user_data import UserData
from apportion.errors import InputError

_TIMES: Final = (
    "Times in {}: seconds, or dates as 2026-11-16 09:30; other cells, such as 11/16/2026, are no times, and come "
    "before all others in the order of the file (--timestamp refuses them)."
)


@dataclass(frozen=True)
class Loaded:
    """Data as a command uses them.

    Attributes:
        data: the observations.
        kind: ratings or clicks.
        remarks: decisions made while loading, for stderr.
        rules: the public rules by which rows were chosen, for the statement.
    """

    data: Interactions
    kind: Kind
    remarks: tuple[str, ...]
    rules: tuple[str, ...] = ()


def load_data(
    path: Place, options: DataOptions, item_list: str = "--items FILE", *, single_user: bool = False
) -> Loaded:
    """Read data by the options given.

    Args:
        path: a file, several, or a database.
        options: how it is to be read.
        item_list: the caller's name for the option with the public item list.
        single_user: whether one user is enough.
    """
    source = open_source(path, options)
    has_value, kind = kind_of(path, options)
    if not has_value and options.kind is None:  # a value in other rows would make them ratings
        with naming(path):
            refuse_uneven_guess(source, {"user": IGNORE, "task": IGNORE, "value": None, "timestamp": IGNORE})
    listed = read_item_list(options.items) if isinstance(options.items, Path) else None
    drops = options.unlisted == "drop"
    wanted = {"task_ids": None if drops else listed, "single_user": single_user}
    rows = read_rows(path, source, options, value_choice(kind, options), **wanted)
    data, remarks = rows.data, list(rows.remarks)
    if drops and listed is not None:
        data, dropped = _of_listed(data, listed, path)
        remarks.extend(dropped)
    if options.min_value is not None:
        data = _at_least(data, options.min_value, path)
    if kind == "ratings":
        _check_scale(data, options.scale, path)
    elif options.repeats in ("count", "sum"):
        data = data.with_values(1.0)
    unused = _unused(source, options) if kind == "clicks" and options.kind is None else ()
    said = (*said_of_folder(path), *remarks_on(kind, options, has_value, data, item_list), *remarks, *unused)
    return Loaded(data, kind, said, (*rows.rules.in_words(), *rules_of(options, path)))


@dataclass(frozen=True)
class ReadRows:
    """Rows of a file, the rules that they were read by, and what to say about it on the terminal."""

    data: Interactions
    rules: RowRules
    remarks: tuple[str, ...]


def read_rows(path: Place, source: OpenTable, options: DataOptions, value: ColumnChoice, **settings: Any) -> ReadRows:
    """Read rows by the rules in the options.

    Args:
        path: the file.
        source: the file, opened.
        options: how it is to be read.
        value: the value column.
        settings: of `Interactions.read`.
    """
    has_value = value is not IGNORE and (value is not None or bool(usually("value", source.names)))
    chosen = _columns_of(path, source, options, value, has_value)
    time = chosen.timestamp or IGNORE
    repeats = options.repeats or ("mean" if has_value and time is IGNORE and not source.ordered else "last")
    loose = options.timestamp is None  # nobody said that this column holds times
    rules, left_out = RowRules(options.where, options.missing, repeats, loose), dict[str, int]()
    data = Interactions.read(
        path,
        user=chosen.user,
        task=chosen.task,
        value=chosen.value or IGNORE,
        timestamp=time,
        columns=names_given(options),
        table=options.table,
        rules=rules,
        left_out=left_out,
        **settings,
    )
    joined = f"repeated a user and an item; rule: {repeats}{if_option('repeats', ' (--repeats changes it)')}."
    said = said_of_rows(name_of(path), left_out, "user, item, value or time", repeats=joined)
    return ReadRows(data, rules, (*_said_of_columns(source, chosen, options, value), *said, *_alike(path, data)))


def _alike(path: Place, data: Interactions) -> Iterator[str]:
    """Say how many ids are another id but for spaces around them or their Unicode form: they may be one person."""
    for ids in (data.user_ids, data.task_ids):
        if n_alike := len(ids) - len({normalize("NFC", str(each).strip()) for each in ids}) if ids.holds_text else 0:
            differ = f"{n_alike} {ids.name} id{'s differ' if n_alike > 1 else ' differs'} from another"
            yield f"{name_of(path)}: {differ} by spaces or Unicode form alone; they count as different ids."


def _columns_of(path: Place, source: OpenTable, options: DataOptions, value: ColumnChoice, has_value: bool) -> Columns:
    """Return the columns to read: those that were named, and a guess of the others by their names."""
    named: dict[str, ColumnChoice] = {"user": options.user, "task": options.item, "value": value}
    with naming(path):
        chosen = choose_columns(source.names, {**named, "timestamp": _time_choice(source, options, has_value)})
        refuse_uneven_guess(source, {**named, "timestamp": options.timestamp if has_value else IGNORE})
    return chosen


def _said_of_columns(source: OpenTable, chosen: Columns, options: DataOptions, value: ColumnChoice) -> Iterator[str]:
    """Say which columns were guessed by their names, and what is a time in a column of text that nobody named."""
    roles = {"user": chosen.user, "item": chosen.task, "value": chosen.value, "time": chosen.timestamp}
    if any(choice is None for choice in (options.user, options.item, value)):
        yield f"Columns: {', '.join(f'{role} = {name}' for role, name in roles.items() if name is not None)}."
    time = chosen.timestamp if options.timestamp is None else None
    if time is not None and (source.untyped or source.held_kinds([time])[time] == "text"):
        yield _TIMES.format(time)


def _unused(source: OpenTable, options: DataOptions) -> Iterator[str]:
    """Name the other columns of clicks that nobody asked for: one of them may say which rows are clicks."""
    if options.min_value is not None or options.where is not None:
        return
    choices: dict[str, ColumnChoice] = {"user": options.user, "task": options.item, "value": IGNORE}
    chosen = choose_columns(source.names, {**choices, "timestamp": IGNORE})
    used = {chosen.user, chosen.task, options.timestamp, *usually("timestamp", source.names)}
    others = [name for name in source.names if name not in used]
    if others:
        yield (
            f"Not used: {', '.join(others)}. Every row counts as a click; if a column says which rows are clicks, "
            "give --value COLUMN --min-value X, or --where."
        )


def _time_choice(source: OpenTable, options: DataOptions, has_value: bool) -> ColumnChoice:
    """Return the column of times: the one named, or else the only usual one if it tells which row is the last.

    The cells of a file without a schema have no say: one user's first cell would decide for all users.
    """
    if options.timestamp is not None:
        return options.timestamp
    taken = (options.user, options.item, options.value)
    usual = [name for name in usually("timestamp", source.names) if name not in taken]
    if options.repeats not in (None, "last", "first") or not has_value or not usual:
        return IGNORE
    if len(usual) > 1 or (not source.untyped and source.held_kinds(usual)[usual[0]] == "other"):
        _refuse_guess(source, usual)
        return IGNORE
    return usual[0]


def _refuse_guess(source: OpenTable, usual: Sequence[str]) -> None:
    """Refuse to guess where it is rows that say which columns there are, or what they hold: one user's would decide."""
    if rows_say_schema(source):
        problem = f"It is not clear which column holds times ({', '.join(usual)})"
        raise InputError(problem, argument="timestamp", remedy="name it with")


def rules_of(options: DataOptions, path: object) -> Iterator[str]:
    """Return the other rules by which rows were left out, each applied within one user's rows, for the statement."""
    if options.table is not None and is_query(options.table):
        yield OF_QUERY
    yield from declared_of(path)
    if options.unlisted == "drop":
        yield "that rows of items outside the list were left out"
    if options.min_value is not None:
        yield f"that only rows with a value of at least {options.min_value:g} were kept"


def kind_of(path: Place, options: DataOptions) -> tuple[bool, Kind]:
    """Return whether there is a value column, and what the rows are."""
    has_value = has_value_column(path, options)
    kind: Kind = options.kind or _guess_kind(options, has_value)
    if kind == "ratings" and not has_value and options.repeats != "count":
        problem = f"{name_of(path)}: ratings need a value column, but none was found"
        raise InputError(problem, argument="value", remedy="name it with")
    return has_value, kind


def _guess_kind(options: DataOptions, has_value: bool) -> Kind:
    return "ratings" if has_value and options.min_value is None else "clicks"


def value_choice(kind: Kind, options: DataOptions) -> ColumnChoice:
    """Return the value column, if rows of this kind need one."""
    return options.value if kind == "ratings" or options.min_value is not None else IGNORE


def has_value_column(path: Place, options: DataOptions) -> bool:
    """Whether a value column was named, or exists under a usual name."""
    choices: dict[str, ColumnChoice] = {
        "user": options.user,
        "task": options.item,
        "value": options.value,
        "timestamp": options.timestamp or IGNORE,
    }
    names = open_source(path, options).names
    try:
        return choose_columns(names, choices).value is not None
    except InputError as error:
        raise error.inside(name_of(path)) from None


def open_source(path: Place, options: DataOptions) -> OpenTable:
    """Open the data file; the names of its columns come from its schema, its first line or the options."""
    with naming(path):
        return open_table(path, columns=names_given(options), table=options.table)


def names_given(options: DataOptions) -> list[str] | None:
    """Return the names in `--columns`."""
    return None if options.columns is None else [name.strip() for name in options.columns.split(",")]


def _of_listed(data: Interactions, listed: list[int] | list[str], path: Place) -> tuple[Interactions, tuple[str, ...]]:
    """Keep the rows of listed items; also returns a remark on how many rows were left out."""
    kept = on_list(data, [str(item) for item in listed])
    if not kept.n_observations:
        raise InputError(f"{name_of(path)}: no row has an item of the list.", argument="items")
    left_out = data.n_observations - kept.n_observations
    remark = (
        f"{name_of(path)}: {left_out} of {data.n_observations} rows are for items outside the list; they were left out."
    )
    return kept, (remark,) if left_out else ()


def _at_least(data: Interactions, min_value: float, path: Place) -> Interactions:
    kept = data.where(data.values >= np.float32(min_value))
    if not kept.n_observations:
        raise InputError(f"{name_of(path)}: no row has a value of at least {min_value:g}.", argument="min_value")
    return kept.with_values(1.0)


def _check_scale(data: Interactions, scale: tuple[float, float], path: Place) -> None:
    low, high = scale
    outside = (data.values < np.float32(low)) | (data.values > np.float32(high))
    if outside.any():
        first = int(np.argmax(outside))
        user = data.user_ids.id_of(int(data.users[first]))
        item = data.task_ids.id_of(int(data.tasks[first]))
        raise InputError(
            f"{name_of(path)}: the value {data.values[first]:g} of user {user!r} for item {item!r} is "
            f"outside the scale {low:g} to {high:g} (rows that count plays or visits are clicks, not ratings)",
            argument="value_range",
            remedy="declare the scale with",
        )


def remarks_on(kind: Kind, options: DataOptions, has_value: bool, data: UserData, item_list: str) -> Iterator[str]:
    """Say what was taken for granted, for the terminal."""
    if options.kind is None and options.min_value is None:
        reason = "a value column was found" if has_value else "there is no value column"
        other = "clicks" if kind == "ratings" else "ratings"
        yield f"Treating the rows as {kind}: {reason} (--{other} overrides this)."
    if options.items == ITEMS_FROM_DATA:
        yield (
            f"The {data.n_tasks} items in the data are declared public ({item_list} gives a list instead). "
            "Not protected: who holds an item that nobody else holds."
        )
