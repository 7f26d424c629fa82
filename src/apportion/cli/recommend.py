"""`apportion recommend`: the best items for each user, from that user's own history, one user or very many."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.option_types import DATA, FILE
from apportion.cli.options import DataOptions, json_option
from apportion.cli.progress import Reporter
from apportion.cli.recommend_outputs import as_list, check_out, print_some, write_rows
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data import Interactions, Vocabulary
    from apportion.recommend.model import ItemModel, Recommendations


@click.command(short_help="Recommend items to the users in a history file.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("history", type=DATA)
@click.option(
    "-k", "k", type=click.IntRange(min=1), default=10, show_default=True, help="Number of items for each user."
)
@click.option("--user", "only_user", metavar="ID", help="Only this user.")
@click.option("--only", type=FILE, help="Recommend only these items: a file with ids in the first column.")
@click.option("--exclude", type=FILE, help="Recommend none of these items: a file with ids in the first column.")
@click.option(
    "--cap",
    "caps",
    multiple=True,
    metavar="COLUMN=N",
    help="At most N items in a user's list may share a category (a word in this column of the features).",
)
@click.option("--categories", type=FILE, help="File of item features to take categories from, if the model has none.")
@click.option("--user-column", metavar="COLUMN", help="The user column, if it has an unusual name.")
@click.option("--item", metavar="COLUMN", help="The item column.")
@click.option("--value", metavar="COLUMN", help="The value column.")
@click.option("--columns", metavar="A,B,...", help="Names of all columns, for a text file without a header.")
@click.option("--new-items", type=FILE, help="File with features of new items, to be ranked as well.")
@click.option("--titles", type=FILE, help="File with titles of items (id, title).")
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
    """Recommend items to the users in HISTORY with a saved MODEL.

    Each user's vector is computed from the user's own rows. Users need not be in the training data, and this costs no
    privacy. Users are never recommended items they already have. A model that was fitted with features can also rank
    new items by their features. With --out, rows are written as they are found, so any number of users fits in memory.
    """
    from apportion.cli.history import read_history
    from apportion.cli.item_files import read_known_items, titles_of
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
        if getattr(fitted, "choice", None) is not None:
            reporter.say("Items are in the order of likely choices; the score is the predicted value.")
        if only_user is not None:
            rows = rows.select_users([_code(only_user, rows.user_ids)])
        take_categories(fitted, categories)
        ranked = _with_new_items(fitted, new_items)
        names = titles_of(ranked if titles else fitted, titles)
        listed = {
            name: None if path is None else read_known_items(path, ranked.task_ids, reporter)
            for name, path in (("only", only), ("exclude", exclude))
        }
        candidates = ranked.candidates(**listed)
        if candidates is not None and not len(candidates):
            raise InputError("--only and --exclude together leave no item to recommend.", argument=None)
        asked: dict[str, Any] = {"candidates": candidates, "caps": _caps(caps), "scored": ranked}
        parts = _shown(fitted.recommend_in_parts(rows, min(k, ranked.n_tasks), **asked), rows, reporter)
        if out is not None:
            write_rows(parts, rows.user_ids, ranked.task_ids, names, out)
        else:
            result = list(parts)
    n_users = int((rows.by_user.counts > 0).sum())
    if as_json:
        from apportion.cli.outputs import print_json

        lists = None if out is not None else [each for part in result for each in as_list(rows.user_ids, part, names)]
        print_json({"users": n_users, "out": out, "recommendations": lists})
    elif out is not None:
        click.echo(f"Recommendations for {n_users} users: {out}")
    else:
        print_some(rows.user_ids, result[0], names, n_users)


def take_categories(model: ItemModel, features: Path | None) -> None:
    """Give a model the item categories in a file."""
    if features is None:
        return
    from apportion.data.features import FineFeaturesWarning, ItemFeatures
    from apportion.recommend.categories import Categories

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FineFeaturesWarning)  # nothing is learned from them here
        result = Categories.of(ItemFeatures.read(features), model.task_ids)
    if result is None:
        raise InputError(f"{features.name}: no column holds words, so it has no categories.", argument="categories")
    model.categories = result


def _with_new_items(model: ItemModel, new_items: Path | None) -> ItemModel:
    """Return the model to rank with: the given one, or the same with new items."""
    from apportion.cli.feature_files import read_new_items

    if new_items is None:
        return model
    if model.feature_map is None:
        raise InputError(model.no_map, argument="new_items")
    return model.with_new_items(read_new_items(new_items, model.feature_map.space))


def _caps(given: tuple[str, ...]) -> dict[str, int]:
    caps = {}
    for each in given:
        column, mark, most = each.rpartition("=")
        if not (column and mark and most.isdecimal() and int(most)):
            raise InputError(f"Expected --cap COLUMN=N with N of at least 1, got {each!r}.", argument=None)
        caps[column] = int(most)
    return caps


def _shown(parts: Iterator[Recommendations], history: Interactions, reporter: Reporter) -> Iterator[Recommendations]:
    """Yield the same parts; if there are several, show how many are done."""
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
        raise InputError(f"User ids in this history are numbers, got {only!r}.", argument="only_user") from None
    return user_ids.code_of(number)
