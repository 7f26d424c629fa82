"""`apportion recommend`: the best items for each user, from that user's own history, one user or very many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.options import FILE, DataOptions, json_option
from apportion.cli.progress import Reporter
from apportion.cli.recommend_outputs import as_list, check_out, print_some, write_rows
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data import Interactions, Vocabulary
    from apportion.recommend.model import ItemModel, Recommendations


@click.command(short_help="Recommend items to the users of a history file.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("history", type=FILE)
@click.option("-k", "k", type=click.IntRange(min=1), default=10, show_default=True, help="Items for each user.")
@click.option("--user", "only_user", metavar="ID", help="Only this user.")
@click.option("--only", type=FILE, help="Recommend these items alone: ids in the first column of a file.")
@click.option("--exclude", type=FILE, help="Recommend none of these items: ids in the first column of a file.")
@click.option(
    "--cap",
    "caps",
    multiple=True,
    metavar="COLUMN=N",
    help="At most N items of a user's list share a category (a word of this column of the features).",
)
@click.option("--categories", type=FILE, help="Features of items to take categories from, if the model keeps none.")
@click.option("--user-column", metavar="COLUMN", help="The user column, if its name is unusual.")
@click.option("--item", metavar="COLUMN", help="The item column.")
@click.option("--value", metavar="COLUMN", help="The value column.")
@click.option("--columns", metavar="A,B,...", help="Names of all columns, for a text file without a header.")
@click.option("--new-items", type=FILE, help="Features of items that training has not met, to be ranked as well.")
@click.option("--titles", type=FILE, help="Titles of items (id, title).")
@click.option("--out", type=click.Path(path_type=Path), help="Write to this .parquet or .csv file.")
@json_option
def recommend(
    model: Path,
    history: Path,
    k: int,
    only_user: str | None,
    only: Path | None,
    exclude: Path | None,
    caps: tuple[str, ...],
    categories: Path | None,
    new_items: Path | None,
    titles: Path | None,
    out: Path | None,
    as_json: bool,
    **columns: Any,
) -> None:
    """Recommend items to the users of HISTORY with a saved MODEL.

    Each user is folded in from their own rows; they need not have been in the training data, and it costs no
    privacy. Nobody is recommended what they already have. With a model that was fitted with features, items
    that it has never met can be ranked among the others by theirs. With --out, rows are written as they are found, so
    that any number of users fits in memory.
    """
    from apportion.cli.history import read_history
    from apportion.cli.item_files import read_known_items, read_titles
    from apportion.recommend import load

    check_out(out)
    fitted = load(model)
    options = DataOptions(
        user=columns["user_column"], item=columns["item"], value=columns["value"], columns=columns["columns"]
    )
    with Reporter() as reporter:
        rows, remarks = read_history(history, options, fitted)
        for remark in remarks:
            reporter.say(remark)
        if only_user is not None:
            rows = rows.select_users([_code(only_user, rows.user_ids)])
        take_categories(fitted, categories)
        ranked = _with_new_items(fitted, new_items)
        names = {} if titles is None else read_titles(titles, ranked.task_ids)
        listed = {
            name: None if path is None else read_known_items(path, ranked.task_ids, reporter)
            for name, path in (("only", only), ("exclude", exclude))
        }
        asked: dict[str, Any] = {"candidates": ranked.candidates(**listed), "caps": _caps(caps), "scored": ranked}
        parts = _shown(fitted.recommend_in_parts(rows, min(k, ranked.n_tasks), **asked), rows, reporter)
        if out is not None:
            write_rows(parts, rows.user_ids, ranked.task_ids, names, out)
        else:
            found = list(parts)
    n_users = int((rows.by_user.counts > 0).sum())
    if as_json:
        from apportion.cli.outputs import print_json

        lists = None if out is not None else [each for part in found for each in as_list(rows.user_ids, part, names)]
        print_json({"users": n_users, "out": out, "recommendations": lists})
    elif out is not None:
        click.echo(f"Recommendations for {n_users} users: {out}")
    else:
        print_some(rows.user_ids, found[0], names, n_users)


def take_categories(model: ItemModel, features: Path | None) -> None:
    """Give a model the categories of a file about its items."""
    if features is None:
        return
    from apportion.data.features import ItemFeatures
    from apportion.recommend.categories import Categories

    found = Categories.of(ItemFeatures.read(features), model.task_ids)
    if found is None:
        raise InputError(f"{features.name}: no column holds words, so there are no categories in it.")
    model.categories = found


def _with_new_items(model: ItemModel, new_items: Path | None) -> ItemModel:
    """The model whose items are ranked: the one given, or that with new items."""
    from apportion.cli.feature_files import read_new_items

    if new_items is None:
        return model
    if model.feature_map is None:
        raise InputError(model.no_map)
    return model.with_new_items(read_new_items(new_items, model.feature_map.space))


def _caps(given: tuple[str, ...]) -> dict[str, int]:
    caps = {}
    for each in given:
        column, mark, most = each.rpartition("=")
        if not (column and mark and most.isdecimal() and int(most)):
            raise InputError(f"Expected --cap COLUMN=N with N of at least 1, got {each!r}.")
        caps[column] = int(most)
    return caps


def _shown(parts: Iterator[Recommendations], history: Interactions, reporter: Reporter) -> Iterator[Recommendations]:
    """The same parts; where there are several, how many are done is shown."""
    from apportion.recommend.model import USERS_IN_A_PART

    total = math.ceil(int((history.by_user.counts > 0).sum()) / USERS_IN_A_PART)
    for number, part in enumerate(parts, 1):
        yield part
        if total > 1:
            reporter.show("recommendations", "part", number, total)


def _code(only: str, user_ids: Vocabulary) -> int:
    if user_ids.holds_text:
        return user_ids.code_of(only)
    try:
        number = int(only)
    except ValueError:
        raise InputError(f"Users of this history are numbers, got {only!r}.") from None
    return user_ids.code_of(number)
