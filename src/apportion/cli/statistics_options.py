"""Options that `mean`, `quantile`, `regress` and `logistic` share, and how their files are read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import click

from apportion.cli.cautions import declared_of, said_of_folder, weak_delta, weak_epsilon
from apportion.cli.ledger_options import charged_session, ledger_options
from apportion.cli.option_types import PAGE, Command, Delta, PositiveNumber
from apportion.cli.options import EXACT, MEMORY, engine_options, memory_option, noise_of, refuse_half_a_cluster
from apportion.cli.outputs import refuse_folder, refuse_to_open_nothing
from apportion.cli.progress import Reporter
from apportion.cli.row_options import Missing, missing_option, said_of_rows, where_option
from apportion.errors import EmptyCellError, InputError

if TYPE_CHECKING:
    from apportion.data.row_rules import RowRules
    from apportion.data.tables import ColumnKind, Table
    from apportion.privacy import Budget, Session

LEVEL: Final = click.FloatRange(0, 1, min_open=True, max_open=True)


@dataclass(frozen=True)
class StatisticsOptions:
    """The guarantee, how the file is read, and how one user's weight is bounded."""

    user: str
    epsilon: float
    delta: float = 0.0
    columns: str | None = None
    where: str | None = None
    missing: Missing | None = None
    sizes: Literal["public", "private"] = "public"
    of: Literal["rows", "users"] = "rows"
    weights: Literal["target", "paper"] = "target"
    max_size: int = 1 << 10
    threshold: float | None = None
    sample_limit: int | None = None
    level: float = 0.95
    window: str = "not declared"
    tuning: str | None = None
    seed: int | None = None
    exact: bool = False
    page: Path | None = None
    ledger: str | None = None
    account: str | None = None
    engine: str = "local"
    master: str | None = None
    partitions: int = 8
    memory: str = MEMORY
    declared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_half_a_cluster(self.engine, self.master)
        if self.threshold is not None and self.sample_limit is not None:
            raise click.UsageError("Give either --threshold or --sample-limit, not both.")

    @property
    def budget(self) -> Budget:
        """What is promised."""
        from apportion.privacy import Budget

        return Budget(self.epsilon, self.delta)

    @property
    def rules(self) -> RowRules:
        """Which rows are kept. Where numbers of rows are public, empty cells are not left out unless that is asked."""
        from apportion.data.row_rules import RowRules

        return RowRules(self.where, self.missing or ("drop" if self.sizes == "private" else "refuse"))

    @property
    def rules_in_words(self) -> tuple[str, ...]:
        """The same for the statement. Public numbers of rows are those of the rows kept, so these are public, too."""
        words = self.rules.in_words()
        return (*words, "which rows were kept, which is not protected") if words and self.sizes == "public" else words

    def checked(self, file: object) -> Self:
        """Return the same options for a file, with what its folder declares.

        Refuse, before the data is read, bad rules, a bad or exhausted budget, or a page that cannot be written.
        """
        self.rules  # noqa: B018 - an expression that cannot be read is refused
        refuse_to_open_nothing(self.page)
        self.session()
        if self.page is not None:
            refuse_folder(self.page)
            nearest = next(folder for folder in self.page.absolute().parents if folder.exists())
            if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
                raise InputError(
                    f"Cannot write the file {str(self.page)!r}: {str(nearest)!r} is not writable.", argument="page"
                )
        return replace(self, declared=declared_of(file))

    def settings(self) -> dict[str, Any]:
        """Return the settings that every estimator takes."""
        given = {name: getattr(self, name) for name in ("epsilon", "level", "window", "tuning")}
        return given | {"noise": noise_of(self.seed, self.exact), "rules": (*self.rules_in_words, *self.declared)}

    def session(self) -> Session | None:
        """Return the session that charges the account, if one was named."""
        noise = noise_of(self.seed, self.exact)
        return charged_session(self.ledger, self.account, self.budget, self.window, noise)

    def target(self) -> dict[str, Any]:
        """What a statistic with a named target takes."""
        return {name: getattr(self, name) for name in ("of", "weights", "sizes", "max_size")}

    def refuse_bounds_without_paper(self) -> None:
        """Refuse options of the paper's weights without these weights."""
        given = {"threshold": self.threshold, "sample-limit": self.sample_limit}
        for name in (name for name, value in given.items() if value is not None and self.weights != "paper"):
            raise click.UsageError(f"--{name} needs --weights paper.")

    def bounding(self) -> Any:
        """Return how one user's weight is bounded."""
        from apportion.allocation.users import SampleLimit, Smooth

        if self.sample_limit is not None:
            return SampleLimit(self.sample_limit)
        return Smooth(self.threshold)


def read_columns(
    file: Path, options: StatisticsOptions, columns: Mapping[str, ColumnKind], reporter: Reporter
) -> Table:
    """Read the user column and the given ones. Warn if ε is too large, or δ for a public number of users."""
    from apportion.data.tables import read_table

    names = None if options.columns is None else split_names(options.columns)
    progress, left_out = reporter.of(f"reading {file.name}"), dict[str, int]()
    try:
        table = read_table(
            file,
            user=options.user,
            columns=columns,
            names=names,
            single_user=options.sizes == "private",
            rules=options.rules,
            left_out=left_out,
            progress=progress,
        )
    except EmptyCellError as error:
        problem, remedy = error.problem.removesuffix("."), "to leave out such rows, give drop to"
        raise InputError(problem, argument="missing", remedy=remedy) from None
    counted = weak_delta(options.delta, len(table.users.vocabulary)) if options.sizes == "public" else []
    said = said_of_rows(file.name, left_out, "cell in a column that is used")
    for remark in (*said_of_folder(file), *weak_epsilon(options.epsilon), *counted, *said):
        reporter.say(remark)
    return table


