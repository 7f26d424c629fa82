"""A folder with one file per task, in any known format, each with the rows of one party.

A file holds a column of labels and numeric columns as features. Parties may lack features: the list is the union of all
files' columns, and a task has zeros in the ones it lacks. Rows without a label are left out. Errors begin with the
file's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import _as_floats, _decoded
from apportion.data.columns import listed
from apportion.data.sources import CellKind, OpenTable, name_without_ending, naming, open_table, table_endings
from apportion.data.vocabulary import ENCODABLE, bad_cell, encodable
from apportion.errors import InputError

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class TaskFolder:
    """All tasks of a folder, in the order of their names.

    Attributes:
        names: names of the tasks: their files' names without the ending.
        features: names of the columns that at least one task has.
        matrices: one matrix for each task, [rows, features], with zeros for features that the task lacks.
        labels: one column for each task.
        has: which features each task has, [tasks, features].
        unlabelled: number of rows of each task that were left out because they have no label.
        texts: columns that were left out because they do not hold numbers.
        ignored: names of files of an unknown format.
    """

    names: tuple[str, ...]
    features: tuple[str, ...]
    matrices: tuple[Floats, ...]
    labels: tuple[Floats, ...]
    has: NDArray[np.bool_]
    unlabelled: tuple[int, ...]
    texts: tuple[str, ...]
    ignored: tuple[str, ...]


def task_files(folder: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return files by task name, sorted, and the names of files in no known format. Hidden files are ignored."""
    found: dict[str, Path] = {}
    ignored: list[str] = []
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or not file.is_file():
            continue
        if not encodable(file.name):  # bytes that are not UTF-8; pages and statements could not hold it
            raise InputError(
                f"The name of the file {file.name!r} is not in UTF-8; expected {ENCODABLE}.", argument=None
            )
        name = name_without_ending(file.name)
        if name is None:
            ignored.append(file.name)
        elif name in found:
            raise InputError(
                f"Task {name!r} has two files, {found[name].name!r} and {file.name!r}; expected one.", argument=None
            )
        else:
            found[name] = file
    if not found:
        raise InputError(
            f"There is no {', '.join(table_endings())} file in the folder {str(folder)!r}; expected one per task.",
            argument="folder",
        )
    return dict(sorted(found.items())), tuple(ignored)


def read_task_folder(
    folder: Path, *, label: str, features: Sequence[str] | None = None, progress: Progress | None = None
) -> TaskFolder:
    """Read every task's labels and features.

    Args:
        folder: holds the files.
        label: the column to predict; every file has it.
        features: the columns to predict from; None for all others that hold numbers.
        progress: called after every file.
    """
    files, ignored = task_files(folder)
    sources = {}
    for name, file in files.items():
        with naming(file):
            sources[name] = _see(file, label)
    chosen, texts = _features(sources, label, features)
    has = np.array([[one in source.columns for one in chosen] for source in sources.values()], bool)
    _refuse_without(sources, has, features)
    matrices, labels, unlabelled = [], [], []
    for done, (source, own) in enumerate(zip(sources.values(), has, strict=True), 1):
        present = [name for name, held in zip(chosen, own, strict=True) if held]
        with naming(source.file):
            rows, column, left_out = _read(source, label, present)
        matrices.append(np.zeros((len(rows), len(chosen))))
        matrices[-1][:, own] = rows
        labels.append(column)
        unlabelled.append(left_out)
        if progress is not None:
            progress("file", done, len(files))
    return TaskFolder(tuple(files), chosen, tuple(matrices), tuple(labels), has, tuple(unlabelled), texts, ignored)


def read_party_file(file: Path, *, label: str, features: Sequence[str]) -> tuple[Floats, Floats]:
    """Read the rows of one party: all features of a public list, and labels. Rows without a label are left out.

    Args:
        file: a file in any known format.
        label: the column to predict.
        features: the columns to predict from, in order.
    """
    with naming(file):
        source = _see(file, label)
        missing = [name for name in features if name not in source.columns]
        if missing:
            raise InputError(f"Expected the column {missing[0]!r}, got {listed(source.columns)}.", argument=None)
        rows, column, _ = _read(source, label, list(features))
    return rows, column


def refuse_other_classes(tasks: TaskFolder, label: str) -> None:
    """Refuse labels other than two classes, 1 and 0 or -1."""
    for name, column in zip(tasks.names, tasks.labels, strict=True):
        known = np.isin(column, [-1.0, 0.0, 1.0])
        if not known.all():
            value = column[int(np.argmin(known))]
            raise InputError(
                f"{name}: Column {label!r} holds {value:g}; expected labels 1 and 0, or 1 and -1.", argument=None
            )


