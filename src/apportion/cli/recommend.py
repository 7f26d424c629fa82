"""`apportion recommend`: the best items for each user, from that user's own history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.options import FILE, DataOptions, json_option
from apportion.cli.outputs import print_json, refuse_folder, table, write_bytes
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data import Interactions, Vocabulary
    from apportion.recommend.model import Recommendations

_USERS_SHOWN = 5


@click.command(short_help="Recommend items to the users in a history file.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("history", type=FILE)
@click.option(
    "-k", "k", type=click.IntRange(min=1), default=10, show_default=True, help="Number of items for each user."
)
@click.option("--user", "only", metavar="ID", help="Only this user.")
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
    only: str | None,
    new_items: Path | None,
    titles: Path | None,
    out: Path | None,
    as_json: bool,
    **columns: Any,
) -> None:
    """Recommend items to the users in HISTORY with a saved MODEL.

    Each user's vector is computed from the user's own rows. Users need not be in the training data, and this costs no
    privacy. Users are never recommended items they already have. A model that was fitted with features can also rank
    new items by their features.
    """
    from apportion.cli.feature_files import read_new_items
    from apportion.cli.history import read_history
    from apportion.cli.item_files import read_titles
    from apportion.recommend import load

    _check_out(out)
    fitted = load(model)
    options = DataOptions(
        user=columns["user_column"], item=columns["item"], value=columns["value"], columns=columns["columns"]
    )
    rows, remarks = read_history(history, options, fitted)
    for remark in remarks:
        click.echo(remark, err=True)
    if only is not None:
        rows = rows.select_users([_code(only, rows.user_ids)])
    if new_items is not None:
        if fitted.feature_map is None:
            raise InputError(fitted.no_map)
        new = read_new_items(new_items, fitted.feature_map.space)
        result = fitted.recommend(rows, min(k, fitted.n_tasks + len(new)), new_items=new)
    else:
        result = fitted.recommend(rows, min(k, fitted.n_tasks))
    names = {} if titles is None else read_titles(titles, result.task_ids)
    _print_or_write(rows, result, names, out, as_json)


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"Expected --out to end in .parquet or .csv, got {str(out)!r}.")
    refuse_folder(out)


def _code(only: str, user_ids: Vocabulary) -> int:
    if user_ids.holds_text:
        return user_ids.code_of(only)
    try:
        number = int(only)
    except ValueError:
        raise InputError(f"User ids in this history are numbers, got {only!r}.") from None
    return user_ids.code_of(number)


def _print_or_write(
    history: Interactions,
    result: Recommendations,
    titles: Mapping[int | str, str],
    out: Path | None,
    as_json: bool,
) -> None:
    if out is not None:
        write_bytes(out, _as_file(history, result, titles, out.suffix))
    if as_json:
        print_json(
            {
                "users": len(result.users),
                "out": out,
                "recommendations": _as_list(history, result, titles, len(result.users)) if out is None else None,
            }
        )
    elif out is not None:
        click.echo(f"Recommendations for {len(result.users)} users: {out}")
    else:
        _print_some(history, result, titles)


def _print_some(history: Interactions, result: Recommendations, titles: Mapping[int | str, str]) -> None:
    for user in _as_list(history, result, titles, _USERS_SHOWN):
        rows = [[str(each.get("title", each["item"])), f"{each['score']:.4f}"] for each in user["items"]]
        click.echo(f"user {user['user']}\n{table(['item', 'score'], rows)}\n")
    left = len(result.users) - _USERS_SHOWN
    if left > 0:
        click.echo(f"... and {left} more users; use --out FILE.parquet to get them all.", err=True)


def _as_list(
    history: Interactions,
    result: Recommendations,
    titles: Mapping[int | str, str],
    most: int,
) -> list[dict[str, Any]]:
    return [
        {
            "user": history.user_ids.id_of(int(user)),
            "items": [
                _entry(result.task_ids.id_of(int(task)), float(score), titles)
                for task, score in zip(tasks, scores, strict=True)
                if task >= 0
            ],
        }
        for user, tasks, scores in zip(result.users[:most], result.tasks, result.scores, strict=False)
    ]


def _entry(item: int | str, score: float, titles: Mapping[int | str, str]) -> dict[str, Any]:
    return {"item": item, "score": score} | ({"title": titles[item]} if item in titles else {})


def _as_file(
    history: Interactions,
    result: Recommendations,
    titles: Mapping[int | str, str],
    suffix: str,
) -> bytes:
    """Return one row per user and rank, as Parquet or CSV."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    row, rank = np.nonzero(result.tasks >= 0)
    items = result.task_ids.ids_of(result.tasks[row, rank]).tolist()
    columns = {
        "user": history.user_ids.ids_of(result.users[row]).tolist(),
        "item": items,
        "rank": (rank + 1).astype(np.int32),
        "score": result.scores[row, rank],
    }
    if titles:
        columns["title"] = [titles.get(item) for item in items]
    sink = pa.BufferOutputStream()
    if suffix == ".parquet":
        parquet.write_table(pa.table(columns), sink)
    else:
        csv.write_csv(pa.table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
