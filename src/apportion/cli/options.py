"""Options that several commands share, and the records that collect them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import click

from apportion.cli.ledger_options import charged_session
from apportion.cli.option_types import PRIVATE_ITEMS, Command, Delta, ItemList, PositiveNumber
from apportion.cli.row_options import Missing, missing_option, where_option
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.privacy import Budget, NoiseSource, Session

Kind = Literal["ratings", "clicks"]
Unlisted = Literal["drop", "refuse"]
Repeats = Literal["last", "first", "mean", "sum", "count", "refuse"]


MEMORY: Final = "1GiB"


@dataclass(frozen=True)
class DataOptions:
    """How the data file is read."""

    kind: Kind | None = None
    min_value: float | None = None
    user: str | None = None
    item: str | None = None
    value: str | None = None
    timestamp: str | None = None
    columns: str | None = None
    table: str | None = None
    items: Path | str | None = None
    unlisted: Unlisted = "refuse"
    where: str | None = None
    missing: Missing = "drop"
    repeats: Repeats | None = None
    scale: tuple[float, float] = (1.0, 5.0)

    def __post_init__(self) -> None:
        if self.kind == "ratings" and self.min_value is not None:
            raise click.UsageError("--min-value turns rows into clicks, so it cannot be combined with --ratings.")
        if self.unlisted == "drop" and not isinstance(self.items, Path):
            raise click.UsageError("--unlisted drop needs --items FILE, the list of items whose rows are kept.")
        low, high = self.scale
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InputError(f"Expected --scale LO HI with LO below HI, got {low:g} {high:g}.", argument=None)


@dataclass(frozen=True)
class FitOptions:
    """The guarantee, and the settings of the estimator."""

    epsilon: float
    delta: float = 1e-6
    n_users: int | None = None
    window: str = "not declared"
    seed: int | None = None
    exact: bool = False
    tuning: str | None = None
    dimension: int | None = None
    rounds: int | None = None
    rank_by: str = "value"
    ledger: str | None = None
    account: str | None = None
    items: Path | str | None = None
    rules: tuple[str, ...] = ()
    """How rows were chosen and joined, in words."""
    checkpoint: Path | None = None

    @property
    def items_are_private(self) -> bool:
        """Whether the list of items is released: asked for, or no other was given."""
        return self.items in (None, PRIVATE_ITEMS)

    @property
    def budget(self) -> Budget:
        """What is promised; with a private list of items a part of δ is for it."""
        from apportion.estimators.items import KEYS_PART
        from apportion.privacy import Budget

        return Budget(self.epsilon, self.delta, KEYS_PART * self.delta if self.items_are_private else 0.0)

    def session(self) -> Session:
        """Return the session of a fit; it charges the account and has the checkpoint, if they were named."""
        from apportion.privacy import Checkpoint, Session

        kept = None if self.checkpoint is None else Checkpoint(self.checkpoint)
        charged = charged_session(self.ledger, self.account, self.budget, self.window, self.noise(), kept)
        return charged or Session(self.budget, noise=self.noise(), window=self.window, checkpoint=kept)

    def noise(self) -> NoiseSource:
        """The noise source."""
        return noise_of(self.seed, self.exact)


def noise_of(seed: int | None, exact: bool) -> NoiseSource:
    """Return the operating system's noise or seeded noise, with or without exact arithmetic."""
    from apportion.privacy import SeededNoise, SystemNoise

    return SystemNoise(exact=exact) if seed is None else SeededNoise(seed, exact=exact)


def collect(record: type[Any], values: Mapping[str, Any]) -> Any:
    """Pick a record's fields from a command's options."""
    return record(**{field.name: values[field.name] for field in fields(record) if field.name in values})


def data_options(command: Command) -> Command:
    """Add the options that say how the data file is read."""
    for option in reversed(_DATA):
        command = option(command)
    return command


def fit_options(*, epsilon_required: bool = True) -> Callable[[Command], Command]:
    """Add the options of the guarantee and of the estimator."""
    epsilon = click.option(
        "--epsilon", type=PositiveNumber(), required=epsilon_required, help="Privacy loss (epsilon)."
    )

    def add(command: Command) -> Command:
        for option in reversed((epsilon, *_FIT)):
            command = option(command)
        return command

    return add


def _kind_option(kind: Kind, words: str) -> Callable[[Command], Command]:
    """Return the flag that says what rows are; it fills the parameter `kind`."""
    return click.option(
        f"--{kind}", f"rows_are_{kind}", is_flag=True, expose_value=False, callback=_note_kind, help=words
    )


def _note_kind(context: click.Context, option: click.Parameter, given: bool) -> None:
    named = context.params.setdefault("kind", None)
    if given and named:
        raise click.UsageError("--ratings and --clicks cannot be combined: rows are one or the other.", context)
    if given:
        context.params["kind"] = str(option.name).removeprefix("rows_are_")


def memory_option(command: Command) -> Command:
    """Add `--memory`."""
    words = "For a folder of users: how much memory their rows may take at a time."
    add = click.option("--memory", metavar="SIZE", default=MEMORY, show_default=True, help=words)
    return add(command)


