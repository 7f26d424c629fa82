"""`apportion shard`: from tables of any size to a folder of users that `fit` reads shard by shard."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from apportion.cli.options import MEMORY, json_option
from apportion.cli.outputs import print_json
from apportion.cli.progress import Reporter
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.on_disk.manifest import KeptKind
    from apportion.data.on_disk.sharding import NamedSource
    from apportion.data.on_disk.staging import ShardColumns


@click.command(short_help="Make a folder of users from tables that do not fit in memory.")
@click.argument("files", nargs=-1, metavar="FILES...")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to make; it must not exist.")
@click.option("--query", metavar="SQL", help="Take the rows of a query instead of files: of DuckDB or PostgreSQL.")
@click.option("--database", metavar="FILE|URL", help="With --query: a DuckDB file or postgresql://...")
@click.option("--user", metavar="COLUMN", help="The user column, if it has an unusual name.")
@click.option("--item", metavar="COLUMN", help="The item column; a table may have none.")
@click.option("--value", metavar="COLUMN", help="The value column.")
@click.option("--timestamp", metavar="COLUMN", help="The time column.")
@click.option(
    "--keep",
    multiple=True,
    metavar="COLUMN[:KIND]",
    help="A further column to keep, as number, text or time: zip:text. Without a schema, text of which some is a "
    "number or a date needs the kind. May be repeated.",
)
@click.option("--columns", metavar="A,B,...", help="Names of all columns, for text files without a header.")
@click.option("--memory", metavar="SIZE", default=MEMORY, show_default=True, help="How much memory sorting may take.")
@click.option("--rows-per-shard", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="About.")
@json_option
def shard(
    files: tuple[str, ...],
    out: Path,
    query: str | None,
    database: str | None,
    user: str | None,
    item: str | None,
    value: str | None,
    timestamp: str | None,
    keep: tuple[str, ...],
    columns: str | None,
    memory: str,
    rows_per_shard: int,
    as_json: bool,
) -> None:
    """Write the rows of FILES (CSV, TSV, Parquet; names may have * in them) to a folder of users.

    All rows of a user are in one shard, sorted by user and item. Sorting uses the disk, so tables may be far larger
    than memory. If the command is stopped, the same command goes on where it stopped. The folder holds private data.
    """
    from apportion.data.on_disk.sharding import make_user_folder

    sources = _from_query(query, database) if query is not None else _from_files(files, columns)
    chosen = _columns(sources[0], {"user": user, "task": item, "value": value, "timestamp": timestamp}, keep)
    with Reporter() as reporter:
        made = make_user_folder(
            sources, chosen, out, memory=memory, rows_of_a_shard=rows_per_shard, progress=reporter.of(out.name)
        )
    found = {"rows": made.n_rows, "users": made.n_users, "items": made.items, "shards": len(made.shards)}
    if as_json:
        print_json({"folder": out, **found})
    else:
        counted = (f"{count} {name if count != 1 else name[:-1]}" for name, count in found.items())
        click.echo(f"{out}: {', '.join(counted)}")


def _from_files(patterns: tuple[str, ...], columns: str | None) -> list[NamedSource]:
    from apportion.data.on_disk.sharding import NamedSource
    from apportion.data.sources import naming, open_table

    if not patterns:
        raise click.UsageError("Name at least one file, or a --query.")
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    sources: list[NamedSource] = []
    seen: set[Path] = set()
    for path in [path for pattern in patterns for path in _matching(pattern)]:
        if path.resolve() in seen:
            raise InputError(f"File {str(path)!r} is named twice; its rows would count twice.", argument=None)
        seen.add(path.resolve())
        with naming(path):
            found = path.stat()
            mark = f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"
            sources.append(NamedSource(path.name, mark, open_table(path, columns=names)))
    return sources


def _matching(pattern: str) -> list[Path]:
    found = [Path(pattern)] if Path(pattern).exists() else [Path(name) for name in sorted(glob.glob(pattern))]
    if not found:
        raise InputError(f"There is no file {pattern!r}.", argument=None)
    return found


def _from_query(query: str, database: str | None) -> list[NamedSource]:
    from apportion.data.on_disk.queries import QueryTable
    from apportion.data.on_disk.sharding import NamedSource

    return [NamedSource("query", f"{database} {query}", QueryTable(query, database), of_query=True)]


def _columns(source: NamedSource, roles: dict[str, str | None], keep: tuple[str, ...]) -> ShardColumns:
    """Decide which columns are kept, and as what, by the first source."""
    from apportion.data.columns import IGNORE, choose_columns, choose_user, refuse_uneven_guess, usually
    from apportion.data.on_disk.manifest import KeptKind
    from apportion.data.on_disk.staging import ShardColumns

    names, kept = source.table.names, dict[str, KeptKind]()
    named_kinds = dict(map(_with_kind, keep))
    try:
        if roles["task"] is None and not usually("task", names):
            user, task = choose_user(names, roles["user"]), None
            refuse_uneven_guess(source.table, {**roles, "value": IGNORE, "timestamp": IGNORE})
            named: tuple[tuple[str | None, KeptKind], ...] = ((roles["value"], "number"), (roles["timestamp"], "time"))
        else:
            chosen = choose_columns(names, roles)
            refuse_uneven_guess(source.table, roles)
            user, task = chosen.user, chosen.task
            named = ((chosen.value, "number"), (chosen.timestamp, "time"))
        kept |= {name: kind for name, kind in named if name is not None}
        for name in (name for name in (*named_kinds, *kept) if name not in names):
            raise InputError(f"There is no column {name!r}; the columns are {', '.join(names)}.", argument="keep")
        kept |= {name: kind for name, kind in named_kinds.items() if kind is not None and name not in kept}
        seen = source.table.held_kinds([name for name in named_kinds if name not in kept])
        for name, kind in seen.items():
            if kind == "other":
                raise InputError(f"Column {name!r} holds neither numbers nor text.", argument="keep")
            kept[name] = kind
    except InputError as error:
        raise error.inside(source.name) from None
    return ShardColumns(user, task, kept, frozenset(seen))


def _with_kind(keep: str) -> tuple[str, KeptKind | None]:
    """Return a column to keep, and its kind where its name ends in one.

    >>> _with_kind("zip:text"), _with_kind("zip"), _with_kind("a:b")
    (('zip', 'text'), ('zip', None), ('a:b', None))
    """
    from apportion.data.on_disk.manifest import KeptKind

    column, _, last = keep.rpartition(":")
    kind = next((each for each in get_args(KeptKind) if column and last == each), None)
    return (keep, None) if kind is None else (column, kind)