def split_names(listed: str) -> list[str]:
    """Split names separated by commas; refuse empty and repeated ones."""
    names = [name.strip() for name in listed.split(",")]
    if not all(names):
        raise InputError(f"Expected names separated by commas, got {listed!r}.", argument=None)
    refuse_repeated(names)
    return names


def refuse_repeated(names: list[str]) -> None:
    """Refuse a column that is named twice."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"Column {name!r} is named {names.count(name)} times; expected each column once.", argument=None
            )


def check_range(option: str, ends: tuple[float, float]) -> None:
    """Refuse an empty or infinite range."""
    low, high = ends
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"Expected {option} LO HI with LO below HI, got {low:g} {high:g}.", argument=None)


def privacy_options(
    *, delta: Literal["pure", "optional", "required"], engines: bool = True, intervals: bool = True
) -> Callable[[Command], Command]:
    """Add the options of the guarantee: no delta, a delta that defaults to 0, or a required delta above 0.

    Args:
        delta: which of the three.
        engines: whether rows may be on a cluster.
        intervals: whether there are numbers with intervals, and a page of them.
    """
    options = [_EPSILON]
    if delta == "optional":
        options.append(_DELTA)
    elif delta == "required":
        options.append(_POSITIVE_DELTA)
    add = _adding((_USER, *options, *(_INTERVALS if intervals else ()), *_PROMISE))
    return lambda command: add(ledger_options(memory_option(engine_options(command)) if engines else command))


def bounding_options(command: Command) -> Command:
    """Add the options that bound one user's weight."""
    return _adding((_sizes("public"), *_BOUNDING))(command)


def target_options(command: Command) -> Command:
    """Add the options of a statistic that names its target, and protects how many rows a user has."""
    return _adding((*_TARGET, _sizes("private"), *_BOUNDING))(command)


def _adding(options: tuple[Any, ...]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_USER: Final = click.option(
    "--user", required=True, metavar="COLUMN", help="The column that identifies the user of each row."
)
_EPSILON: Final = click.option("--epsilon", type=PositiveNumber(), required=True, help="Privacy loss (epsilon).")
_DELTA: Final = click.option(
    "--delta",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Slack δ of the guarantee. 0 means Laplace noise and a pure guarantee; "
    "above 0 means Gaussian noise, and should be well below 1 / number of users.",
)
_POSITIVE_DELTA: Final = click.option(
    "--delta",
    type=Delta(),
    required=True,
    help="Slack of the guarantee; choose it well below 1 / number of users.",
)
_INTERVALS: Final = (
    click.option("--level", type=LEVEL, default=0.95, show_default=True, help="Confidence level of the intervals."),
    click.option(
        "--page",
        type=PAGE,
        metavar="FILE.html",
        help="Write a page that may be shared: the numbers, a chart and the statement.",
    ),
)
_PROMISE: Final = (
    click.option("--window", default="not declared", metavar="TEXT", help="Time span of the data, for the statement."),
    click.option("--tuning", metavar="TEXT", help="How settings were chosen, for the statement, if any were given."),
    click.option(
        "--seed", type=click.IntRange(min=0), help="Reproducible noise for tests: marks everything NOT FOR RELEASE."
    ),
    EXACT,
    click.option("--columns", metavar="A,B,...", help="Names of all columns, for a text file without a header."),
    where_option,
    missing_option(
        None,
        "What to do about rows with an empty cell in a column that is used. Default: drop; refuse, where everybody may "
        "know how many rows each user has.",
    ),
)
sample_limit_option = click.option(
    "--sample-limit",
    type=click.IntRange(min=1),
    metavar="H",
    help="Keep at most H rows of each user instead of weighting them down.",
)
of_option = click.option(
    "--of",
    type=click.Choice(["rows", "users"]),
    default="rows",
    show_default=True,
    help="What is described: all rows, in which a user counts by its rows; or users, each of whom counts the same.",
)
_TARGET: Final = (
    of_option,
    click.option(
        "--weights",
        type=click.Choice(["target", "paper"]),
        default="target",
        show_default=True,
        help="Weights for what --of names; or those of Epasto et al. (2020), which assume that values have nothing "
        "to do with how many rows a user has.",
    ),
    click.option(
        "--max-size",
        type=click.IntRange(min=1),
        default=1 << 10,
        show_default=True,
        metavar="ROWS",
        help="Public: a user with more rows counts as if it had this many.",
    ),
)


def _sizes(default: str) -> Any:
    return click.option(
        "--sizes",
        type=click.Choice(["public", "private"]),
        default=default,
        show_default=True,
        help="Whether the number of rows of each user is public or private.",
    )


_BOUNDING: Final = (
    click.option(
        "--threshold",
        type=PositiveNumber(),
        metavar="H",
        help="With the paper's weights, rows beyond H add nothing to a user's weight; default: the best H.",
    ),
    sample_limit_option,
)
