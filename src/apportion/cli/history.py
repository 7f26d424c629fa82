"""Histories for an existing model: rows of unknown items are left out, and one user is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from apportion.cli.loading import has_value_column, open_source, read_rows
from apportion.cli.options import DataOptions
from apportion.data import IGNORE, Interactions, Vocabulary
from apportion.data.columns import ColumnChoice
from apportion.data.sources import Place, name_of
from apportion.data.vocabulary import shortened
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.recommend.model import ItemModel


def read_history(
    path: Place, options: DataOptions, model: ItemModel, *, whole: bool = False
) -> tuple[Interactions, tuple[str, ...]]:
    """Read rows for a model; also returns remarks on what was left out.

    Args:
        path: the file.
        options: how it is read.
        model: whose item list the rows are brought to.
        whole: whether they keep the items that occur instead, as an audit of a private list needs them.
    """
    needs_values = model.kind != "clicks" or options.min_value is not None
    value: ColumnChoice = options.value if needs_values else IGNORE
    if needs_values and not has_value_column(path, options):
        problem = f"{name_of(path)}: a value column is needed, but none was found"
        raise InputError(problem, argument="value", remedy="name it with")
    rows = read_rows(path, open_source(path, options), options, value, single_user=True)
    data = rows.data
    if options.min_value is not None:
        data = data.where(data.values >= np.float32(options.min_value)).with_values(1.0)
    moved, remarks = (data, ()) if whole else onto(data, model.task_ids, path)
    scale = _outside(moved, model.value_range, path) if model.kind == "ratings" else ()
    return moved, (*rows.remarks, *remarks, *scale)


def _outside(data: Interactions, scale: tuple[float, float], path: Place) -> tuple[str, ...]:
    """Return a remark on values that are not in the model's scale, if there are any."""
    low, high = scale
    number = int(((data.values < low) | (data.values > high)).sum())
    found = f"{number:,} of {data.n_observations:,} values are outside the model's scale, {low:g} to {high:g}"
    return (f"{name_of(path)}: {found}; each counts as the nearest end of the scale.",) if number else ()


def onto(data: Interactions, task_ids: Vocabulary, path: Place) -> tuple[Interactions, tuple[str, ...]]:
    """Map to another item list; rows of unknown items are left out and counted in a remark."""
    codes = task_ids.match(data.task_ids)[data.tasks]
    known = codes >= 0
    if not known.any():
        first, own = shortened(data.task_ids.id_of(0)), shortened(task_ids.id_of(0))
        problem = f"the model knows none of its items, such as {first} (the model's first item is {own})"
        raise InputError(f"{name_of(path)}: {problem}.", argument=None)
    moved = Interactions.from_codes(
        data.users[known], codes[known], data.values[known], user_ids=data.user_ids, task_ids=task_ids
    )
    left_out = int((~known).sum())
    unknown = f"{left_out} of {len(known)} rows are for items that the model does not know"
    remark = f"{name_of(path)}: {unknown}; they were left out."
    return moved, (remark,) if left_out else ()
