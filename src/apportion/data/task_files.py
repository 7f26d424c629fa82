"""A folder with one file per task: CSV, TSV or Parquet, each with the rows of one party.

A file holds a column of labels and columns of numbers as features. Parties may lack features: the union of all files'
columns is the list, and a task has zeros where it lacks one. Rows without a label are left out. Errors begin with the
file's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import _as_floats, _decoded, is_text
from apportion.data.columns import _listed
from apportion.data.readers import _PARQUET_BATCH_ROWS, _is_parquet
from apportion.data.text_files import CellKind, TextColumns, is_number, see_layout
from apportion.data.vocabulary import bad_cell
from apportion.errors import InputError

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
Anything = TypeVar("Anything")

_ENDINGS = (".csv", ".tsv", ".parquet")
_PACKED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True, eq=False)
class TaskFolder:
    """All tasks of a folder, in the order of their names.

    Attributes:
        names: of the tasks: their files' names without the ending.
        features: names of the columns that at least one task has.
        matrices: one for each task, [rows, features], with zeros in what it lacks.
        labels: one column for each task.
        has: which features each task has, [tasks, features].
        unlabelled: how many rows of each task were left out because they have no label.
        texts: columns that were left out because they hold text, or anything else that is no number.
        ignored: names of files that are of no kind that is read.
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
    """Files by the name of their task, sorted, and the names of files that are no tables; hidden ones do not count."""
    found: dict[str, Path] = {}
    ignored: list[str] = []
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or not file.is_file():
            continue
        name = _task_of(file.name)
        if name is None:
            ignored.append(file.name)
        elif name in found:
            raise InputError(f"Task {name!r} has two files, {found[name].name!r} and {file.name!r}; expected one.")
        else:
            found[name] = file
    if not found:
        raise InputError(
            f"There is no {', '.join(_ENDINGS)} file in the folder {str(folder)!r}; expected one per task."
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
    sources = {name: _naming(file, partial(_see, file, label)) for name, file in files.items()}
    chosen, texts = _features(sources, label, features)
    has = np.array([[one in source.columns for one in chosen] for source in sources.values()], bool)
    _refuse_without(sources, has, features)
    matrices, labels, unlabelled = [], [], []
    for done, (source, own) in enumerate(zip(sources.values(), has, strict=True), 1):
        present = [name for name, held in zip(chosen, own, strict=True) if held]
        rows, column, left_out = _naming(source.file, partial(_read, source, label, present))
        matrices.append(np.zeros((len(rows), len(chosen))))
        matrices[-1][:, own] = rows
        labels.append(column)
        unlabelled.append(left_out)
        if progress is not None:
            progress("file", done, len(files))
    return TaskFolder(tuple(files), chosen, tuple(matrices), tuple(labels), has, tuple(unlabelled), texts, ignored)


def refuse_other_classes(tasks: TaskFolder, label: str) -> None:
    """Refuse labels that are not of two classes, 1 and 0 or -1."""
    for name, column in zip(tasks.names, tasks.labels, strict=True):
        known = np.isin(column, [-1.0, 0.0, 1.0])
        if not known.all():
            value = column[int(np.argmin(known))]
            raise InputError(f"{name}: Column {label!r} holds {value:g}; expected labels 1, and 0 or -1.")


@dataclass(frozen=True, eq=False)
class _Source:
    """One file as its head shows it: its columns, and those that hold text."""

    file: Path
    columns: tuple[str, ...]
    texts: frozenset[str]
    layout: Any


def _task_of(name: str) -> str | None:
    lower = name.lower()
    packed = next((ending for ending in _PACKED if lower.endswith(ending)), "")
    plain = lower.removesuffix(packed)
    ending = next((ending for ending in _ENDINGS if plain.endswith(ending)), None)
    if ending is None or (packed and ending == ".parquet"):
        return None
    return name[: len(plain) - len(ending)] or None


def _naming(file: Path, action: Callable[[], Anything]) -> Anything:
    """Do something with a file; an error begins with its name."""
    try:
        return action()
    except InputError as error:
        raise error.inside(file.name) from None


def _see(file: Path, label: str) -> _Source:
    source = _see_parquet(file) if _is_parquet(file) else _see_text(file)
    for name in source.columns:
        if source.columns.count(name) > 1:
            raise InputError(f"Column {name!r} occurs {source.columns.count(name)} times; expected each column once.")
    if label not in source.columns:
        raise InputError(f"There is no column {label!r}, the label; found {_listed(source.columns)}.")
    return source


def _see_parquet(file: Path) -> _Source:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        schema = parquet.ParquetFile(file).schema_arrow
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise InputError(f"The Parquet file cannot be read: {str(error).splitlines()[0]}") from None
    held = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    others = [n for n, t in zip(schema.names, held, strict=True) if is_text(t) or not any(kind(t) for kind in numeric)]
    return _Source(file, tuple(schema.names), frozenset(others), None)


def _see_text(file: Path) -> _Source:
    try:
        layout = see_layout(file, None, None)
    except InputError as error:
        if error.argument != "columns":
            raise
        raise InputError(f"{error.problem}; expected a header line.") from None
    repeated = len(set(layout.names)) < len(layout.names)
    kinds: dict[str, CellKind] = {} if repeated else dict.fromkeys(layout.names, "text")
    first = TextColumns(file, layout, kinds).first_cells() if kinds else {}
    texts = {name for name, cell in first.items() if cell is not None and not is_number(cell)}
    return _Source(file, layout.names, frozenset(texts), layout)


def _features(
    sources: dict[str, _Source], label: str, given: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The features, and the columns of text that are none; a column that is text in some files only is refused."""
    every = dict.fromkeys(name for source in sources.values() for name in source.columns if name != label)
    wanted = every if given is None else dict.fromkeys(given)
    chosen, texts = [], []
    for name in wanted:
        if name not in every:
            raise InputError(f"There is no column {name!r} in any file; found {_listed(list(every))}.")
        having = [source for source in sources.values() if name in source.columns]
        with_text = [source for source in having if name in source.texts]
        if not with_text:
            chosen.append(name)
        elif given is None and len(with_text) == len(having):
            texts.append(name)
        else:
            other = "" if len(with_text) == len(having) else ", as in other files"
            raise InputError(f"{with_text[0].file.name}: Column {name!r} holds no numbers; expected numbers{other}.")
    if not chosen:
        raise InputError(f"There is no column of numbers beside {label!r} in any file; expected at least one feature.")
    return tuple(chosen), tuple(texts)


def _refuse_without(sources: dict[str, _Source], has: NDArray[np.bool_], given: Sequence[str] | None) -> None:
    """Refuse a task that has no feature at all."""
    for source, own in zip(sources.values(), has, strict=True):
        if not own.any():
            among = "columns of numbers beside the label" if given is None else f"columns among {_listed(given)}"
            raise InputError(f"{source.file.name}: There are no {among}; found {_listed(source.columns)}.")


def _read(source: _Source, label: str, features: list[str]) -> tuple[Floats, Floats, int]:
    """Features and labels of the rows that have a label, and how many have none."""
    parts: list[tuple[Floats, Floats]] = []
    n_rows = n_kept = 0
    for batch in _batches(source, [label, *features]):
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


def _batches(source: _Source, columns: list[str]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    if source.layout is None:
        try:
            yield from parquet.ParquetFile(source.file).iter_batches(_PARQUET_BATCH_ROWS, columns=columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise InputError(f"The Parquet file cannot be read: {str(error).splitlines()[0]}") from None
        return
    kinds: dict[str, CellKind] = dict.fromkeys(columns, "number")
    text, types = TextColumns(source.file, source.layout, kinds), dict.fromkeys(columns, pa.float64())
    try:
        yield from text.open(types)
    except pa.ArrowInvalid as error:
        text.corrected_types(types, error)
        raise


def _numbers(cells: Any, column: str, first_row: int) -> Floats:
    """Numbers, NaN where a cell is empty."""
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
