"""The argument DATA of commands: files, folders, patterns, standard input or a database."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.option_types import Command

if TYPE_CHECKING:
    from apportion.data.sources import Place

_FOUND: Final = click.Path(exists=True, path_type=Path)
_GZIP: Final = b"\x1f\x8b"


class DataPlace(click.ParamType["Path | str"]):
    """A file, a folder, a pattern in quotes, `-` for standard input, or the URL of a PostgreSQL database."""

    name = "data"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Turn text into a place; refuse a path without a file."""
        from apportion.data.sources import files_at, is_url

        if ctx is not None and ctx.params.get("engine") == "spark":
            return str(value)  # a table, or a file that the cluster reads
        if value == "-" and ctx is not None:
            return _spooled(ctx)
        if is_url(value):
            return str(value)
        return Path(value) if files_at(value) else Path(_FOUND.convert(value, param, ctx))


def _spooled(context: click.Context) -> Path:
    """Return a file with what comes from standard input; it is readable by its owner alone, and deleted at the end."""
    folder = context.with_resource(tempfile.TemporaryDirectory(prefix="apportion-"))
    source = sys.stdin.buffer
    beginning = source.read(len(_GZIP))
    file = Path(folder) / ("standard-input.gz" if beginning == _GZIP else "standard-input")
    with file.open("wb") as target:
        target.write(beginning)
        shutil.copyfileobj(source, target)
    return file


def _one_or_several(context: click.Context, option: click.Parameter, places: tuple[Path | str, ...]) -> Place:
    if len(places) > 1 and not all(isinstance(place, Path) for place in places):
        raise click.UsageError("Several files cannot be combined with a database.", context)
    return places[0] if len(places) == 1 else places


def data_argument(command: Command) -> Command:
    """Add `DATA`, which may be several files."""
    add = click.argument("data", type=DataPlace(), nargs=-1, required=True, callback=_one_or_several)
    return add(command)


def stem_of(place: Place) -> str:
    """Return the beginning of the name of what is written about data, if none was given."""
    from apportion.data.sources import is_url

    if is_url(place):
        return "database"
    first = place if isinstance(place, str | os.PathLike) else place[0]
    return re.sub(r"[*?\[\]]+", "", Path(first).stem).strip("-_.") or "data"
