"""Columns of a table on a cluster as features: numbers, and indicators of all categories but the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apportion.cli.feature_columns import Categories, Features, in_sentences, refuse_other_than_categories
from apportion.cli.given_rows import cell_of
from apportion.errors import InputError
from apportion.estimators.frames import holds_text

LABEL = "the label"
_MOST_READ = 1000  # different texts of a public column


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """A table of which features and labels are chosen; both stay on the cluster.

    Attributes:
        frame: the table.
        untyped: whether it is a text file; a column without categories is then read as numbers.
        public: whether features are public, so that categories may be taken from the data.
    """

    frame: Any
    untyped: bool
    public: bool

    def features(self, names: Sequence[str], given: Categories) -> tuple[list[Any], Features]:
        """Return columns of the frame, and what they are called and compared with.

        Args:
            names: the feature columns, in order.
            given: categories by column, in the order in which they were listed.
        """
        columns: list[Any] = []
        labels: list[str] = []
        told: list[tuple[str, str]] = []
        for name in names:
            categories = self._categories(name, given)
            if not categories:
                columns.append(cell_of(self.frame, name, "double"))
                labels.append(name)
                continue
            own = cell_of(self.frame, name).cast("string")
            for category in categories[1:]:
                labels.append(f"{name}={category}")
                columns.append((own == category).cast("double").alias(labels[-1]))
            told.append(in_sentences(name, categories, declared=name in given))
        return columns, Features(tuple(labels), None, tuple(one for one, _ in told), tuple(two for _, two in told))

    def label(self, name: str, yes: str | None) -> Any:
        """Return the column of labels, as numbers; with `yes`, 1 where it is this value and 0 elsewhere."""
        column = cell_of(self.frame, name)
        return (column if yes is None else column.cast("string") == yes).cast("double").alias(LABEL)

    def _categories(self, name: str, given: Categories) -> list[str]:
        """The categories of a column; none if it holds numbers."""
        if name in given:
            unlisted = set(self._found(name) if self.public else ()) - set(given[name])
            if unlisted:
                problem = f"Column {name!r} holds {min(unlisted)!r}, which is not listed."
                raise InputError(problem, argument="categories")
            return list(given[name])
        if self.untyped or not holds_text(self.frame, name):
            return []
        if not self.public:
            raise InputError(
                f"Column {name!r} holds text, and its categories cannot be taken from private data",
                argument="categories",
                remedy="list them with",
            )
        found = self._found(name)
        refuse_other_than_categories(name, len(found), found[0])
        return found

    def _found(self, name: str) -> list[str]:
        """The texts of a public column, in order."""
        texts = self.frame.select(cell_of(self.frame, name, "string")).distinct().limit(_MOST_READ).toArrow()
        return sorted(text for text in texts.column(0).to_pylist() if text is not None)