def engine_options(command: Command) -> Command:
    """Add `--engine`, `--master` and `--partitions`."""
    for option in reversed(_ENGINE):
        command = option(command)
    return command


def refuse_half_a_cluster(engine: str, master: str | None) -> None:
    """Refuse a cluster without its address, or an address without the engine for it."""
    if (engine == "spark") != (master is not None):
        raise click.UsageError("--engine spark and --master URL must be given together.")


def checkpoint_option(command: Command) -> Command:
    """Add `--checkpoint`."""
    words = "Store every release in this folder first. If the fit is stopped, the same command goes on from there."
    add = click.option("--checkpoint", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER", help=words)
    return add(command)


def json_option(command: Command) -> Command:
    """Add `--json`."""
    add = click.option("--json", "as_json", is_flag=True, help="Print only JSON on stdout.")
    return add(command)


def open_option(command: Command) -> Command:
    """Add `--open`, for a command that writes a page; `say_page` obeys it."""
    add = click.option(
        "--open", is_flag=True, expose_value=False, callback=_note_open, help="Open the page in the browser."
    )
    return add(command)


def _note_open(context: click.Context, option: click.Parameter, value: bool) -> None:
    context.meta[OPEN] = value


OPEN: Final = "apportion.open"
"""Where the context of a command keeps whether pages are to be opened."""
EXACT: Final = click.option(
    "--exact", is_flag=True, help="Compute sums and noise in exact arithmetic, so that rounding reveals nothing."
)
_ENGINE: Final = (
    click.option(
        "--engine",
        type=click.Choice(["local", "spark"]),
        default="local",
        show_default=True,
        is_eager=True,
        help="Where sums are formed. spark: DATA is a table, or a Parquet, CSV or TSV file that the cluster reads.",
    ),
    click.option("--master", metavar="URL", help="With --engine spark: local[2], spark://host:port or sc://host:port."),
    click.option(
        "--partitions",
        type=click.IntRange(min=1),
        default=8,
        show_default=True,
        help="With --engine spark: tasks in a pass; each holds its rows in memory.",
    ),
)
_DATA: Final = (
    _kind_option("ratings", "Values are ratings to predict."),
    _kind_option("clicks", "Every row is a click, whatever its value."),
    click.option("--min-value", type=float, metavar="X", help="Keep rows with a value of at least X, as clicks."),
    click.option("--user", metavar="COLUMN", help="The user column, if it has an unusual name."),
    click.option("--item", metavar="COLUMN", help="The item column."),
    click.option("--value", metavar="COLUMN", help="The value column."),
    click.option("--timestamp", metavar="COLUMN", help="The time column."),
    click.option("--columns", metavar="A,B,...", help="Names of all columns, for a text file without a header."),
    click.option(
        "--table", metavar="NAME|QUERY", help="Of a database: the table, or a SELECT; default: its only table."
    ),
    click.option(
        "--items",
        type=ItemList(),
        help="The public item list: ids in the first column. private: a list is released with popularity. from-data: "
        "the items that occur, which reveals who has one that nobody else has. Default: private, in `fit` and "
        "`evaluate`.",
    ),
    click.option(
        "--unlisted",
        type=click.Choice(["drop", "refuse"]),
        default="refuse",
        show_default=True,
        help="With --items FILE: what to do about rows of items that are not listed.",
    ),
    where_option,
    missing_option("drop", "What to do about rows with an empty user, item, value or time."),
    click.option(
        "--repeats",
        type=click.Choice(get_args(Repeats)),
        help="What to make of several rows of one user for one item. Default: the last one; their mean, if rows "
        "have neither order nor time.",
    ),
    click.option(
        "--scale",
        nargs=2,
        type=float,
        default=(1.0, 5.0),
        show_default=True,
        metavar="LO HI",
        help="The public scale of ratings.",
    ),
)
_FIT: Final = (
    click.option(
        "--delta",
        type=Delta(),
        default=1e-6,
        show_default=True,
        help="Slack of the guarantee; choose it well below 1 / number of users.",
    ),
    click.option(
        "--n-users",
        type=click.IntRange(min=1),
        help="Number of users, declared public; otherwise it is released with noise.",
    ),
    click.option("--window", default="not declared", metavar="TEXT", help="Time span of the data, for the statement."),
    click.option(
        "--seed", type=click.IntRange(min=0), help="Reproducible noise for tests: marks everything NOT FOR RELEASE."
    ),
    EXACT,
    click.option("--dimension", type=click.IntRange(min=1), help="Length of item vectors; replaces the default."),
    click.option("--rounds", type=click.IntRange(min=1), help="Number of rounds; replaces the default."),
    click.option(
        "--rank-by",
        type=click.Choice(["value", "choice"]),
        default="value",
        show_default=True,
        help="Ratings: recommend by predicted value, or by what users will choose and value, for 33 % of the budget.",
    ),
    click.option("--tuning", metavar="TEXT", help="How --dimension or --rounds were chosen, for the statement."),
)
