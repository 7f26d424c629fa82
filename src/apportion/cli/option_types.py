"""What options hold: files and folders, numbers above zero, lists of items."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

PRIVATE_ITEMS: Final = "private"
ITEMS_FROM_DATA: Final = "from-data"
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


class DataPath(click.Path):
    """A file, or a folder of users that `apportion shard` made; with `--engine spark`, what the cluster reads."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn text into a path; refuse another folder."""
        if ctx is not None and ctx.params.get("engine") == "spark":
            return str(value)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_dir() and not (path / "manifest.json").is_file():
            self.fail(f"File {str(path)!r} is a directory.", param, ctx)
        return path


DATA: Final = DataPath(exists=True, path_type=Path)


class PagePath(click.Path):
    """A page to write. Its name gets the ending .html if it has none, or a browser would show its source."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn text into a path; a folder or a device keeps its name."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() in (".html", ".htm") or (path.exists() and not path.is_file()):
            return path
        return path.with_name(f"{path.name}.html")


PAGE: Final = PagePath(path_type=Path)


class PositiveNumber(click.ParamType[float]):
    """A finite number above zero; anything else is a usage error that quotes the value."""

    name = "number"
    above, below = 0.0, math.inf
    expected = "a finite number above 0"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn text into a number."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"expected a number, got {value!r}", param, ctx)
        if not self.above < number < self.below:
            self.fail(f"expected {self.expected}, got {value}", param, ctx)
        return number


class Delta(PositiveNumber):
    """A δ above 0; `Budget` accepts the same ones."""

    above, below = 1e-300, 1.0
    expected = "a number above 1e-300 and below 1"


class ItemList(click.ParamType["Path | str"]):
    """A file with the public list of items, or one of two words."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Turn text into a path, unless it is one of the words."""
        return value if value in (PRIVATE_ITEMS, ITEMS_FROM_DATA) else Path(FILE.convert(value, param, ctx))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What may be given."""
        return f"FILE|{PRIVATE_ITEMS}|{ITEMS_FROM_DATA}"
