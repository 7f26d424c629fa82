"""Options of statistics by group, and how their files are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from apportion.cli.option_types import FILE, Command, Delta
from apportion.cli.statistics_options import StatisticsOptions, split_names
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.time_bins import Bin
    from apportion.privacy import Budget

PRIVATE_KEYS: Final = "private"
KEYS_FROM_DATA: Final = "from-data"
DELTA: Final = 1e-6  # where none is given


class GroupKeys(click.ParamType["Path | str"]):
    """A file with the public list of groups, or one of two words."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Turn text into a path, unless it is one of the words."""
        return value if value in (PRIVATE_KEYS, KEYS_FROM_DATA) else Path(FILE.convert(value, param, ctx))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What may be given."""
        return f"FILE|{PRIVATE_KEYS}|{KEYS_FROM_DATA}"


@dataclass(frozen=True)
class GroupOptions(StatisticsOptions):
    """The guarantee, how the file is read, and what makes a group."""

    sizes: Literal["public", "private"] = "private"
    by: str | None = None
    keys: Path | str = PRIVATE_KEYS
    each: bool = False
    law: Literal["gaussian", "laplace"] = "gaussian"
    top: int | None = None
    plan: bool = False

    @property
    def columns_by(self) -> list[str]:
        """The columns that make a group."""
        return [] if self.by is None else split_names(self.by)

    @property
    def bins_by(self) -> list[tuple[str, Bin | None]]:
        """The same as columns of the file, each with the bins of time that it is divided into, if any."""
        return [divided(name) for name in self.columns_by]

    @property
    def by_in_words(self) -> list[str]:
        """The same for headlines."""
        return [name if size is None else f"{size} of {name}" for name, size in self.bins_by]

    @property
    def keys_are_private(self) -> bool:
        """Whether the list of groups is released."""
        return bool(self.columns_by) and self.keys == PRIVATE_KEYS

    @property
    def budget(self) -> Budget:
        """What is promised; with a private list of groups a part of δ is for it."""
        from apportion.statistics.groups.keys import group_budget

        return group_budget(self.epsilon, self.delta, private_keys=self.keys_are_private, law=self.law)

    def listed(self) -> str | list[Any]:
        """The list of groups: a word, or what the file holds."""
        return read_groups(self.keys, self.columns_by) if isinstance(self.keys, Path) else str(self.keys)


def divided(name: str) -> tuple[str, Bin | None]:
    """Return a column, and its bins of time where its name ends in one of them.

    >>> divided("when:week"), divided("ward"), divided("a:b")
    (('when', 'week'), ('ward', None), ('a:b', None))
    """
    from apportion.data.time_bins import BINS

    column, _, last = name.rpartition(":")
    size = next((each for each in BINS if column and last == each), None)
    return (name, None) if size is None else (column, size)


def read_groups(path: Path, columns: list[str]) -> list[Any]:
    """Read groups from the first columns of a file, in its order; a first line with the columns' names is a header."""
    from apportion.data.sources import names_columns, rows_as_text

    rows = [row[: len(columns)] for row in rows_as_text(path) if any(cell.strip() for cell in row)]
    if rows and (names_columns(path) or [cell.strip() for cell in rows[0]] == columns):
        rows = rows[1:]
    short = next((row for row in rows if len(row) < len(columns)), None)
    if not rows or short is not None:
        where = f"first {len(columns)} columns" if len(columns) > 1 else "first column"
        raise InputError(f"{path.name}: expected groups in the {where}.", argument="keys")
    return [row[0] if len(columns) == 1 else tuple(row) for row in rows]


def group_options(command: Command) -> Command:
    """Add the options that divide rows into groups, and a delta."""
    return _DELTA(without_required_delta(command))


def query_options(command: Command) -> Command:
    """Add the same options to a command whose groups come from a query."""
    for option in reversed((_DELTA, *_GROUPS[1:])):
        command = option(command)
    return command


def without_required_delta(command: Command) -> Command:
    """Add the options that divide rows into groups, to a command that has a delta."""
    for option in reversed(_GROUPS):
        command = option(command)
    return command


_DELTA: Final = click.option(
    "--delta",
    type=Delta(),
    default=DELTA,
    show_default=True,
    help="Slack of the guarantee; choose it well below 1 / number of users.",
)
_GROUPS: Final = (
    click.option(
        "--by",
        metavar="COLUMN[,COLUMN]",
        help="Columns that divide rows into groups; a user has one budget over all of them. COLUMN:week divides dates "
        "into weeks; day, month, quarter and year likewise.",
    ),
    click.option(
        "--keys",
        type=GroupKeys(),
        default=PRIVATE_KEYS,
        show_default=True,
        help="With groups, which there are. A file with the public list; rows of other groups are left out. private: "
        "groups that enough users are in are released. from-data: those that occur, which reveals who is in one alone.",
    ),
    click.option("--each", is_flag=True, help="With groups: intervals that hold for each; they borrow nothing."),
    click.option(
        "--law",
        type=click.Choice(["gaussian", "laplace"]),
        default="gaussian",
        show_default=True,
        help="With groups, the noise. laplace is better where users are in few groups, up to about eight; its delta is "
        "for a private list alone.",
    ),
    click.option(
        "--top",
        type=click.IntRange(min=1),
        default=None,
        metavar="K",
        help="With groups: only the K with the largest estimates, by the first statistic. Intervals hold for all "
        "groups together.",
    ),
    click.option("--plan", is_flag=True, help="Spend nothing: print what it will cost and how wide intervals will be."),
)