@dataclass(frozen=True, eq=False)
class _Source:
    """One file judged by its head: its columns, and those that hold text."""

    file: Path
    columns: tuple[str, ...]
    texts: frozenset[str]
    table: OpenTable


def _see(file: Path, label: str) -> _Source:
    try:
        table = open_table(file)
    except InputError as error:
        if error.argument != "columns":
            raise
        raise InputError(f"{error.problem}; expected a header line.", argument=None) from None
    for name in table.names:
        if table.names.count(name) > 1:
            raise InputError(
                f"Column {name!r} occurs {table.names.count(name)} times; expected each column once.", argument=None
            )
    if label not in table.names:
        raise InputError(
            f"There is no column {label!r}, the label; the columns are {listed(table.names)}.", argument="label"
        )
    others = frozenset(name for name, kind in table.held_kinds(table.names).items() if kind != "number")
    return _Source(file, table.names, others, table)


def _features(
    sources: dict[str, _Source], label: str, given: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the features, and the text columns left out. Refuse a column that is text only in some files."""
    every = dict.fromkeys(name for source in sources.values() for name in source.columns if name != label)
    wanted = every if given is None else dict.fromkeys(given)
    chosen, texts = [], []
    for name in wanted:
        if name not in every:
            raise InputError(
                f"No file has a column {name!r}; the columns are {listed(list(every))}.", argument="features"
            )
        having = [source for source in sources.values() if name in source.columns]
        with_text = [source for source in having if name in source.texts]
        if not with_text:
            chosen.append(name)
        elif given is None and len(with_text) == len(having):
            texts.append(name)
        else:
            other = "" if len(with_text) == len(having) else ", as in other files"
            raise InputError(
                f"{with_text[0].file.name}: Column {name!r} holds no numbers; expected numbers{other}.", argument=None
            )
    if not chosen:
        raise InputError(
            f"No file has a numeric column besides {label!r}; expected at least one feature.", argument="features"
        )
    return tuple(chosen), tuple(texts)


def _refuse_without(sources: dict[str, _Source], has: NDArray[np.bool_], given: Sequence[str] | None) -> None:
    """Refuse a task that has no feature at all."""
    for source, own in zip(sources.values(), has, strict=True):
        if not own.any():
            among = "columns of numbers beside the label" if given is None else "columns of numbers besides the label"
            raise InputError(
                f"{source.file.name}: There are no {among}; the columns are {listed(source.columns)}.", argument=None
            )


def _read(source: _Source, label: str, features: list[str]) -> tuple[Floats, Floats, int]:
    """Return features and labels of the rows that have a label, and the number of rows without one."""
    kinds: dict[str, CellKind] = dict.fromkeys([label, *features], "number")
    return source.table.scan(kinds, lambda batches, _: _gathered(batches, label, features))


def _gathered(batches: Iterable[Any], label: str, features: list[str]) -> tuple[Floats, Floats, int]:
    parts: list[tuple[Floats, Floats]] = []
    n_rows = n_kept = 0
    for batch in batches:
        first_row, labels = n_rows + 1, _numbers(batch.column(label), label, n_rows + 1)
        kept = ~np.isnan(labels)
        _refuse_infinite(labels, kept, label, first_row)
        columns = np.zeros((int(kept.sum()), len(features)))
        for k, name in enumerate(features):
            values = _numbers(batch.column(name), name, first_row)
            _refuse_infinite(values, kept, name, first_row)
            columns[:, k] = values[kept]
        parts.append((columns, labels[kept]))
        n_rows, n_kept = n_rows + batch.num_rows, n_kept + len(columns)
    if not parts:
        return np.zeros((0, len(features))), np.zeros(0), 0
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), n_rows - n_kept


def _numbers(cells: Any, column: str, first_row: int) -> Floats:
    """Return numbers, with NaN for empty cells."""
    import pyarrow as pa

    cells = cells.cast(pa.float64()) if pa.types.is_null(cells.type) else _decoded(cells)
    return np.asarray(_as_floats(cells, column, first_row), np.float64)


def _refuse_infinite(values: Floats, kept: NDArray[np.bool_], column: str, first_row: int) -> None:
    bad = kept & ~np.isfinite(values)
    if bad.any():
        at = int(np.argmax(bad))
        raise bad_cell(
            column, None if np.isnan(values[at]) else float(values[at]), first_row + at, "a finite number"
        ) from None
