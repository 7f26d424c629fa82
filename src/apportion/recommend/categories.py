"""Categories of items, from public features: the words of each item, to filter and mix recommendations.

A group is a column of words (genres, brand). Numbers and running text are not categories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data import Vocabulary
from apportion.data.features import ItemFeatures
from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.errors import InputError

_OF_WORDS: Final = ("categorical", "multivalent")


@dataclass(frozen=True, eq=False)
class Categories:
    """The words of every item, by group.

    Attributes:
        words: the words of each group, in the order of the groups and of their columns.
        rows: one row per item; an entry says that the item has the word of that column.
    """

    words: tuple[str, ...]
    rows: SparseRows

    @classmethod
    def of(cls, features: ItemFeatures, task_ids: Vocabulary) -> Self | None:
        """Return the categories among these features, for the tasks of a model; None if no group holds words."""
        held = [
            (group.words, where)
            for group, where in zip(features.space.groups, features.space.ranges, strict=True)
            if group.kind in _OF_WORDS and group.words
        ]
        if not held:
            return None
        rows = features.for_tasks(task_ids)
        owner, parts, ranges, first = rows.owner(), [], [], 0
        for words, where in held:
            mine = (rows.indices >= where.first) & (rows.indices < where.last)
            parts.append((owner[mine], rows.indices[mine] - where.first + first))
            ranges.append(ColumnRange(where.name, first, first + len(words)))
            first += len(words)
        items, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        found = SparseRows.from_entries(items, columns, np.ones(len(items)), len(rows), ranges)
        return cls(tuple(word for words, _ in held for word in words), found)

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The words of each group, by its name."""
        return {group.name: self.words[group.first : group.last] for group in self.rows.groups}

    def having(self, asked: Mapping[str, Sequence[str]]) -> NDArray[np.bool_]:
        """Return which items have one of the words in every requested group.

        >>> import pyarrow as pa
        >>> frame = pa.table({"item": [1, 2, 3], "genre": ["Drama|War", "Drama", "Comedy"]})
        >>> categories = Categories.of(ItemFeatures.from_frame(frame), Vocabulary([1, 2, 3]))
        >>> categories.having({"genre": ["War", "Comedy"]})
        array([ True, False,  True])
        """
        kept = np.ones(len(self.rows), bool)
        for name, words in asked.items():
            wanted = np.zeros(self.rows.n_columns, bool)
            wanted[[self._column(name, word) for word in words]] = True
            kept &= np.bincount(self.rows.owner()[wanted[self.rows.indices]], minlength=len(kept)) > 0
        return kept

    def _column(self, name: str, word: str) -> int:
        group = self.group(name)
        words = self.words[group.first : group.last]
        if word not in words:
            some = ", ".join(repr(each) for each in words[:5])
            raise InputError(
                f"There is no {name} {word!r} among the {len(words)} of this model; some are {some}.", argument=None
            )
        return group.first + words.index(word)

    def group(self, name: str) -> ColumnRange:
        """Return the columns of a group. Refuse an unknown name."""
        for group in self.rows.groups:
            if group.name == name:
                return group
        known = ", ".join(repr(group.name) for group in self.rows.groups)
        raise InputError(f"There is no category {name!r} in this model; it has {known}.", argument=None)

    def extended(self, new: Categories | None, n_new: int) -> Categories:
        """Return the categories with new items after the others; their words are read in the same groups."""
        if new is None or new.words != self.words:
            none = SparseRows.from_entries([], [], [], n_new, self.rows.groups)
            new = Categories(self.words, none)
        indptr = np.concatenate([self.rows.indptr, self.rows.indptr[-1] + new.rows.indptr[1:]])
        indices, values = (
            np.concatenate([getattr(self.rows, name), getattr(new.rows, name)]) for name in ("indices", "values")
        )
        return Categories(self.words, SparseRows(indptr, indices, values, self.rows.groups))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what storage keeps as tensors."""
        return {"indptr": self.rows.indptr, "indices": self.rows.indices.astype(np.int32)}

    @classmethod
    def restored(cls, groups: Sequence[Mapping[str, Any]], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Return the categories of stored groups and tensors."""
        edges = np.cumsum([0, *(len(group["words"]) for group in groups)]).tolist()
        ranges = [ColumnRange(group["name"], *edges[k : k + 2]) for k, group in enumerate(groups)]
        indices = tensors["indices"].astype(np.int64)
        rows = SparseRows(tensors["indptr"], indices, np.ones(len(indices), np.float32), tuple(ranges))
        return cls(tuple(word for group in groups for word in group["words"]), rows)
