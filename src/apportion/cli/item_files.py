"""Small public files about items: the list of ids, and titles."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from apportion.data.columns import usually
from apportion.data.sources import names_columns, rows_as_text
from apportion.data.vocabulary import ids_of_texts, shortened
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.cli.progress import Reporter
    from apportion.data import Vocabulary
    from apportion.recommend.model import ItemModel

_ID_NAMES: Final = ("id", "item", "movie", "track", "product", "song", "book", "asin", "sku")
_TITLE_NAMES: Final = ("title", "name", "label")


def read_item_list(path: Path) -> list[int] | list[str]:
    """Read the ids in the first column of a file, as ids of data are read: integers only if all are written plainly."""
    rows = rows_as_text(path)
    ids = [row[0] for row in rows if row and row[0].strip()]
    if ids and (names_columns(path) or _is_header(ids[0], ids[1:])):
        ids = ids[1:]
    if not ids:
        raise InputError(f"{path.name}: the first column has no item ids.", argument=None)
    _refuse_repeated(ids, path)
    found = ids_of_texts(ids)
    return found if isinstance(found, list) else found.tolist()


def _refuse_repeated(ids: list[str], path: Path) -> None:
    if len(set(ids)) < len(ids):
        first = next(each for each, count in Counter(ids).items() if count > 1)
        raise InputError(
            f"{path.name}: the list has {shortened(first)} more than once; expected each item once.", argument=None
        )


def read_known_items(path: Path, task_ids: Vocabulary, reporter: Reporter) -> list[int | str]:
    """Read the ids in the first column of a file that a model knows; say how many it does not know."""
    cells = [row[0] for row in rows_as_text(path) if row and row[0].strip()]
    id_of = {str(each): each for each in task_ids}
    known = [id_of[cell] for cell in cells if cell in id_of]
    if not known:
        raise InputError(
            f"{path.name}: the model knows none of its items (the model's first item is {task_ids.id_of(0)!r}).",
            argument=None,
        )
    unknown = len(cells) - len(known) - int(names_columns(path) or _is_header(cells[0], cells[1:]))
    if unknown > 0:
        reporter.say(f"{path.name}: {unknown} of its items are unknown to the model; they were left out.")
    return known


def read_titles(path: Path, task_ids: Vocabulary) -> dict[int | str, str]:
    """Read titles by item id, for the ids in the vocabulary.

    The id is in the first column. The title is in the column named title or name, or in the second column.
    """
    rows = [row for row in rows_as_text(path) if len(row) >= 2]
    if not rows:
        raise InputError(f"{path.name}: expected lines with an id and a title, found none.", argument=None)
    header = [cell.strip().lower() for cell in rows[0]]
    column = next((k for k, cell in enumerate(header) if k and cell in _TITLE_NAMES), 1)
    id_of = {str(each): each for each in task_ids}
    filled = (row for row in rows if len(row) > column and row[column].strip())
    known = {id_of[row[0]]: row[column].strip() for row in filled if row[0] in id_of}
    if not known:
        first = next(iter(task_ids), None)
        raise InputError(
            f"{path.name}: none of its ids is an item of this model (its first item is {first!r}).", argument=None
        )
    return known


def titles_of(model: ItemModel, path: Path | None) -> dict[int | str, str]:
    """Return titles from a file, if one is given, else those that the model keeps."""
    return dict(model.titles) if path is None else read_titles(path, model.task_ids)


def has_titles(path: Path) -> bool:
    """Whether the first line of a file of items names a column of titles."""
    first = next(iter(rows_as_text(path)), [])
    return any(cell.strip().lower() in _TITLE_NAMES for cell in first[1:])


def _is_header(first: str, others: list[str]) -> bool:
    """Whether the first cell is text above numbers, or is named like an id column."""
    if first.lstrip("-").isdigit():
        return False
    numbers_below = bool(others) and all(cell.lstrip("-").isdigit() for cell in others)
    word = first.strip().lower().replace("_", "").replace(" ", "")
    return numbers_below or bool(usually("task", [first])) or word in _ID_NAMES or word.removesuffix("id") in _ID_NAMES
