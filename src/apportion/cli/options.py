"""Options that several commands share, and the records that collect them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import click

from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.privacy import Account, Budget, Checkpoint, NoiseSource, Session

Kind = Literal["ratings", "clicks"]
Unlisted = Literal["drop", "refuse"]
Missing = Literal["drop", "refuse"]
Repeats = Literal["last", "first", "mean", "sum", "count", "refuse"]
Command = TypeVar("Command", bound=Callable[..., Any])

PRIVATE_ITEMS: Final = "private"
ITEMS_FROM_DATA: Final = "from-data"
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


class DataPath(click.Path):
    """A file, or a folder of users that `apportion shard` made."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn text into a path; refuse another folder."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_dir() and not (path / "manifest.json").is_file():
            self.fail(f"File {str(path)!r} is a directory.", param, ctx)
        return path


DATA: Final = DataPath(exists=True, path_type=Path)
MEMORY: Final = "1GiB"


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
class FeatureOptions:
    """The file with public item features, and how it is read."""

    features: Path | None = None
    feature_item: str | None = None
    feature_kinds: tuple[str, ...] = ()
    feature_crosses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.features is not None:
            return
        given = {"item": self.feature_item, "kind": self.feature_kinds, "cross": self.feature_crosses}
        for name in (name for name, value in given.items() if value):
            raise click.UsageError(f"--feature-{name} needs --features.")


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


def charged_session(
    ledger: str | None,
    account: str | None,
    budget: Budget,
    window: str,
    noise: NoiseSource,
    checkpoint: Checkpoint | None = None,
) -> Session | None:
    """Return a session of this budget that charges a ledger's account; None if no ledger was named."""
    result = account_of(ledger, account)
    declared = None if window == _NO_WINDOW else window
    return None if result is None else result.session(budget, noise=noise, window=declared, checkpoint=checkpoint)


def account_of(ledger: str | None, account: str | None) -> Account | None:
    """Return an account of a ledger; None if no ledger was named."""
    if ledger is None and account is None:
        return None
    if ledger is None or account is None:
        raise click.UsageError("--ledger and --account must be given together.")
    from apportion.privacy import Ledger

    asked = click.get_current_context().meta
    where = {name: asked.get(_GUARDED_BY + name) for name in ("key", "head", "fingerprints")}
    result = Ledger.open(ledger, create=False, **where).account(account)
    given = [value for name, value in click.get_current_context().params.items() if name in _DATA_ARGUMENTS]
    data = next((value for value in given if isinstance(value, Path) and value.exists()), None)
    return result if data is None else result.for_data(data, lambda said: click.echo(f"Warning: {said}", err=True))


def _remember(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Remember where a guard of the ledger is for `account_of`, so that no command has to pass it on."""
    context.meta[_GUARDED_BY + str(option.name).removeprefix("ledger_")] = value


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


def feature_options(command: Command) -> Command:
    """Add the options that name public features of items."""
    for option in reversed(_FEATURES):
        command = option(command)
    return command


def ledger_options(command: Command) -> Command:
    """Add the options that name an account to be charged."""
    for option in reversed(_LEDGER):
        command = option(command)
    return command


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
_NO_WINDOW: Final = "not declared"
EXACT: Final = click.option(
    "--exact", is_flag=True, help="Compute sums and noise in exact arithmetic, so that rounding reveals nothing."
)
_GUARDED_BY: Final = "apportion.ledger."
_DATA_ARGUMENTS: Final = ("data", "file", "folder")
_LEDGER: Final = (
    click.option(
        "--ledger", metavar="URL", help="Charge a ledger first: a SQLite file or postgresql://...; see `ledger`."
    ),
    click.option("--account", metavar="NAME", help="With --ledger: the account for these data."),
    click.option(
        "--ledger-key",
        metavar="FILE",
        expose_value=False,
        callback=_remember,
        help="With --ledger: its key file; default: $APPORTION_LEDGER_KEY.",
    ),
    click.option(
        "--ledger-head",
        metavar="FILE|URL",
        expose_value=False,
        callback=_remember,
        help="With --ledger: where its heads are stored; default: $APPORTION_LEDGER_HEAD.",
    ),
    click.option(
        "--ledger-fingerprints",
        metavar="FILE",
        expose_value=False,
        callback=_remember,
        help="With --ledger-key: warn if other data were charged before; default: $APPORTION_LEDGER_FINGERPRINTS.",
    ),
)
_FEATURES: Final = (
    click.option("--features", type=FILE, help="File with public item features; one column holds the item ids."),
    click.option("--feature-item", metavar="COLUMN", help="With --features: the id column, if it has an unusual name."),
    click.option(
        "--feature-kind",
        "feature_kinds",
        multiple=True,
        metavar="COLUMN=KIND",
        help="With --features: categorical, multivalent, number, binned, text or ignore; guessed by default.",
    ),
    click.option(
        "--feature-cross",
        "feature_crosses",
        multiple=True,
        metavar="A,B",
        help="With --features: also use combinations of these columns within a row as a feature.",
    ),
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
        "the items that occur, which reveals who has one that nobody else has. Default: private, in `fit`.",
    ),
    click.option(
        "--unlisted",
        type=click.Choice(["drop", "refuse"]),
        default="refuse",
        show_default=True,
        help="With --items FILE: what to do about rows of items that are not listed.",
    ),
    click.option(
        "--where",
        metavar="EXPRESSION",
        help="Keep rows where this is true of their own columns, such as \"rating > 0 and country = 'DE'\".",
    ),
    click.option(
        "--missing",
        type=click.Choice(get_args(Missing)),
        default="drop",
        show_default=True,
        help="What to do about rows with an empty user, item, value or time.",
    ),
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
        help="Ratings: recommend by predicted value, or by what users will choose and value, for 35 % of the budget.",
    ),
    click.option("--tuning", metavar="TEXT", help="How --dimension or --rounds were chosen, for the statement."),
)
