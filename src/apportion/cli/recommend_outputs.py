"""What `recommend` writes: a table for people, lists for JSON, and files that are written part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.outputs import refuse_folder, staged, table
from apportion.cli.terminal import on_one_line
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data import Vocabulary
    from apportion.recommend.model import Recommendations

_USERS_SHOWN: Final = 5
Titles = Mapping[int | str, str]


def check_out(out: Path | None) -> None:
    """Refuse an output file of an unsupported kind."""
    if out is None:
        return
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"Expected --out to end in .parquet or .csv, got {str(out)!r}.", argument=None)
    refuse_folder(out)


def print_some(user_ids: Vocabulary, found: Recommendations, titles: Titles, n_users: int) -> None:
    """Print tables of the first users."""
    for user in as_list(user_ids, found, titles, _USERS_SHOWN):
        rows = [[str(each.get("title", each["item"])), f"{each['score']:.4f}"] for each in user["items"]]
        click.echo(f"user {on_one_line(user['user'])}\n{table(['item', 'score'], rows)}\n")
    if n_users > _USERS_SHOWN:
        click.echo(f"... and {n_users - _USERS_SHOWN} more users; use --out FILE.parquet to get them all.", err=True)


def as_list(
    user_ids: Vocabulary, found: Recommendations, titles: Titles, most: int | None = None
) -> list[dict[str, Any]]:
    """Return users with their items, for JSON."""
    return [
        {
            "user": user_ids.id_of(int(user)),
            "items": [
                _entry(found.task_ids.id_of(int(task)), float(score), titles)
                for task, score in zip(tasks, scores, strict=True)
                if task >= 0
            ],
        }
        for user, tasks, scores in zip(found.users[:most], found.tasks, found.scores, strict=False)
    ]


def _entry(item: int | str, score: float, titles: Titles) -> dict[str, Any]:
    return {"item": item, "score": score} | ({"title": titles[item]} if item in titles else {})


def write_rows(
    parts: Iterable[Recommendations], user_ids: Vocabulary, task_ids: Vocabulary, titles: Titles, out: Path
) -> None:
    """Write one row per user and rank, as Parquet or CSV, part by part."""
    import numpy as np
    import pyarrow as pa

    users, items = _ids(user_ids), _ids(task_ids)
    fields = [("user", users.type), ("item", items.type), ("rank", pa.int32()), ("score", pa.float32())]
    names = pa.array([titles.get(item) for item in task_ids], pa.string()) if titles else None
    schema = pa.schema([*fields, *([("title", pa.string())] if titles else [])])
    with staged(out) as place, _writer(place, schema, out.suffix) as writer:
        for part in parts:
            row, rank = np.nonzero(part.tasks >= 0)
            tasks = pa.array(part.tasks[row, rank])
            columns = [
                users.take(pa.array(part.users[row])),
                items.take(tasks),
                pa.array((rank + 1).astype(np.int32)),
                pa.array(part.scores[row, rank]),
            ]
            columns += [] if names is None else [names.take(tasks)]
            writer.write_table(pa.table(columns, schema=schema))


def _ids(vocabulary: Vocabulary) -> Any:
    """Return ids as an Arrow array, in the order of their codes."""
    import pyarrow as pa

    return pa.array(vocabulary.ids.tolist(), pa.string() if vocabulary.holds_text else pa.int64())


@contextmanager
def _writer(place: Path, schema: Any, suffix: str) -> Iterator[Any]:
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    with parquet.ParquetWriter(place, schema) if suffix == ".parquet" else csv.CSVWriter(place, schema) as writer:
        yield writer
