"""Public features of items: read from a frame, matched to tasks by id, stored sparse.

Who has which item is private; what the item is like is public. A frame has one row per item, or several. Their words
are then counted and their numbers averaged, so cast lists with a row per person and role can be read directly.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.arrow_columns import IdColumn
from apportion.data.columns import USUAL_NAMES
from apportion.data.feature_checks import too_specific
from apportion.data.feature_groups import FeatureGroup, FeatureKind, learn_cross, learn_group
from apportion.data.sources import naming, open_table
from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.data.vocabulary import TEXT, Ids, Vocabulary
from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

KindChoice = FeatureKind | Literal["ignore"]
"""What a column holds; "ignore" leaves it out."""
_FURTHER_ID_NAMES = ("id",)


class FineFeaturesWarning(UserWarning):
    """A feature distinguishes items without saying what items share."""


@dataclass(frozen=True)
class FeatureSpace:
    """How item frames become numbers: the id column and the feature groups, in order."""

    item: str
    groups: tuple[FeatureGroup, ...]

    @property
    def ranges(self) -> tuple[ColumnRange, ...]:
        """The range of each group's columns."""
        ends = np.cumsum([group.size for group in self.groups]).tolist()
        return tuple(
            ColumnRange(group.name, end - group.size, end) for group, end in zip(self.groups, ends, strict=True)
        )

    def encode(self, table: pa.Table, owner: NDArray[np.int32], n_items: int) -> SparseRows:
        """Return rows of features for the items that own the table's rows."""
        parts = []
        for group, where in zip(self.groups, self.ranges, strict=True):
            found = group.encode(table)
            items, values = owner[found.rows].astype(np.int64), found.values
            if group.kind in ("number", "binned"):  # numbers are averaged over an item's rows, words are counted
                values = values / _rows_per_item(items, found.rows, n_items)[items]
            parts.append((items, found.columns + where.first, values))
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return SparseRows.from_entries(rows, columns, values, n_items, self.ranges)

    def to_json(self) -> str:
        """Return everything needed to encode later items."""
        return json.dumps({"item": self.item, "groups": [asdict(group) for group in self.groups]})

    @classmethod
    def from_json(cls, text: str) -> FeatureSpace:
        """Read back what `to_json` wrote."""
        held = json.loads(text)
        for group in held["groups"]:
            group |= {name: tuple(group[name]) for name in ("columns", "words", "numbers")}
        return cls(held["item"], tuple(FeatureGroup(**group) for group in held["groups"]))


@dataclass(frozen=True, eq=False, repr=False)
class ItemFeatures:
    """The public features of items, by id.

    Build it with `from_frame` or `read`.

    Attributes:
        item_ids: the items that have features.
        rows: their features.
        space: how they were read, so that later items can be read the same way.

    Example:
        >>> import pyarrow as pa
        >>> frame = pa.table({"item": [7, 9], "genres": ["Drama|War", "Comedy"], "year": [1965, 1990]})
        >>> ItemFeatures.from_frame(frame)
        ItemFeatures(2 items, genres: 3, year: 1)
    """

    item_ids: Vocabulary
    rows: SparseRows
    space: FeatureSpace

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        item: str | None = None,
        kinds: Mapping[str, KindChoice] | None = None,
        crosses: Sequence[tuple[str, ...]] = (),
        separator: str = "|",
        bins: int = 16,
        buckets: int = 4096,
        space: FeatureSpace | None = None,
    ) -> ItemFeatures:
        """Read any frame that supports Arrow: polars, pandas, DuckDB, pyarrow.

        Args:
            frame: an object with the Arrow C stream protocol; all columns but the id are features.
            item: name of the id column; guessed from the usual names by default.
            kinds: what columns hold, by name, or "ignore"; other kinds are guessed from the cells.
            crosses: columns whose combinations within a row form a separate feature group.
            separator: what separates words in a cell with several words.
            bins: the number of knots of a binned number.
            buckets: the number of columns of hashed text.
            space: how other items were read; columns are then read in the same way, and the arguments from `kinds`
                to `buckets` are not used.
        """
        table = _as_table(frame)
        learn = partial(_learn, kinds=kinds or {}, crosses=crosses, separator=separator, bins=bins, buckets=buckets)
        return _finished(table, item, space, learn, untyped=False)

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        item: str | None = None,
        columns: Sequence[str] | None = None,
        **arguments: Any,
    ) -> ItemFeatures:
        """Read a file of any known format: CSV, TSV, Parquet.

        Args:
            path: the file.
            item: name of the id column; guessed from the usual names if left out.
            columns: names of all columns of a text file that has no header line.
            arguments: as in `from_frame`.
        """
        file = Path(path)
        with naming(file):
            space = arguments.pop("space", None)
            defaults = {"kinds": {}, "crosses": (), "separator": "|", "bins": 16, "buckets": 4096}
            learn = partial(_learn, **{**defaults, **arguments})
            source = open_table(file, columns=columns)
            _refuse_same_names(source.names)
            table = source.read_all(_id_column(source.names, item or (space.item if space else None)))
            return _finished(table, item, space, learn, untyped=source.untyped)

    def __len__(self) -> int:
        return len(self.item_ids)

    def __repr__(self) -> str:
        named = ", ".join(f"{group.name}: {group.size}" for group in self.rows.groups)
        return f"ItemFeatures({len(self)} items, {named})"

    @property
    def sentence(self) -> str:
        """The sentence for a privacy statement."""
        return f"the features of items: {', '.join(group.name for group in self.rows.groups)}"

    def for_tasks(self, task_ids: Vocabulary) -> SparseRows:
        """Return one row per task, in the order of the tasks' codes; a task without features has an empty row."""
        found = self.item_ids.match(task_ids)
        if len(found) and not (found >= 0).any():
            ours, theirs = self.item_ids.id_of(0), task_ids.id_of(0)
            raise InputError(
                f"No item with features is a task: the first ids are {ours!r} and {theirs!r}.", argument="task_ids"
            )
        return self.rows.take(found)

    def beside(self, other: ItemFeatures) -> ItemFeatures:
        """Return the features of both, matched by id. An item in only one of them has only the features of that one."""
        both = {group.name for group in self.space.groups} & {group.name for group in other.space.groups}
        if both:
            raise InputError(f"Expected features of different names, got {sorted(both)[0]!r} twice.", argument="other")
        unknown = other.item_ids.ids[self.item_ids.match(other.item_ids) < 0]
        ids = np.concatenate([_like(self.item_ids.ids, unknown), _like(unknown, self.item_ids.ids)])
        joined = Vocabulary(ids, name="item", declared=True)
        ours, theirs = (each.rows.take(each.item_ids.match(joined)) for each in (self, other))
        space = FeatureSpace(self.space.item, (*self.space.groups, *other.space.groups))
        return ItemFeatures(joined, ours.beside(theirs), space)


