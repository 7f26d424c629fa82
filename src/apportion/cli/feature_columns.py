"""Columns of a file as features: numbers unchanged, texts as indicators of all categories but the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.statistics_options import split_names
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.encoding import EncodedIds
    from apportion.data.tables import ColumnKind, Table

Categories = Mapping[str, Sequence[str]]

_MOST_CATEGORIES: Final = 100
_MOST_LISTED: Final = 5


@dataclass(frozen=True)
class Features:
    """A matrix of features.

    Attributes:
        names: one for each column of the matrix.
        matrix: one row for each row of the file.
        public: sentences about the categories, for the statement.
        compared: sentences about the category that indicators are compared with.
    """

    names: tuple[str, ...]
    matrix: Any
    public: tuple[str, ...]
    compared: tuple[str, ...]


class CategoryList(click.ParamType[tuple[str, tuple[str, ...]]]):
    """A column and its categories, such as `colour=red,green,blue`."""

    name = "categories"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[str, ...]]:
        """Split the text; refuse fewer than two different categories."""
        if isinstance(value, tuple):
            return value
        column, _, listed = str(value).partition("=")
        names = tuple(name.strip() for name in listed.split(","))
        if not column.strip() or not all(names) or len(names) < 2 or len(set(names)) < len(names):
            self.fail(f"expected COLUMN=A,B,... with at least two different categories, got {value!r}", param, ctx)
        return column.strip(), names


features_option = click.option(
    "--features", required=True, metavar="A,B,...", help="The columns to predict from, separated by commas."
)
categories_option = click.option(
    "--categories",
    type=CategoryList(),
    multiple=True,
    metavar="COLUMN=A,B,...",
    help="Treat this column as text with these categories; the first is the reference.",
)


def columns_to_read(features: str, given: Sequence[tuple[str, Sequence[str]]]) -> dict[str, ColumnKind]:
    """Return how each feature column is read. Refuse categories of a column that is not a feature."""
    names = split_names(features)
    for column, _ in given:
        if column not in names:
            raise InputError(
                f"Expected --categories for one of the features {', '.join(names)}; got {column!r}.", argument=None
            )
    listed = {column for column, _ in given}
    return {name: "text" if name in listed else "number or text" for name in names}


def assemble(table: Table, names: Sequence[str], given: Categories, *, features_are_public: bool) -> Features:
    """Put features side by side.

    Args:
        table: the columns as read.
        names: the feature columns, in order.
        given: categories by column, in the order in which they were listed.
        features_are_public: whether categories may be taken from the data.
    """
    import numpy as np

    blocks: list[Any] = []
    labels: list[str] = []
    public: list[str] = []
    compared: list[str] = []
    for name in names:
        if name in table.numbers:
            blocks.append(table.numbers[name][:, None])
            labels.append(name)
            continue
        encoded = _with_categories(table.texts[name], given.get(name), features_are_public)
        categories = [str(category) for category in encoded.vocabulary]
        blocks.append(encoded.codes[:, None] == np.arange(1, len(categories)))
        labels += [f"{name}={category}" for category in categories[1:]]
        told = in_sentences(name, categories, declared=name in given)
        public.append(told[0])
        compared.append(told[1])
    return Features(tuple(labels), np.column_stack(blocks).astype(np.float64), tuple(public), tuple(compared))


def _with_categories(result: EncodedIds, given: Sequence[str] | None, features_are_public: bool) -> EncodedIds:
    """Return codes by the given categories, or by those in the data if that is allowed."""
    from apportion.data.encoding import EncodedIds, match_public_list
    from apportion.data.vocabulary import Vocabulary

    if given is not None and features_are_public:
        return match_public_list(result, list(given))
    if given is not None:  # a refusal, or another category, would reveal what somebody has
        listed = Vocabulary(list(given), name=result.vocabulary.name, declared=True)
        return EncodedIds(result.column, listed.find(result.vocabulary.ids)[result.codes].clip(0), listed)
    first = result.vocabulary.id_of(int(result.codes[0]))
    if not features_are_public:
        raise InputError(
            f"Column {result.column!r} holds text, such as {first!r} in row 1, and its categories "
            "cannot be taken from private data",
            argument="categories",
            remedy="list them with",
        )
    refuse_other_than_categories(result.column, len(result.vocabulary), first)
    return result


def refuse_other_than_categories(column: str, number: int, first: Any) -> None:
    """Refuse a column of text with one value, or with so many that they are not categories."""
    if not 2 <= number <= _MOST_CATEGORIES:
        found = f"text with {number} different values, such as {first!r}" if number > 1 else f"the text {first!r} alone"
        raise InputError(
            f"Column {column!r} holds {found}; expected 2 to {_MOST_CATEGORIES} categories.",
            argument="categories",
        )


def in_sentences(column: str, categories: Sequence[str], *, declared: bool) -> tuple[str, str]:
    """Say for the statement where categories come from, and which one the others are compared with."""
    source = "as declared" if declared else "taken from the data itself, which reveals which ones occur"
    return (
        f"the categories of {column!r}, {source}: {_some(categories)}",
        f"Categories of {column} are compared with {categories[0]!r}.",
    )


def _some(categories: Sequence[str]) -> str:
    shown = ", ".join(repr(category) for category in categories[:_MOST_LISTED])
    more = len(categories) - _MOST_LISTED
    return shown + (f" and {more} more" if more > 0 else "")
