"""`apportion similar`: the items whose released vectors point in a similar direction."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.option_types import FILE
from apportion.cli.options import json_option
from apportion.cli.outputs import print_json, staged, table
from apportion.cli.progress import Reporter
from apportion.cli.terminal import on_one_line
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data import Vocabulary
    from apportion.recommend.model import ItemModel

_SAID_EVERY: Final = 1000


@click.command(short_help="Show items similar to an item.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("item", nargs=-1)
@click.option("-k", "k", type=click.IntRange(min=1), default=10, show_default=True, help="Number of items.")
@click.option(
    "--beside",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Another saved model to compare with MODEL; may be given several times.",
)
@click.option("--titles", type=FILE, help="File with titles of items (id, title); ITEM may then be part of a title.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the rows of many items to a CSV file instead.")
@json_option
def similar(
    model: Path,
    item: tuple[str, ...],
    k: int,
    beside: tuple[Path, ...],
    titles: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Show the items most similar to ITEM in a saved MODEL, or in several models side by side.

    Similarity is the cosine of released vectors, lower where less is known of either item. Reliability says how much
    of an item's vector comes from data. With --out, rows are written as they are found: for each ITEM, or for all
    items of the model if none is named.
    """
    from apportion.cli.item_files import titles_of
    from apportion.recommend import load

    if out is None and len(item) != 1:
        raise click.UsageError("Name one ITEM, or give --out FILE.csv for many.")
    if out is not None and (beside or as_json):
        raise click.UsageError("--out cannot be combined with --beside or --json.")
    fitted = load(model)
    names = titles_of(fitted, titles)
    tasks = [find_item(each, fitted.task_ids, names) for each in item]
    if out is not None:
        _write_many(fitted, tasks or list(fitted.task_ids), k, names, out)
    elif beside:
        _show_beside((model, *beside), tasks[0], k, names, as_json)
    else:
        _show(fitted, tasks[0], k, names, as_json)


def _similar(model: ItemModel, task: int | str, k: int, names: Mapping[int | str, str]) -> list[dict[str, Any]]:
    """Return the neighbours of an item, nearest first."""
    return [
        {
            "item": each.task,
            **({"title": names[each.task]} if each.task in names else {}),
            "similarity": each.similarity,
            "reliability": float(model.reliability[model.task_ids.code_of(each.task)]),
        }
        for each in model.similar(task, min(k, max(1, model.n_tasks - 1)))
    ]


def _write_many(
    model: ItemModel, tasks: Sequence[int | str], k: int, names: Mapping[int | str, str], out: Path
) -> None:
    """Write a row for each item and neighbour, as they are found."""
    columns = ["item", "rank", "similar", *(["title"] if names else []), "similarity", "reliability"]
    with Reporter() as reporter, staged(out) as place, place.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.DictWriter(stream, columns)
        rows.writeheader()
        progress = reporter.of("similar items")
        for done, task in enumerate(tasks, 1):
            for rank, near in enumerate(_similar(model, task, k, names), 1):
                rows.writerow({**near, "item": task, "rank": rank, "similar": near["item"]})
            if done % _SAID_EVERY == 0 or done == len(tasks):
                progress("item", done, len(tasks))
    click.echo(f"Similar items of {len(tasks)} items: {out}")


def _show(model: ItemModel, task: int | str, k: int, names: Mapping[int | str, str], as_json: bool) -> None:
    """Print the neighbours of one item."""
    result = _similar(model, task, k, names)
    own = float(model.reliability[model.task_ids.code_of(task)])
    if as_json:
        print_json({"item": task, "title": names.get(task), "reliability": own, "similar": result})
        return
    click.echo(f"{on_one_line(names.get(task, f'item {task}'))} (reliability {own:.0%})\n")
    rows = [
        [str(row.get("title", row["item"])), f"{row['similarity']:.3f}", f"{row['reliability']:.0%}"] for row in result
    ]
    click.echo(table(["similar item", "similarity", "reliability"], rows))


def _show_beside(
    folders: tuple[Path, ...], task: int | str, k: int, titles: Mapping[int | str, str], as_json: bool
) -> None:
    """Print a column of neighbours for each model."""
    from apportion.evaluation import neighbours
    from apportion.recommend import load

    models = {str(folder): load(folder) for folder in folders}
    for folder, model in models.items():
        if task not in model.task_ids:
            raise InputError(
                f"The model {folder!r} has no item {task!r} among its {model.n_tasks} items.", argument="beside"
            )
    result = neighbours(models, task, min(k, *(max(1, model.n_tasks - 1) for model in models.values())))
    if as_json:
        listed = {
            name: [{"item": each.task, "similarity": each.similarity} for each in near] for name, near in result.items()
        }
        print_json({"item": task, "title": titles.get(task), "models": listed})
        return
    click.echo(f"{on_one_line(titles.get(task, f'item {task}'))}\n")
    columns = [[titles.get(each.task, str(each.task)) for each in near] for near in result.values()]
    rows = [[str(rank), *row] for rank, row in enumerate(zip(*columns, strict=True), 1)]
    click.echo(table(["rank", *result], rows))


def find_item(words: str, task_ids: Vocabulary, titles: Mapping[int | str, str]) -> int | str:
    """Return the item with this id, or the only one whose title contains the words."""
    as_id: int | str = words
    if not task_ids.holds_text:
        with contextlib.suppress(ValueError):
            as_id = int(words)
    if as_id in task_ids:
        return as_id
    if not titles:
        raise InputError(f"This model has no item {words!r} among its {len(task_ids)} items.", argument="item")
    matching = [task for task, title in titles.items() if words.lower() in title.lower()]
    exact = [task for task in matching if titles[task].lower() == words.lower()]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    if not matching:
        raise InputError(f"No id or title of this model matches {words!r}.", argument="item")
    some = "; ".join(f"{titles[task]} ({task})" for task in matching[:5])
    raise InputError(
        f"{words!r} matches {len(matching)} titles: {some}{' ...' if len(matching) > 5 else ''}. Be more specific.",
        argument="item",
    )