def _learn(
    table: pa.Table,
    item: str,
    *,
    kinds: Mapping[str, KindChoice],
    crosses: Sequence[tuple[str, ...]],
    separator: str,
    bins: int,
    buckets: int,
) -> FeatureSpace:
    for name in kinds:
        if name not in table.column_names or name == item:
            raise InputError(
                f"There is no column {name!r} of features; the columns are {', '.join(table.column_names)}.",
                argument="kinds",
            )
    chosen = [name for name in table.column_names if name != item and kinds.get(name) != "ignore"]
    groups = [
        learn_group(table, name, kinds.get(name), separator=separator, bins=bins, buckets=buckets)  # type: ignore[arg-type]
        for name in chosen
    ]
    groups += [learn_cross(table, tuple(columns), separator=separator) for columns in crosses]
    if not groups:
        raise InputError(f"Expected at least one column of features besides the id {item!r}.", argument="frame")
    return FeatureSpace(item, tuple(groups))


def _finished(
    table: pa.Table, item: str | None, space: FeatureSpace | None, learn: Any, *, untyped: bool
) -> ItemFeatures:
    _refuse_same_names(table.column_names)
    column = _id_column(table.column_names, item or (space.item if space else None))
    if not table.num_rows:
        raise InputError("There are no rows; expected at least one item.", argument="frame")
    gathered = IdColumn(column, name="item", untyped=untyped)
    gathered.append(table.column(column).combine_chunks(), 1)
    encoded = gathered.finish()
    known = space or learn(table, column)
    rows = known.encode(table, encoded.codes, len(encoded.vocabulary))
    if space is None:
        for sentence in too_specific(rows):
            warnings.warn(sentence, FineFeaturesWarning, stacklevel=4)
    return ItemFeatures(encoded.vocabulary, rows, known)


def _id_column(found: Sequence[str], item: str | None) -> str:
    if item is not None:
        if item not in found:
            raise InputError(
                f"There is no column {item!r} to use as item; the columns are {', '.join(found)}.", argument="item"
            )
        return item
    usual = USUAL_NAMES["task"] | set(_FURTHER_ID_NAMES)
    fitting = [name for name in found if "".join(filter(str.isalnum, name)).lower() in usual]
    if len(fitting) != 1:
        raise InputError(
            f"Expected one column that looks like the item, got {len(fitting)} among {', '.join(found)}",
            argument="item",
            remedy="name it with",
        )
    return fitting[0]


def _refuse_same_names(names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"Expected columns of different names, got {repeated[0]!r} twice.", argument=None)


def _rows_per_item(items: NDArray[np.int64], rows: NDArray[np.int64], n_items: int) -> NDArray[np.int64]:
    """Return, for each item, how many of its rows have a number."""
    _, first = np.unique(rows, return_index=True)
    return np.bincount(items[first], minlength=n_items)


def _as_table(frame: Any) -> pa.Table:
    import pyarrow as pa

    if not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            "Expected a frame that supports Arrow (polars, pandas, DuckDB, pyarrow), got "
            f"{type(frame).__module__}.{type(frame).__name__}.",
            argument="frame",
        )
    try:
        table = pa.table(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"The frame cannot be read as Arrow: {str(error).splitlines()[0]}", argument="frame") from None
    return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])


def _like(ids: Ids, others: Ids) -> Ids:
    """Return ids in a type that can be compared with the others."""
    return ids if ids.dtype == others.dtype else ids.astype(TEXT)
