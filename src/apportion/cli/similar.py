"""`apportion similar`: the items whose released vectors point the same way."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from apportion.cli.options import FILE, json_option
from apportion.cli.outputs import print_json, table
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data import Vocabulary


@click.command(short_help="Items that resemble an item.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("item")
@click.option("-k", "k", type=click.IntRange(min=1), default=10, show_default=True, help="How many items.")
@click.option("--titles", type=FILE, help="Titles of items (id, title); ITEM may then be part of a title.")
@json_option
def similar(model: Path, item: str, k: int, titles: Path | None, as_json: bool) -> None:
    """Show the items that resemble ITEM in a saved MODEL.

    Similarity is the cosine of released vectors. Reliability says how much of an item's vector comes from
    data.
    """
    from apportion.cli.item_files import read_titles
    from apportion.recommend import load

    fitted = load(model)
    names = {} if titles is None else read_titles(titles, fitted.task_ids)
    task = find_item(item, fitted.task_ids, names)
    found = [
        {
            "item": each.task,
            **({"title": names[each.task]} if each.task in names else {}),
            "similarity": each.similarity,
            "reliability": float(fitted.reliability[fitted.task_ids.code_of(each.task)]),
        }
        for each in fitted.similar(task, min(k, max(1, fitted.n_tasks - 1)))
    ]
    own = float(fitted.reliability[fitted.task_ids.code_of(task)])
    if as_json:
        print_json({"item": task, "title": names.get(task), "reliability": own, "similar": found})
        return
    click.echo(f"{names.get(task, f'item {task}')} (reliability {own:.0%})\n")
    rows = [
        [str(row.get("title", row["item"])), f"{row['similarity']:.3f}", f"{row['reliability']:.0%}"] for row in found
    ]
    click.echo(table(["similar item", "similarity", "reliability"], rows))


def find_item(words: str, task_ids: Vocabulary, titles: Mapping[int | str, str]) -> int | str:
    """The item that has this id, or the only one whose title contains the words."""
    as_id: int | str = words
    if not task_ids.holds_text:
        with contextlib.suppress(ValueError):
            as_id = int(words)
    if as_id in task_ids:
        return as_id
    if not titles:
        raise InputError(f"There is no item {words!r} among the {len(task_ids)} of this model.")
    matching = [task for task, title in titles.items() if words.lower() in title.lower()]
    exact = [task for task in matching if titles[task].lower() == words.lower()]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    if not matching:
        raise InputError(f"There is no item {words!r} among the ids and titles of this model.")
    some = "; ".join(f"{titles[task]} ({task})" for task in matching[:5])
    raise InputError(f"{words!r} fits {len(matching)} titles: {some}{' ...' if len(matching) > 5 else ''}.")
